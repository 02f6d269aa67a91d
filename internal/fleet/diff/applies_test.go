package diff_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/diff"
)

// What the cluster's own PoolSync will not do is not counted, and is said.
func TestImpactIsWhatTheClusterDoes(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	r.git("remote", "add", "origin", "git@git.example.com:platform/fleet.git")
	head := r.git("rev-parse", "HEAD")
	lowered := map[string]string{"pools/base/gpu.yaml": executorPool("gpu", "minRunners: 4\n  maxRunners: 1")}
	gone := map[string]string{"clusters/eu/kustomization.yaml": "resources: [cpu.yaml]\n", "clusters/eu/cpu.yaml": executorPool("cpu", "maxRunners: 1")}
	sync := func(change func(*v1alpha1.PoolSync)) func(*diff.LiveCluster) {
		return func(c *diff.LiveCluster) { change(&c.Syncs[0]) }
	}
	until := metav1.NewTime(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	const none, eu = "", "eu: retires 3 idle runners, touches 0 busy"
	about := strings.Replace(eu, "retires", "about: retires", 1)
	for _, test := range []struct {
		name    string
		files   map[string]string
		cluster func(*diff.LiveCluster)
		want    string
		note    string
	}{
		{"as it is", lowered, func(*diff.LiveCluster) {}, eu, ""},
		{"by https", lowered, sync(func(s *v1alpha1.PoolSync) { s.Spec.Source.Git.URL = "https://git.example.com/platform/fleet" }), eu, ""},
		{"suspended", lowered, sync(func(s *v1alpha1.PoolSync) { s.Spec.Suspend = true }), none, "PoolSync fleet/fleet of cluster eu is suspended: nothing happens there before it is resumed"},
		{"suspended for a while", lowered, sync(func(s *v1alpha1.PoolSync) { s.Spec.Suspend, s.Spec.SuspendUntil = true, &until }), none, "is suspended until 2026-05-01T00:00:00Z:"},
		{"another repository", lowered, sync(func(s *v1alpha1.PoolSync) { s.Spec.Source.Git.URL = "https://git.example.com/other/repo.git" }), none,
			"PoolSync fleet/fleet of cluster eu applies ./clusters/eu of another repository, https://git.example.com/other/repo.git, so it has no part in this"},
		{"a mirror", lowered, sync(func(s *v1alpha1.PoolSync) {
			s.Spec.Source.Git.URL, s.Status.LastAppliedRevision = "https://mirror.example.com/fleet.git", "main@sha1:"+head
		}), eu, ""},
		{"a tag", lowered, sync(func(s *v1alpha1.PoolSync) { s.Spec.Source.Git.Ref.Tag = "v1" }), eu, "follows tags: a change counts there once a tag that it follows has it"},
		{"ignored", lowered, sync(func(s *v1alpha1.PoolSync) {
			s.Spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/maxRunners"}}}
		}), "eu: retires 0 idle runners, touches 0 busy", "leaves /spec/maxRunners of cloop-pools/gpu to the cluster, by its spec.drift.ignore"},
		{"it goes", gone, func(*diff.LiveCluster) {}, "eu: retires 4 idle runners, touches 0 busy", ""},
		{"it goes and nothing prunes", gone, sync(func(s *v1alpha1.PoolSync) { s.Spec.Prune = false }), none, "PoolSync fleet/fleet of cluster eu does not prune: cloop-pools/gpu stays there as it is"},
		{"Flux", lowered, func(c *diff.LiveCluster) {
			c.Syncs[0].Spec.Path = "./quota"
			c.Pools[0].Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
		}, about, "Kustomization flux-system/apps of Flux applies cloop-pools/gpu in cluster eu: whether it is suspended, and whether it prunes, was not read"},
		{"somebody", lowered, func(c *diff.LiveCluster) { c.Syncs[0].Spec.Path = "./quota" }, about, "no PoolSync of cluster eu applies cloop-pools/gpu: what does is not known"},
		{"another PoolSync", lowered, func(c *diff.LiveCluster) {
			c.Syncs[0].Spec.Path = "./quota"
			c.Pools[0].Labels = map[string]string{v1alpha1.LabelPoolSyncName: "other", v1alpha1.LabelPoolSyncNamespace: "fleet"}
		}, none, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.clean()
			r.write(test.files)
			report, err := r.compare("HEAD")
			if err != nil {
				t.Fatal(err)
			}
			cluster := diff.LiveCluster{Name: "eu", Syncs: []v1alpha1.PoolSync{{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "fleet"},
				Spec: v1alpha1.PoolSyncSpec{Path: "./clusters/eu", Prune: true, Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: "ssh://git@git.example.com/platform/fleet.git"}}}}}}
			pool := v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "cloop-pools"}}
			pool.Spec.MinRunners, pool.Spec.MaxRunners = 4, 4
			pool.Status = v1alpha1.ExecutorPoolStatus{Runners: 4, Idle: 4, Hub: &v1alpha1.HubPoolReference{Name: "gpu", MaxRunners: 8}}
			cluster.Pools = []v1alpha1.ExecutorPool{pool}
			test.cluster(&cluster)
			report.AddImpact(diff.Live{Clusters: []diff.LiveCluster{cluster}, Hub: fullyRead(4)})
			if got := strings.Join(impacts(report), "\n"); got != test.want {
				t.Errorf("the impact is %q, want %q", got, test.want)
			}
			if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}

// fullyRead is a hub with pool gpu, whose runners are all idle.
func fullyRead(idle int32) *diff.LiveHub {
	return &diff.LiveHub{Pools: []hubv1.Pool{{Name: "gpu", State: hubv1.PoolActive,
		PoolDefinition: hubv1.PoolDefinition{MaxRunners: 8}, Runners: hubv1.RunnerCounts{Idle: idle}}}}
}
