package cli_test

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

const anotherRepository = "https://git.example.com/two.git"

// ofAnother is a PoolSync with the path of poolSync in another repository, and a pool that
// it has applied.
func ofAnother(cluster *stubCluster, path string) {
	two := poolSync(metav1.ConditionTrue, "applied")
	two.Name, two.Spec.Source.Git.URL, two.Spec.Path = "two", anotherRepository, path
	pool := liveGPU(9)
	pool.Name, pool.Labels = "cpu", map[string]string{v1alpha1.LabelPoolSyncName: "two", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"}
	cluster.syncs, cluster.pools = append(cluster.syncs, two), append(cluster.pools, pool)
}

// What follows another repository is named and left out, whatever its path is called.
func TestDriftIsOfThisRepository(t *testing.T) {
	const server = "ssh://git@git.example.com/fleet.git"
	gitSource := map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": map[string]any{"namespace": "cloop-fleet", "name": "pools"}, "spec": map[string]any{"url": anotherRepository}}
	for name, test := range map[string]struct {
		// remote beside the directory that it was pushed to; empty: none at all.
		remote string
		change func(head string, cluster *stubCluster)
		code   int
		says   []string
		none   []string
	}{
		"one of two": {server, func(_ string, c *stubCluster) { ofAnother(c, "./clusters/eu") }, 0,
			[]string{"No drift: 1 pool compared.", "note: PoolSync cloop-fleet/two of cluster eu applies ./clusters/eu of another repository, " + anotherRepository + ", so what it has there was not compared with Git"}, nil},
		"one of two, with a path that is not here": {server, func(_ string, c *stubCluster) { ofAnother(c, "./c") }, 0,
			[]string{"No drift: 1 pool compared.", "applies ./c of another repository"}, nil},
		"the own one drifts": {server, func(_ string, c *stubCluster) { ofAnother(c, "./c"); c.pools[0].Spec.MaxRunners = 3 }, 1,
			[]string{"/spec/maxRunners  4    -    3", "applies ./c of another repository"}, []string{"cpu"}},
		"one that follows a revision with another path": {server, func(_ string, c *stubCluster) { ofAnother(c, "./c"); c.syncs[1].Spec.Source.Git.URL = server }, 2,
			[]string{"No drift: 1 pool compared.", "cloop-fleet/two of cluster eu applies ./c of " + server + ", which is not in what is compared, so what it has there was not compared with Git",
				"not everything was compared, and the rest agrees: the notes name what was not"}, nil},
		"the same, and the own one drifts": {server, func(_ string, c *stubCluster) {
			ofAnother(c, "./c")
			c.syncs[1].Spec.Source.Git.URL, c.pools[0].Spec.MaxRunners = server, 3
		}, 1, []string{"/spec/maxRunners  4    -    3", "which is not in what is compared"}, []string{"cpu"}},
		"only one that follows a revision with another path": {server, func(_ string, c *stubCluster) { c.syncs[0].Spec.Path = "./c"; c.syncs[0].Spec.Source.Git.URL = server }, 2,
			[]string{"what PoolSync cloop-fleet/fleet of cluster eu applies, ./c of " + server + ", is not in what is compared: add the path"}, nil},
		"nothing of this one": {server, func(_ string, c *stubCluster) {
			ofAnother(c, "./clusters/eu")
			c.syncs, c.pools = c.syncs[1:], c.pools[1:]
		}, 2,
			[]string{"applies ./clusters/eu of another repository", "nothing that the hub and the clusters follow is of this repository"}, []string{"is not known"}},
		"a source of Flux of another one": {server, func(_ string, c *stubCluster) {
			ofAnother(c, "./clusters/eu")
			c.syncs[1].Spec.Source, c.syncs[1].Spec.SourceRef = v1alpha1.PoolSyncSource{}, &v1alpha1.SourceReference{Kind: v1alpha1.SourceGitRepository, Name: "pools"}
			c.objects = map[string]map[string]any{"/namespaces/cloop-fleet/gitrepositories/pools": gitSource}
		}, 0, []string{"No drift: 1 pool compared.", "cloop-fleet/two of cluster eu applies ./clusters/eu of another repository, " + anotherRepository}, nil},
		"an artifact of Flux, of which nothing tells": {server, func(_ string, c *stubCluster) {
			c.syncs[0].Spec.Source, c.syncs[0].Spec.SourceRef = v1alpha1.PoolSyncSource{}, &v1alpha1.SourceReference{Kind: "OCIRepository", Name: "pools"}
			c.syncs[0].Status.LastAppliedRevision = "latest@sha256:" + strings.Repeat("ab", 32)
		}, 0, []string{"No drift: 1 pool compared."}, []string{"another repository", "no remote"}},
		"a mirror": {server, func(head string, c *stubCluster) {
			c.syncs[0].Spec.Source.Git.URL, c.syncs[0].Status.LastAppliedRevision = "https://mirror.example.com/pools.git", "main@sha1:"+head
		}, 0, []string{"No drift: 1 pool compared."}, []string{"another repository"}},
		"another address that nothing of this was seen at": {server, func(_ string, c *stubCluster) {
			c.syncs[0].Spec.Source.Git.URL = "https://mirror.example.com/pools.git"
		}, 2, []string{"of another repository, https://mirror.example.com/pools.git", "git remote add"}, nil},
		"no remote": {"", func(string, *stubCluster) {}, 0,
			[]string{"No drift: 1 pool compared.", "note: this clone has no remote at a server, so nothing tells whether it is the repository of PoolSync cloop-fleet/fleet of cluster eu: it was taken for that"}, nil},
		"no remote, and one that has a commit of this": {"", func(head string, c *stubCluster) {
			ofAnother(c, "./clusters/eu")
			c.syncs[0].Status.LastAppliedRevision = "main@sha1:" + head
		}, 0, []string{"No drift: 1 pool compared.", "cloop-fleet/two of cluster eu applies ./clusters/eu of another repository"}, []string{"no remote at a server"}},
		"no remote, and a path that is not here": {"", func(_ string, c *stubCluster) { ofAnother(c, "./c") }, 0,
			[]string{"No drift: 1 pool compared.", "cloop-fleet/two of cluster eu applies ./c of " + anotherRepository + ", which is not in this repository"}, nil},
		"a Kustomization of another one": {server, func(_ string, c *stubCluster) {
			flux := besideFlux(9, strings.Repeat("ab", 20))
			flux.pools[0].Name = "cpu"
			c.pools, c.objects = append(c.pools, flux.pools...), flux.objects
			source := maps.Clone(gitSource)
			source["metadata"] = map[string]any{"namespace": "flux-system", "name": "fleet"}
			c.objects[sourceAt] = source
			c.objects[kustomizationAt]["spec"].(map[string]any)["kubeConfig"] = map[string]any{"secretRef": map[string]any{"name": "us"}}
		}, 0, []string{"No drift: 1 pool compared.", "Kustomization flux-system/fleet of cluster eu applies pools of another repository"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := clonedFleet(t)
			noHub(t)
			if test.remote != "" {
				gitIn(t, dir, "remote", "add", "forge", test.remote)
			} else {
				gitIn(t, dir, "remote", "remove", "origin")
			}
			cluster := &stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}, pools: []v1alpha1.ExecutorPool{liveGPU(4)}}
			cluster.pools[0].Labels = map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"}
			test.change(gitIn(t, dir, "rev-parse", "HEAD"), cluster)
			cluster.serve(t)
			wantDrift(t, test.code, test.says, test.none)
		})
	}
}

func wantDrift(t *testing.T, code int, says, none []string) {
	t.Helper()
	got := cloop(t, "fleet", "drift", "--cluster", "eu")
	said := got.stdout + got.stderr
	if got.code != code {
		t.Errorf("exit code %d, want %d: %s", got.code, code, said)
	}
	for _, text := range says {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q:\n%s", text, said)
		}
	}
	for _, text := range none {
		if strings.Contains(said, text) {
			t.Errorf("it says %q:\n%s", text, said)
		}
	}
}

// Two syncs of the hub may have one path, each of its own repository.
func TestDriftOfTheHubIsOfThisRepository(t *testing.T) {
	pool := func(name, sync, repository string, maxRunners int32) hubv1.Pool {
		return hubv1.Pool{ID: name, Name: name, State: hubv1.PoolActive, Source: &hubv1.Provenance{Sync: sync, Repository: repository, Path: "hub"},
			PoolDefinition: hubv1.PoolDefinition{MaxRunners: maxRunners, Harness: "command", DeletionPolicy: "Orphan"}}
	}
	two := hubSync(hubv1.SyncReady)
	two.Name, two.Repository = "two", anotherRepository
	own, cpu := pool("gpu", "fleet", "https://git.example.com/fleet.git", 4), pool("cpu", "two", anotherRepository, 2)
	const left = "note: sync two of the hub applies hub of another repository, " + anotherRepository + ", so what it has there was not compared with Git"
	for name, test := range map[string]struct {
		syncs []hubv1.Sync
		pools []hubv1.Pool
		code  int
		says  []string
	}{
		"both":                   {[]hubv1.Sync{hubSync(hubv1.SyncReady), two}, []hubv1.Pool{own, cpu}, 0, []string{"No drift: 1 pool compared.", left}},
		"the own one differs":    {[]hubv1.Sync{hubSync(hubv1.SyncReady), two}, []hubv1.Pool{pool("gpu", "fleet", "", 3), cpu}, 1, []string{"/spec/maxRunners  4    3", left}},
		"the other one alone":    {[]hubv1.Sync{two}, []hubv1.Pool{cpu}, 2, []string{left, "nothing that the hub and the clusters follow is of this repository"}},
		"its sync is taken away": {[]hubv1.Sync{hubSync(hubv1.SyncReady)}, []hubv1.Pool{own, cpu}, 0, []string{"No drift: 1 pool compared.", left}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := clonedFleet(t)
			gitIn(t, dir, "remote", "add", "forge", "git@git.example.com:fleet.git")
			stubHub(t, map[string]any{"GET /api/v1/syncs": hubv1.SyncList{Items: test.syncs}, "GET /api/v1/pools": hubv1.PoolList{Items: test.pools}})
			(&stubCluster{}).serve(t)
			wantDrift(t, test.code, test.says, nil)
		})
	}
}
