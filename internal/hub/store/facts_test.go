package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

func TestPatientsHaveWhatTheDoctorJudges(t *testing.T) { both(t, testPatientsHaveWhatTheDoctorJudges) }

func testPatientsHaveWhatTheDoctorJudges(t *testing.T) {
	w := newWorld(t, 2)
	ctx := context.Background()
	w.arrive(t, "c-0")
	began := w.clock.Now()
	for range 2 {
		w.run(t)
		w.clock.Step(time.Minute)
	}
	_, err := w.s.CreateCredential(ctx, admin, "", "gpu")
	check(t, err)
	check(t, w.s.SetRefusal(ctx, w.credential, hubv1.Refusal{Message: "quota exceeded"}))
	_, err = w.s.CreatePool(ctx, admin, "", hubv1.CreatePoolRequest{Name: "idle", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	_, err = w.s.CreatePool(ctx, admin, "", hubv1.CreatePoolRequest{Name: "over", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})
	check(t, err)
	_, err = w.s.RevokePool(ctx, admin, "over")
	check(t, err)

	all, err := w.s.Patients(ctx, "")
	check(t, err)
	if len(all) != 2 || all[0].Name != "gpu" || all[1].Name != "idle" {
		t.Fatalf("got %+v", all)
	}
	gpu, idle := all[0], all[1]
	if !gpu.OldestQueued.Equal(began) || gpu.Queued != 2 || gpu.Credentials != 2 || !slices.Equal(gpu.Trouble, []string{"quota exceeded"}) ||
		len(gpu.Controllers) != 1 || !gpu.Controllers[0].Connected || len(gpu.Features) == 0 {
		t.Errorf("the one that waits is %+v", gpu)
	}
	if !idle.OldestQueued.IsZero() || idle.Credentials != 1 || idle.Trouble != nil || len(idle.Controllers) > 0 {
		t.Errorf("the other is %+v", idle)
	}
	one, err := w.s.Patients(ctx, idle.ID)
	check(t, err)
	if len(one) != 1 || one[0].Name != "idle" {
		t.Errorf("asked for one: %+v", one)
	}
}
