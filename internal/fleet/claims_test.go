package fleet_test

import (
	"fmt"
	"slices"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// At most one of the documents that say that they were one is taken for it under another
// name.
func TestTwoDocumentsThatWereOne(t *testing.T) {
	hub := func(namespace, name, annotations, spec string) string {
		return fmt.Sprintf("apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata: {name: %s, namespace: %s, annotations: {%s}}\nspec: {maxRunners: 4%s}\n---\n", name, namespace, annotations, spec)
	}
	executor := func(namespace, name, annotations string) string {
		return fmt.Sprintf("apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: %s, namespace: %s, annotations: {%s}}\n"+
			"spec: {hubURL: \"https://h\", poolCredentialSecretRef: {name: s}, maxRunners: 4}\n---\n", name, namespace, annotations)
	}
	const (
		fromA  = `cloop.dev/moved-from: a`
		pushed = `, hub: {url: "https://h", tokenSecretRef: {name: t, key: token}}, credential: {secretRef: {name: c}}`
	)
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"two of the hub": {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + hub("f", "c", fromA, "")},
			[]string{"p/a.yaml:8:49: HubPool f/c: metadata.annotations[cloop.dev/moved-from]: it says that it was HubPool a, and so does HubPool f/b at p/a.yaml:1"}},
		"two of the hub, of two namespaces": {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + hub("g", "c", "cloop.dev/moved-from: x/a", "")},
			[]string{"p/a.yaml:8:49: HubPool g/c: metadata.annotations[cloop.dev/moved-from]: it says that it was HubPool a, and so does HubPool f/b at p/a.yaml:1"}},
		"three of a cluster": {map[string]string{"p/a.yaml": executor("f", "b", fromA) + executor("f", "c", fromA) + executor("g", "d", "cloop.dev/moved-from: f/a")},
			[]string{"p/a.yaml:8:49: ExecutorPool f/c: metadata.annotations[cloop.dev/moved-from]: it says that it was ExecutorPool f/a, and so does ExecutorPool f/b at p/a.yaml:1",
				"p/a.yaml:13:49: ExecutorPool g/d: metadata.annotations[cloop.dev/moved-from]: it says that it was ExecutorPool f/a, and so does ExecutorPool f/b at p/a.yaml:1"}},
		"two that a cluster pushes": {map[string]string{"p/a.yaml": hub("f", "b", fromA, pushed) + hub("f", "c", fromA, pushed)},
			[]string{"p/a.yaml:8:49: HubPool f/c: metadata.annotations[cloop.dev/moved-from]: it says that it was HubPool f/a, and so does HubPool f/b at p/a.yaml:1"}},
		"two that a cluster pushes, of two namespaces": {map[string]string{"p/a.yaml": hub("f", "b", fromA, pushed) + hub("g", "c", fromA, pushed)}, nil},
		"of two namespaces":                            {map[string]string{"p/a.yaml": executor("f", "b", fromA) + executor("g", "c", fromA)}, nil},
		"of two kinds":                                 {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + executor("f", "b", fromA)}, nil},
		"what they were is still there":                {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + hub("f", "c", fromA, "") + hub("f", "a", "", "")}, nil},
		"one is only compared":                         {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + hub("f", "c", fromA+`, cloop.dev/observe: "true"`, "")}, nil},
		"one after the other":                          {map[string]string{"p/a.yaml": hub("f", "b", fromA, "") + hub("f", "c", "cloop.dev/moved-from: b", "")}, nil},
		"of two roots": {map[string]string{"p/eu/kustomization.yaml": "resources: [a.yaml]\n", "p/eu/a.yaml": executor("f", "b", fromA),
			"p/us/kustomization.yaml": "resources: [a.yaml]\n", "p/us/a.yaml": executor("f", "c", fromA)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				if p.Rule == fleet.RuleMovedFromTwice {
					got = append(got, fmt.Sprintf("%s:%d:%d: %s: %s: %s", p.File, p.Line, p.Column, p.Object, p.Path, p.Message))
				} else if p.Rule != fleet.RuleHubPoolWithoutPool && p.Rule != fleet.RulePoolWithoutHubPool {
					t.Errorf("it also says %s", p.String())
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("it says %q, want %q", got, test.want)
			}
		})
	}
}
