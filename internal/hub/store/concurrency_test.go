package store_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func TestConcurrentMintsStayUnderTheMaximum(t *testing.T) {
	both(t, testConcurrentMintsStayUnderTheMaximum)
}

func testConcurrentMintsStayUnderTheMaximum(t *testing.T) {
	const maximum = 7
	w := newWorld(t, maximum)
	second, err := w.s.CreateCredential(background, admin, "", "gpu")
	check(t, err)
	other, err := w.s.AuthPool(background, second.Secret)
	check(t, err)
	var group sync.WaitGroup
	var minted, enrolled atomic.Int32
	for i := range 40 {
		group.Go(func() {
			c := []store.Credential{w.credential, other}[i%2]
			out, err := w.s.Mint(background, c, fmt.Sprintf("key-%04d", i))
			if err != nil {
				if codeOf(err) != hubv1.CodePoolAtMaximum {
					t.Error(err)
				}
				return
			}
			minted.Add(1)
			var twice sync.WaitGroup
			for range 3 {
				twice.Go(func() {
					if _, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: out.Token}); err == nil {
						enrolled.Add(1)
					}
				})
			}
			twice.Wait()
		})
	}
	group.Wait()
	if minted.Load() != maximum || enrolled.Load() != maximum {
		t.Fatalf("%d minted and %d enrolled of at most %d", minted.Load(), enrolled.Load(), maximum)
	}
}

func TestRunsAreHandedOutInOrder(t *testing.T) { both(t, testRunsAreHandedOutInOrder) }

func testRunsAreHandedOutInOrder(t *testing.T) {
	const runs = 20
	w := newWorld(t, runs)
	var want []string
	for range runs {
		want = append(want, w.run(t).ID)
	}
	var group sync.WaitGroup
	got := make([]string, runs)
	for i := range runs {
		r := w.runner(t, fmt.Sprintf("key-%04d", i))
		group.Go(func() {
			snapshot, err := w.s.RunnerSnapshot(background, r)
			if err == nil && snapshot.Run != nil {
				got[i] = snapshot.Run.RunID
			}
		})
	}
	group.Wait()
	if !slices.Equal(got, want) {
		t.Fatalf("handed out %v, want %v", got, want)
	}
}
