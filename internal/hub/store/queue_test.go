package store_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func TestTheLogIsBoundedAndSaysSo(t *testing.T) { both(t, testTheLogIsBoundedAndSaysSo) }

func testTheLogIsBoundedAndSaysSo(t *testing.T) {
	clock := newClock()
	w := newWorld(t, 1)
	check(t, w.s.Close())
	s, err := store.Open(context.Background(), at(t, w.dir, store.Options{Clock: clock, Limits: store.Limits{LogBytes: 10}}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s, w.clock = s, clock
	ctx := context.Background()
	run, r := w.run(t), w.runner(t, "key-one1")
	offset := int64(0)
	for range 3 {
		next, err := s.AppendLog(ctx, r, run.ID, offset, []byte("1234\xff\x00"))
		check(t, err)
		offset = next
	}
	if offset != 18 {
		t.Fatalf("the runner goes on from %d", offset)
	}
	var text []byte
	for {
		data, _, err := s.ReadLog(ctx, run.ID, int64(len(text)))
		check(t, err)
		if len(data) == 0 {
			break
		}
		text = append(text, data...)
	}
	if !bytes.HasPrefix(text, []byte("1234\xff\x001234\n[cloop]")) || int64(len(text)) != w.get(t, run.ID).LogBytes {
		t.Fatalf("the log is %q", text)
	}
	if bytes.Count(text, []byte("[cloop]")) != 1 {
		t.Fatalf("the notice comes more than once: %q", text)
	}
}

func TestBindingElsewhereTakesWaitingRunsOutOfTheQueue(t *testing.T) {
	both(t, testBindingElsewhereTakesWaitingRunsOutOfTheQueue)
}

func testBindingElsewhereTakesWaitingRunsOutOfTheQueue(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	run := w.run(t)
	other, err := w.s.CreatePool(ctx, admin, "", hubv1.CreatePoolRequest{Name: "cpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	_, err = w.s.BindProject(ctx, admin, "app", "pool:"+other.Pool.ID, store.Undemanding(""))
	check(t, err)
	if got := w.get(t, run.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "another pool") {
		t.Fatalf("the waiting run is %s: %s", got.State, got.Reason)
	}
}

func TestACordonHoldsTheQueueAndSaysWhy(t *testing.T) { both(t, testACordonHoldsTheQueueAndSaysWhy) }

func testACordonHoldsTheQueueAndSaysWhy(t *testing.T) {
	w := newWorld(t, 3)
	ctx := context.Background()
	running, busy := w.run(t), w.runner(t, "key-nil0")
	w.started(t, busy, w.get(t, running.ID))
	r := w.runner(t, "key-one1")
	_, err := w.s.Cordon(ctx, admin, "gpu", "node upgrades")
	check(t, err)
	// What runs finishes.
	check(t, w.s.Result(ctx, busy, running.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0))}))
	if got := w.get(t, running.ID); got.State != hubv1.RunSucceeded {
		t.Fatalf("what ran is %s: %s", got.State, got.Reason)
	}
	run := w.run(t)
	if run.State != hubv1.RunQueued || !strings.Contains(run.Reason, "node upgrades") {
		t.Fatalf("the run is %s: %s", run.State, run.Reason)
	}
	if snapshot, err := w.s.PoolSnapshot(ctx, w.credential); err != nil || snapshot.Queued != 0 || snapshot.Pool.Queued != 1 {
		t.Fatalf("the controller sees a demand of %d, %v", snapshot.Queued, err)
	}
	if _, err := w.s.Mint(ctx, w.credential, "key-two2"); codeOf(err) != hubv1.CodePoolCordoned {
		t.Fatalf("minting: %v", err)
	}
	_, err = w.s.Uncordon(ctx, admin, "gpu")
	check(t, err)
	if got := w.get(t, run.ID); got.State != hubv1.RunHanded || got.Runner != r.ID {
		t.Fatalf("after the cordon the run is %s", got.State)
	}
}

func TestASnapshotIsTheCredentialsOwn(t *testing.T) { both(t, testASnapshotIsTheCredentialsOwn) }

func testASnapshotIsTheCredentialsOwn(t *testing.T) {
	w := newWorld(t, 5)
	ctx := context.Background()
	second, err := w.s.CreateCredential(ctx, admin, "", "gpu")
	check(t, err)
	other, err := w.s.AuthPool(ctx, second.Secret)
	check(t, err)
	mine := w.runner(t, "key-one1")
	theirs, err := w.s.Mint(ctx, other, "key-one1")
	check(t, err)
	snapshot, err := w.s.PoolSnapshot(ctx, w.credential)
	check(t, err)
	if len(snapshot.Runners) != 1 || snapshot.Runners[0].ID != mine.ID || snapshot.OthersAvailable != 1 {
		t.Fatalf("the first controller sees %+v", snapshot)
	}
	if _, err := w.s.Retire(ctx, w.credential, theirs.RunnerID); codeOf(err) != hubv1.CodeForbidden {
		t.Fatalf("retiring another's runner: %v", err)
	}
	theirsToo := w.controller("c-1")
	theirsToo.Credential = other
	must(t)(w.s.Arrive(ctx, theirsToo))
	check(t, w.s.SetRefusal(ctx, other, hubv1.Refusal{Message: "quota exceeded"}))
	_, err = w.s.Cordon(ctx, admin, "gpu", "x")
	check(t, err)
	_, err = w.s.Uncordon(ctx, admin, "gpu")
	check(t, err)
	w.run(t)
	if waits := w.run(t); !strings.Contains(waits.Reason, "quota exceeded") {
		t.Fatalf("a run waits because %q", waits.Reason)
	}
}
