package diff_test

import (
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/fleettest"
)

// Both revisions are compared as they come to Flux, each by its own patterns.
func TestWhatFluxLeavesOutIsNotCompared(t *testing.T) {
	t.Parallel()
	const (
		source = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: fleet, namespace: flux-system}\nspec:\n  url: https://git.example.com/fleet.git\n"
		sync   = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec: {path: ./clusters/eu, prune: true, interval: 10m, sourceRef: {kind: GitRepository, name: fleet}}\n"
	)
	files := func(more map[string]string) map[string]string {
		all := map[string]string{"flux/source.yaml": source, "flux/sync.yaml": sync, "clusters/eu/gpu.yaml": executorPool("gpu", "maxRunners: 1"), "clusters/eu/draft.yaml": executorPool("draft", "maxRunners: 1")}
		for name, text := range more {
			all[name] = text
		}
		return all
	}
	for _, test := range []struct {
		name          string
		before, after map[string]string
		want          string
	}{
		{"a pattern comes", files(nil), map[string]string{".sourceignore": "draft.yaml\n"}, "clusters/eu: ExecutorPool draft removed"},
		{"a pattern goes", files(map[string]string{".sourceignore": "draft.yaml\n"}), map[string]string{".sourceignore": fleettest.Removed}, "clusters/eu: ExecutorPool draft added"},
		{"a pattern of a directory", files(map[string]string{"clusters/eu/.sourceignore": "draft.yaml\n"}), map[string]string{"clusters/eu/.sourceignore": "# none\n"}, "clusters/eu: ExecutorPool draft added"},
		{"spec.ignore comes", files(nil), map[string]string{"flux/source.yaml": source + "  ignore: draft.yaml\n"}, "clusters/eu: ExecutorPool draft removed"},
		{"spec.ignore takes it in again", files(map[string]string{".sourceignore": "draft.yaml\n"}), map[string]string{"flux/source.yaml": source + "  ignore: \"!draft.yaml\"\n"}, "clusters/eu: ExecutorPool draft added"},
		{"what is left out changes", files(map[string]string{".sourceignore": "draft.yaml\n"}), map[string]string{"clusters/eu/draft.yaml": executorPool("draft", "maxRunners: 2")}, ""},
		{"a pattern that says nothing of it", files(map[string]string{"clusters/eu/.github/.sourceignore": "x\n"}), map[string]string{".sourceignore": "README.md\n"}, ""},
		{"the last of the patterns goes", files(map[string]string{".github/.sourceignore": "x\n", "clusters/eu/cloudbuild.yaml": executorPool("built", "maxRunners: 1")}), map[string]string{".github/.sourceignore": fleettest.Removed}, "clusters/eu: ExecutorPool built removed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t, test.before)
			r.write(test.after)
			report, err := r.compare("HEAD", "clusters")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, overlay := range report.Overlays {
				for _, failure := range overlay.Failures {
					got = append(got, overlay.Path+": "+failure.Problems[0].String())
				}
				for _, o := range overlay.Objects {
					got = append(got, overlay.Path+": "+strings.Join([]string{o.Kind, o.Name, o.Change}, " "))
				}
			}
			slices.Sort(got)
			if shown := strings.Join(got, "; "); shown != test.want {
				t.Errorf("%s\nwant %s", shown, test.want)
			}
		})
	}
}
