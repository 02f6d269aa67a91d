package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/postgrestest"
)

// Of two hubs on one PostgreSQL database the one that has every duty is killed
// in the middle of its work. The other goes on with all of it: the run that is in
// progress, the run that waits, and the Git sync.
func TestAHubGoesOnWithTheDutiesOfOneThatWasKilled(t *testing.T) {
	server := postgrestest.Shared(t)
	database := server.NewDatabase(t, "")
	const password = "canary-of-the-database-password-0c4e"
	git := fleettest.Serve(t)
	git.Create("fleet.git")
	define := func(maximum int) {
		git.Commit("fleet.git", map[string]string{
			"hub/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [gpu.yaml]\n",
			"hub/gpu.yaml":           fmt.Sprintf("apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata: {name: gpu}\nspec: {maxRunners: %d}\n", maximum),
		})
	}
	define(2)
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	config := file("hub.yaml", fmt.Sprintf("sync:\n  - {name: fleet, url: %q, path: hub, interval: 1s, caFile: %q}\n", git.URL("fleet.git"), file("git.pem", string(git.CABundle()))))
	url := file("url", strings.Replace(server.TCP(database), "@", ":"+password+"@", 1))
	start := func(name string) servedHub {
		return startHub(t, filepath.Join(dir, "token"), "--data-dir", filepath.Join(dir, name), "--config", config, "--database-url-file", url)
	}
	defined := func(hub servedHub, maximum int32) {
		t.Helper()
		expect(t, fmt.Sprintf("the hub has pool gpu with at most %d runners", maximum), func(ctx context.Context) error {
			pool, err := hub.admin.GetPool(ctx, "gpu")
			if err == nil && pool.MaxRunners != maximum {
				err = fmt.Errorf("at most %d", pool.MaxRunners)
			}
			return err
		})
	}
	first := start("first")
	defined(first, 2) // so it has the sync
	second := start("second")

	ctx := t.Context()
	made, err := first.admin.CreateCredential(ctx, "gpu")
	must(t, err)
	_, err = first.admin.CreateProject(ctx, hubv1.CreateProjectRequest{Name: "app", Remote: git.URL("fleet.git")})
	must(t, err)
	pool, err := first.admin.GetPool(ctx, "gpu")
	must(t, err)
	_, err = first.admin.BindProject(ctx, "app", "pool:"+pool.ID)
	must(t, err)
	queue := func() hubv1.Run {
		run, err := first.admin.StartRun(ctx, hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, "")
		must(t, err)
		return run
	}
	running := queue()
	session := enrollAt(t, first, made.Secret, "runner-one")
	at := first.client(t, session)
	take(t, at.RunnerWatch(ctx), running.ID)
	must(t, at.RunStarted(ctx, running.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: time.Now()}))
	_, err = at.AppendLog(ctx, running.ID, 0, []byte("hello\n"))
	must(t, err)
	waiting := queue()

	killed := time.Now()
	log := first.kill()
	define(3)
	at = second.client(t, session)
	_, err = at.AppendLog(ctx, running.ID, 6, []byte("world\n"))
	must(t, err)
	finish(t, at, running.ID)
	other := second.client(t, enrollAt(t, second, made.Secret, "runner-two"))
	take(t, other.RunnerWatch(ctx), waiting.ID)
	must(t, other.RunStarted(ctx, waiting.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: time.Now()}))
	finish(t, other, waiting.ID)
	for _, id := range []string{running.ID, waiting.ID} {
		if run, err := second.admin.GetRun(ctx, id); err != nil || run.State != hubv1.RunSucceeded || run.Attempt != 1 {
			t.Errorf("the run is %+v, %v", run, err)
		}
	}
	text, err := second.admin.Logs(ctx, running.ID, 0, false)
	must(t, err)
	whole, err := io.ReadAll(text)
	if must(t, errors.Join(err, text.Close())); string(whole) != "hello\nworld\n" {
		t.Errorf("the log is %q", whole)
	}
	defined(second, 3)
	t.Logf("the second hub has the sync %s after the first was killed", time.Since(killed).Round(time.Millisecond))
	expect(t, "the dead hub is none", func(ctx context.Context) error {
		d, err := second.admin.Doctor(ctx)
		for _, f := range d.Findings {
			if f.ID == hubv1.FindingMembers && f.Found == "1 hub on the database" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("found %+v", d.Findings))
	})
	if log += second.stop(); strings.Contains(log, password) || strings.Contains(log, "postgres://") {
		t.Errorf("the database's URL is logged:\n%s", log)
	}
}

// enrollAt makes a runner at a hub and returns its session.
func enrollAt(t *testing.T, hub servedHub, credential, key string) string {
	t.Helper()
	minted, err := hub.client(t, credential).MintRunner(t.Context(), key)
	must(t, err)
	enrolled, err := hub.client(t, "").Enroll(t.Context(), hubv1.EnrollRequest{Token: minted.Token, Name: key, Build: "test", Features: []string{hubv1.FeatureRequirements}})
	must(t, err)
	return enrolled.Session
}

// take waits until a runner has a run.
func take(t *testing.T, watch iter.Seq2[hubv1.RunnerSnapshot, error], run string) {
	t.Helper()
	for snapshot, err := range watch {
		must(t, err)
		if snapshot.Run != nil && snapshot.Run.RunID == run {
			return
		}
	}
	t.Fatalf("the watch ends before run %s is handed out", run)
}

func finish(t *testing.T, runner *hubclient.Client, run string) {
	t.Helper()
	zero := int32(0)
	must(t, runner.RunResult(t.Context(), run, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero, FinishedAt: time.Now()}))
	must(t, runner.Bye(t.Context(), "done"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
