package hub_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
)

// hubPool is a HubPool document.
func hubPool(name string, maximum int, policy, more string) string {
	return fmt.Sprintf(`apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata: {name: %s, namespace: fleet}
spec:
  maxRunners: %d
  harness: command
  deletionPolicy: %s
%s`, name, maximum, policy, more)
}

// kustomization lists the files of the hub's half.
func kustomization(files ...string) string {
	return "resources:\n- " + strings.Join(files, "\n- ") + "\n"
}

// following is a hub that follows a repository whose hub half defines "demo"
// (Revoke) and "keep" (Orphan).
type following struct {
	*running
	git *fleettest.Server
}

func follow(t *testing.T, change func(*hub.SyncConfig)) *following {
	t.Helper()
	return followFrom(t, func(_ *fleettest.Server, config *hub.SyncConfig) {
		if change != nil {
			change(config)
		}
	})
}

// followFrom is follow for a change that needs to know the server.
func followFrom(t *testing.T, change func(*fleettest.Server, *hub.SyncConfig)) *following {
	t.Helper()
	f := &following{git: fleettest.Serve(t)}
	f.git.Create("fleet")
	f.commit(map[string]string{
		"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml"),
		"hub/demo.yaml":          hubPool("demo", 2, "Revoke", ""),
		"hub/keep.yaml":          hubPool("keep", 3, "Orphan", ""),
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	check(t, os.WriteFile(ca, f.git.CABundle(), 0o600))
	config := hub.SyncConfig{Name: "fleet", URL: f.git.URL("fleet"), Path: "hub", GitConfig: hub.GitConfig{CAFile: ca}, Interval: time.Minute}
	config.PruneLimit = &prunelimit.Limit{Count: 5} // one of its two pools would be more than a share
	change(f.git, &config)
	f.running = serve(t, func(o *hub.Options) { o.Syncs = []hub.SyncConfig{config} })
	return f
}

func (f *following) commit(files map[string]string) string { return f.git.Commit("fleet", files) }

// synced waits until the sync has dealt with a revision.
func (f *following) synced(revision string, state hubv1.SyncState) hubv1.Sync {
	f.t.Helper()
	must(f.t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	return until(f.t, f.admin.WatchSync(f.ctx(), "fleet"), "the sync has seen "+revision, func(s hubv1.Sync) bool {
		return s.LastAttemptedRevision == revision && s.State == state
	})
}

func (f *following) get(name string) hubv1.Pool {
	f.t.Helper()
	pool, err := f.admin.GetPool(f.ctx(), name)
	check(f.t, err)
	return pool
}

func TestGitDefinesPools(t *testing.T) {
	f := follow(t, nil)
	sync := until(t, f.admin.WatchSync(f.ctx(), "fleet"), "ready", func(s hubv1.Sync) bool { return s.State == hubv1.SyncReady })
	if !slices.Equal(sync.Pools, []string{"demo", "keep"}) || sync.LastAppliedRevision != sync.LastAttemptedRevision || sync.LastRun == nil {
		t.Fatalf("the sync is %+v", sync)
	}
	demo := f.get("demo")
	if demo.MaxRunners != 2 || demo.DeletionPolicy != "Revoke" || demo.Source == nil || demo.Source.Path != "hub/demo.yaml" ||
		demo.Source.Revision != sync.LastAppliedRevision || demo.Source.Repository != f.git.URL("fleet") || demo.Source.Digest == "" {
		t.Fatalf("the pool is %+v from %+v", demo, demo.Source)
	}

	five := int32(5)
	_, err := f.admin.UpdatePool(f.ctx(), "demo", "", hubv1.UpdatePoolRequest{MaxRunners: &five})
	p := wantCode(t, err, hubv1.CodePoolManagedByGit)
	if p.Source == nil || *p.Source != *demo.Source || !strings.Contains(p.Detail, "hub/demo.yaml at "+demo.Source.Revision) {
		t.Fatalf("refused with %q and %+v", p.Detail, p.Source)
	}

	revision := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 7, "Revoke", "")})
	f.synced(revision, hubv1.SyncReady)
	if again := f.get("demo"); again.MaxRunners != 7 || again.Source.Revision != revision || again.ID != demo.ID {
		t.Fatalf("the pool is %+v", again)
	}

	// A commit about something else is the one that the pools are defined at.
	revision = f.commit(map[string]string{"README.md": "pools"})
	f.synced(revision, hubv1.SyncReady)
	if again := f.get("demo"); again.MaxRunners != 7 || again.Source.Revision != revision {
		t.Fatalf("the pool is %+v from %+v", again, again.Source)
	}
}

func TestAPoolOfGitHasACredentialOnceOneIsMinted(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	credential, err := f.admin.CreateCredential(f.ctx(), "demo")
	check(t, err)
	snapshot, err := f.client(credential.Secret).PoolSnapshot(f.ctx())
	check(t, err)
	if snapshot.Pool.Name != "demo" {
		t.Fatalf("the credential is of pool %s", snapshot.Pool.Name)
	}
}

func (f *following) untilSynced() {
	f.t.Helper()
	until(f.t, f.admin.WatchSync(f.ctx(), "fleet"), "ready", func(s hubv1.Sync) bool { return s.State == hubv1.SyncReady })
}

func TestWhatCannotBeReadChangesNothing(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	good := f.get("demo")
	for name, c := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"a breach of the schema": {map[string]string{"hub/demo.yaml": hubPool("demo", -1, "Revoke", "")}, []string{"hub/demo.yaml:5", "spec.maxRunners"}},
		"an unknown field":       {map[string]string{"hub/demo.yaml": hubPool("demo", 4, "Revoke", "  maxRuners: 3\n")}, []string{"hub/demo.yaml", "maxRuners"}},
		"no YAML":                {map[string]string{"hub/demo.yaml": "spec: [\n"}, []string{"hub"}},
		"a missing file":         {map[string]string{"hub/demo.yaml": fleettest.Removed}, []string{"demo.yaml"}},
		"an empty build":         {map[string]string{"hub/kustomization.yaml": "resources: []\n"}, []string{"hub"}},
		"a missing path":         {map[string]string{"hub/kustomization.yaml": fleettest.Removed, "hub/demo.yaml": fleettest.Removed, "hub/keep.yaml": fleettest.Removed}, []string{"hub"}},
		"one pool twice": {map[string]string{"hub/keep.yaml": hubPool("keep", 3, "Orphan", "") + "---\n" +
			strings.Replace(hubPool("demo", 4, "Orphan", ""), "namespace: fleet", "namespace: other", 1)},
			[]string{"hub/keep.yaml:11", "hub/demo.yaml:1: pool demo is defined more than once", "pool demo is defined at hub/demo.yaml:1 already"}},
	} {
		t.Run(name, func(t *testing.T) {
			revision := f.commit(c.files)
			sync := f.synced(revision, hubv1.SyncFailed)
			for _, want := range c.says {
				if !strings.Contains(sync.Message, want) {
					t.Errorf("the message does not name %q: %s", want, sync.Message)
				}
			}
			if sync.LastAppliedRevision == revision {
				t.Error("the revision counts as applied")
			}
			if now := f.get("demo"); now.Revision != good.Revision || now.State != hubv1.PoolActive {
				t.Errorf("the pool is %+v", now)
			}
			if keep := f.get("keep"); keep.Source == nil {
				t.Error("the other pool was let go")
			}
			// Healed by what was there before.
			f.synced(f.commit(map[string]string{
				"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml"),
				"hub/demo.yaml":          hubPool("demo", 2, "Revoke", ""), "hub/keep.yaml": hubPool("keep", 3, "Orphan", ""),
			}), hubv1.SyncReady)
		})
	}
}

func TestAnUnreachableRepositoryIsTriedAgain(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	f.git.Close()
	must(t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	sync := until(t, f.admin.WatchSync(f.ctx(), "fleet"), "failed", func(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed })
	if sync.Message == "" || sync.LastAppliedRevision == "" || len(sync.Pools) != 2 {
		t.Fatalf("the sync is %+v", sync)
	}
	// It tries again by itself, long before its interval.
	first := *sync.LastRun
	f.clock.Step(2 * time.Second)
	until(t, f.admin.WatchSync(f.ctx(), "fleet"), "tried again", func(s hubv1.Sync) bool { return s.LastRun.After(first) })
	if f.get("demo").State != hubv1.PoolActive {
		t.Fatal("the pool went with the repository")
	}
}

func TestCeilings(t *testing.T) {
	f := follow(t, func(c *hub.SyncConfig) { c.Allow = hubv1.Ceiling{Names: []string{"de*", "keep"}, MaxRunners: 3} })
	f.untilSynced()
	applied := f.get("demo").Source.Revision
	revision := f.commit(map[string]string{
		"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml", "other.yaml"), "hub/keep.yaml": hubPool("keep", 1, "Orphan", ""),
		"hub/demo.yaml": hubPool("demo", 4, "Revoke", ""), "hub/other.yaml": hubPool("other", 1, "Orphan", ""),
	})
	sync := f.synced(revision, hubv1.SyncFailed)
	for _, want := range []string{"applied 1 of 3 pools of " + revision[:12], "hub/demo.yaml:1", "above 3", "hub/other.yaml:1", "de*, keep"} {
		if !strings.Contains(sync.Message, want) {
			t.Errorf("the message does not name %q: %s", want, sync.Message)
		}
	}
	if demo := f.get("demo"); demo.MaxRunners != 2 || demo.Source == nil || demo.Source.Revision != applied {
		t.Errorf("what is held back is %+v from %+v", demo.PoolDefinition, demo.Source)
	}
	if keep := f.get("keep"); keep.MaxRunners != 1 || keep.Source.Revision != revision {
		t.Errorf("its neighbour is %+v from %+v", keep.PoolDefinition, keep.Source)
	}
}

// A document that is not sound keeps back itself alone, and every problem is said.
func TestADocumentWithAProblemHoldsBackItselfAlone(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	was := f.get("demo")
	files := map[string]string{
		"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml", "third.yaml", "fourth.yaml", "service.yaml"),
		"hub/demo.yaml":          hubPool("demo", -1, "Revoke", ""), "hub/keep.yaml": hubPool("keep", 9, "Orphan", ""),
		"hub/third.yaml": hubPool("third", 1, "Orphan", "  maxRuners: 3\n"), "hub/fourth.yaml": hubPool("fourth", 4, "Orphan", ""),
		"hub/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: fleet}\n",
	}
	revision := f.commit(files)
	sync := f.synced(revision, hubv1.SyncFailed)
	for _, want := range []string{"applied 2 of 4 pools of " + revision[:12] + "; held back: ", "hub/demo.yaml:5", "spec.maxRunners", "hub/third.yaml", "maxRuners", "not applied by the hub, and not sound: hub/service.yaml"} {
		if !strings.Contains(sync.Message, want) {
			t.Errorf("the message does not say %q: %s", want, sync.Message)
		}
	}
	if sync.LastAppliedRevision == revision || len(sync.HeldBack) != 2 || sync.HeldBack[0].Pool != "demo" || sync.HeldBack[0].Path != "hub/demo.yaml" || len(sync.HeldBack[0].Problems) == 0 {
		t.Errorf("the sync is %+v", sync)
	}
	if now := f.get("demo"); now.Revision != was.Revision || now.State != hubv1.PoolActive {
		t.Errorf("what is held back is %+v", now)
	}
	drift := f.untilPool(was.ID, "its watch says that it is held back", func(p hubv1.Pool) bool { return len(p.Drift) > 0 }).Drift
	if len(drift) != 1 || drift[0].Cause != hubv1.CauseCommitNotApplied || drift[0].Path != "" || !strings.Contains(drift[0].Message, "spec.maxRunners") || drift[0].Since.IsZero() {
		t.Errorf("its drift is %+v", drift)
	}
	f.clock.Step(time.Minute)
	f.synced(revision, hubv1.SyncFailed)
	if again := f.get("demo").Drift; len(again) != 1 || !again[0].Since.Equal(drift[0].Since) {
		t.Errorf("looked at again, its drift is %+v", again)
	}
	if f.get("keep").MaxRunners != 9 || len(f.get("keep").Drift) > 0 || f.get("fourth").MaxRunners != 4 {
		t.Error("the others did not land")
	}
	files["hub/demo.yaml"], files["hub/third.yaml"], files["hub/service.yaml"] = hubPool("demo", 5, "Revoke", ""), hubPool("third", 1, "Orphan", ""), "# nothing\n"
	revision = f.commit(files)
	if sync := f.synced(revision, hubv1.SyncReady); sync.LastAppliedRevision != revision || len(sync.HeldBack) != 0 {
		t.Errorf("healed, the sync is %+v", sync)
	}
	if f.get("demo").MaxRunners != 5 || f.get("third").MaxRunners != 1 {
		t.Error("what was held back did not land")
	}
}

func TestGitsCordonStandsBesideTheOperators(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	must(t)(f.admin.Cordon(f.ctx(), "demo", "mine"))
	// Git has no opinion, so it does not fight the operator.
	f.synced(f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 3, "Revoke", "")}), hubv1.SyncReady)
	if c := f.get("demo").Cordon; c == nil || c.Reason != "mine" || c.By != "user:admin" {
		t.Fatalf("the cordon is %+v", c)
	}
	f.synced(f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 3, "Revoke", "  cordon: {reason: from Git}\n")}), hubv1.SyncReady)
	if c := f.get("demo").Cordon; c == nil || c.Reason != "from Git" || c.By != "git" {
		t.Fatalf("the cordon is %+v", c)
	}
	_, err := f.admin.Uncordon(f.ctx(), "demo")
	wantCode(t, err, hubv1.CodePoolManagedByGit)
	f.synced(f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 3, "Revoke", "")}), hubv1.SyncReady)
	if c := f.get("demo").Cordon; c == nil || c.Reason != "mine" {
		t.Fatalf("the operator's cordon is %+v", c)
	}
	pool, err := f.admin.Uncordon(f.ctx(), "demo")
	check(t, err)
	if pool.Cordon != nil {
		t.Fatalf("the cordon is %+v", pool.Cordon)
	}
}

func TestARemovedPoolIsLetGo(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	before := f.get("keep")
	f.synced(f.commit(map[string]string{"hub/kustomization.yaml": kustomization("demo.yaml")}), hubv1.SyncReady)
	pool := f.get("keep")
	if pool.State != hubv1.PoolActive || pool.Source != nil {
		t.Fatalf("the pool is %s, from %+v", pool.State, pool.Source)
	}
	nine := int32(9)
	must(t)(f.admin.UpdatePool(f.ctx(), "keep", hubclient.ETag(pool), hubv1.UpdatePoolRequest{MaxRunners: &nine}))
	// It comes back and is Git's again.
	f.synced(f.commit(map[string]string{"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml")}), hubv1.SyncReady)
	if again := f.get("keep"); again.ID != before.ID || again.MaxRunners != 3 || again.Source == nil {
		t.Fatalf("the pool is %+v", again)
	}
}

func TestARemovedPoolIsRevokedWhenItsRunIsDone(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	pool := f.get("demo")
	credential, err := f.admin.CreateCredential(f.ctx(), "demo")
	check(t, err)
	controller := f.client(credential.Secret)
	f.project("app", pool)
	running := f.run("app")
	_, runner := f.enroll(controller, "runner-one")
	until(t, runner.RunnerWatch(f.ctx()), "the run is there", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	check(t, runner.RunStarted(f.ctx(), running.ID, hubv1.StartedRequest{Attempt: 1, StartedAt: f.clock.Now()}))
	waiting := f.run("app")

	removed := f.commit(map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml")})
	f.synced(removed, hubv1.SyncReady)
	if now := f.get("demo"); now.State != hubv1.PoolDraining || now.Runners.Busy != 1 {
		t.Fatalf("the pool is %s with %+v", now.State, now.Runners)
	}
	left, err := f.admin.GetRun(f.ctx(), waiting.ID)
	check(t, err)
	if left.State != hubv1.RunCancelled || !strings.Contains(left.Reason, "removed from Git") {
		t.Fatalf("the waiting run is %s: %s", left.State, left.Reason)
	}
	_, err = controller.MintRunner(f.ctx(), "runner-two")
	wantCode(t, err, hubv1.CodePoolRevoked)

	// The document comes back too early: it waits for the drain.
	back := f.commit(map[string]string{"hub/kustomization.yaml": kustomization("demo.yaml", "keep.yaml")})
	if sync := f.synced(back, hubv1.SyncPending); !strings.Contains(sync.Message, "demo come back") {
		t.Fatalf("the sync says %q", sync.Message)
	}
	zero := int32(0)
	check(t, runner.RunResult(f.ctx(), running.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero, FinishedAt: f.clock.Now()}))
	f.untilRun(running.ID, hubv1.RunSucceeded)
	check(t, runner.Bye(f.ctx(), "done"))
	again := f.untilPool(pool.ID, "the pool is back", func(p hubv1.Pool) bool { return p.State == hubv1.PoolActive })
	if again.ID != pool.ID || again.Source == nil || again.Source.Revision != back {
		t.Fatalf("the pool is %+v", again)
	}
	_, err = controller.PoolSnapshot(f.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)

	// Gone for good, with nobody on it.
	f.synced(f.commit(map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml")}), hubv1.SyncReady)
	pools, err := f.admin.ListPools(f.ctx())
	check(t, err)
	all, err := f.admin.ListAllPools(f.ctx())
	check(t, err)
	if len(pools) != 1 || len(all) != 2 || all[0].State != hubv1.PoolRevoked {
		t.Fatalf("listed %d and %d pools", len(pools), len(all))
	}
}

func TestAPoolRevokedByHandStaysSoUntilItsDocumentChanges(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	must(t)(f.admin.RevokePool(f.ctx(), "demo"))
	revision := f.commit(map[string]string{"README.md": "nothing new"})
	if sync := f.synced(revision, hubv1.SyncReady); !strings.Contains(sync.Message, "revoked by hand") {
		t.Fatalf("the sync says %q", sync.Message)
	}
	if f.get("demo").State != hubv1.PoolRevoked {
		t.Fatal("the pool came back by itself")
	}
	f.synced(f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 9, "Revoke", "")}), hubv1.SyncReady)
	if pool := f.get("demo"); pool.State != hubv1.PoolActive || pool.MaxRunners != 9 {
		t.Fatalf("the pool is %s", pool.State)
	}
}

func TestASyncThatIsNotConfiguredAnyMoreLetsGo(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	f.stop()
	again := serveIn(t, f.dir, nil)
	pool, err := again.admin.GetPool(again.ctx(), "demo")
	check(t, err)
	if pool.State != hubv1.PoolActive || pool.Source != nil {
		t.Fatalf("the pool is %s from %+v", pool.State, pool.Source)
	}
	syncs, err := again.admin.ListSyncs(again.ctx())
	check(t, err)
	if len(syncs) != 0 {
		t.Fatalf("there are still %d syncs", len(syncs))
	}
}

// A HubPool under a new name that says what it was is the pool that it was.
// Who adopts the pools that a hub has wants to see first what Git would change.
func TestAnObservedHubPoolIsCompared(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	was := f.get("demo")
	observed := strings.Replace(hubPool("demo", 7, "Revoke", ""), "metadata: {", "metadata: {annotations: {cloop.dev/observe: 'true'}, ", 1)
	revision := f.commit(map[string]string{"hub/demo.yaml": observed})
	sync := f.synced(revision, hubv1.SyncReady)
	if !strings.Contains(sync.Message, "; 1 more is only compared") || len(sync.Observed) != 1 || sync.Observed[0].Pool != "demo" || sync.Observed[0].Definition.MaxRunners != 7 || sync.Observed[0].Since.IsZero() {
		t.Errorf("the sync is %+v", sync)
	}
	now := f.get("demo")
	if now.MaxRunners != was.MaxRunners || now.Source != nil {
		t.Errorf("the pool is %+v", now)
	}
	drift := slices.IndexFunc(now.Drift, func(d hubv1.Drift) bool { return d.Path == "/spec/maxRunners" })
	if drift < 0 || now.Drift[drift].Git != "7" || now.Drift[drift].Outcome != hubv1.OutcomeObserved || now.Drift[drift].Cause != hubv1.CauseCommitNotApplied {
		t.Fatalf("its drift is %+v", now.Drift)
	}
	// An operator may change it, and the comparison is always with what there is.
	most := int32(7)
	_, err := f.admin.UpdatePool(f.ctx(), "demo", "", hubv1.UpdatePoolRequest{MaxRunners: &most})
	check(t, err)
	if drift := f.get("demo").Drift; slices.ContainsFunc(drift, func(d hubv1.Drift) bool { return d.Path == "/spec/maxRunners" }) {
		t.Errorf("its drift is %+v", drift)
	}
}

func TestAHubPoolThatWasMovedIsThePoolThatItWas(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	was := f.get("demo")
	credential, err := f.admin.CreateCredential(f.ctx(), "demo")
	check(t, err)
	moved := strings.Replace(hubPool("big", 2, "Revoke", ""), "metadata: {", "metadata: {annotations: {cloop.dev/moved-from: fleet/demo}, ", 1)
	revision := f.commit(map[string]string{"hub/demo.yaml": moved})
	if sync := f.synced(revision, hubv1.SyncReady); !strings.Contains(sync.Message, "demo is big now") {
		t.Errorf("the sync says %q", sync.Message)
	}
	now := f.get("big")
	if now.ID != was.ID || now.State != hubv1.PoolActive || now.Source.Revision != revision {
		t.Errorf("the pool is %+v", now)
	}
	if snapshot, err := f.client(credential.Secret).PoolSnapshot(f.ctx()); err != nil || snapshot.Pool.Name != "big" {
		t.Errorf("its controller sees %+v %v", snapshot.Pool, err)
	}
}
