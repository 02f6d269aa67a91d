package fleet_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// aboveHub is a cluster whose maximum is above the hub's; the line may have a
// comment.
func aboveHub(comment string) string {
	return strings.Replace(sound()["clusters/eu/larger.yaml"], "  maxRunners: 3", "  maxRunners: 40"+comment, 1)
}

const ignoreAboveHub = `ignore:
- rule: maximum-above-hub
  paths: [clusters/eu]
  reason: the hub follows
`

// day is a clock that stands still at noon.
func day(text string) clock.PassiveClock {
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return clocktesting.NewFakePassiveClock(at.Add(12 * time.Hour))
}

func checkOn(t *testing.T, date string, files map[string]string, paths ...string) *fleet.Report {
	t.Helper()
	checking := fleet.Checking{Validator: validator(t), Clock: day(date)}
	report, err := checking.Check(t.Context(), repo(t, files), paths...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// verdicts are the problems with their severities, and what is suppressed.
func verdicts(report *fleet.Report) []string {
	got := []string{}
	for _, p := range report.Problems {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s:%d:%d %s", p.Severity, p.Rule, p.File, p.Line, p.Column, p.Path)))
	}
	for _, s := range report.Suppressed {
		got = append(got, fmt.Sprintf("ignored %s %s:%d by %s at %s:%d: %s", s.Rule, s.File, s.Line, s.Ignored.By, s.Ignored.File, s.Ignored.Line, s.Ignored.Reason))
	}
	return got
}

func TestRulesAreTurnedOff(t *testing.T) {
	const above = "maximum-above-hub clusters/eu/larger.yaml:6"
	for name, test := range map[string]struct {
		changes map[string]string
		paths   []string
		want    []string
	}{
		"nothing": {map[string]string{"clusters/eu/larger.yaml": aboveHub("")}, nil, []string{"warning " + above + ":3 spec.maxRunners"}},
		"by a comment in the patch that sets the value": {map[string]string{"clusters/eu/larger.yaml": aboveHub(" # cloop:ignore maximum-above-hub the hub follows")}, nil,
			[]string{"ignored " + above + " by comment at clusters/eu/larger.yaml:6: the hub follows"}},
		"by a comment above the document": {map[string]string{"clusters/eu/larger.yaml": "# cloop:ignore maximum-above-hub the hub follows\n" + aboveHub("")}, nil,
			[]string{"ignored maximum-above-hub clusters/eu/larger.yaml:7 by comment at clusters/eu/larger.yaml:1: the hub follows"}},
		"by a comment in a plain file": {map[string]string{"clusters/eu/kustomization.yaml": "", "clusters/eu/larger.yaml": "", "pools/base/kustomization.yaml": "", "pools/base/gpu.yaml": strings.Replace(basePool, "4", "40 # cloop:ignore maximum-above-hub: later", 1)}, nil,
			[]string{"ignored maximum-above-hub pools/base/gpu.yaml:10 by comment at pools/base/gpu.yaml:10: later"}},
		"by a comment on another rule": {map[string]string{"clusters/eu/larger.yaml": aboveHub(" # cloop:ignore labels-disagree why not")}, nil,
			[]string{"warning " + above + ":3 spec.maxRunners", "warning unused-ignore clusters/eu/larger.yaml:6:20"}},
		"by a comment in the base": {map[string]string{"clusters/eu/larger.yaml": aboveHub(""), "pools/base/gpu.yaml": strings.Replace(basePool, "4", "4 # cloop:ignore maximum-above-hub x", 1)}, nil,
			[]string{"warning " + above + ":3 spec.maxRunners", "warning unused-ignore pools/base/gpu.yaml:10:19"}},
		"in an inline patch": {map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\npatches:\n- patch: |-\n    apiVersion: cloop.dev/v1alpha1\n    kind: ExecutorPool\n    metadata: {name: gpu}\n    spec:\n      # cloop:ignore maximum-above-hub the hub follows\n      maxRunners: 40\n"}, nil,
			[]string{"ignored maximum-above-hub clusters/eu/kustomization.yaml:9 by comment at clusters/eu/kustomization.yaml:8: the hub follows"}},
		"behind the value of an operation": {map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\npatches:\n- target: {kind: ExecutorPool}\n  patch: |-\n    - op: replace\n      path: /spec/maxRunners\n      value: 40 # cloop:ignore maximum-above-hub the hub follows\n"}, nil,
			[]string{"ignored maximum-above-hub clusters/eu/kustomization.yaml:5 by comment at clusters/eu/kustomization.yaml:7: the hub follows"}},
		"behind the value of an operation in a file": {map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\npatches:\n- target: {kind: ExecutorPool}\n  path: larger.yaml\n", "clusters/eu/larger.yaml": "- op: replace\n  path: /spec/maxRunners\n  value: 40 # cloop:ignore maximum-above-hub the hub follows\n"}, nil,
			[]string{"ignored maximum-above-hub clusters/eu/larger.yaml:1 by comment at clusters/eu/larger.yaml:3: the hub follows"}},
		"in what Flux patches": {map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\n", "flux/eu.yaml": kustomizationOf("eu", "./clusters/eu", "  patches:\n  - target: {kind: ExecutorPool}\n    patch: |-\n      - op: replace\n        path: /spec/maxRunners\n        value: 40 # cloop:ignore maximum-above-hub the hub follows\n")}, nil,
			[]string{"ignored maximum-above-hub flux/eu.yaml:10 by comment at flux/eu.yaml:12: the hub follows"}},
		"in what Argo CD patches": {map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../pools/base]\n", "argo/eu.yaml": "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu, namespace: argocd}\nspec:\n  sources:\n  - repoURL: https://git.example.com/fleet.git\n    path: clusters/eu\n    kustomize:\n      patches:\n      - target: {kind: ExecutorPool}\n        patch: |-\n          - op: replace\n            path: /spec/maxRunners\n            value: 40 # cloop:ignore maximum-above-hub the hub follows\n"}, nil,
			[]string{"ignored maximum-above-hub argo/eu.yaml:12 by comment at argo/eu.yaml:14: the hub follows"}},
		"by the configuration": {map[string]string{"clusters/eu/larger.yaml": aboveHub(""), ".cloop/config.yaml": ignoreAboveHub}, nil,
			[]string{"ignored " + above + " by config at .cloop/config.yaml:2: the hub follows"}},
		"by both, and both are used": {map[string]string{"clusters/eu/larger.yaml": aboveHub(" # cloop:ignore maximum-above-hub x"), ".cloop/config.yaml": ignoreAboveHub}, nil,
			[]string{"ignored " + above + " by comment at clusters/eu/larger.yaml:6: x"}},
		"for nothing": {map[string]string{".cloop/config.yaml": ignoreAboveHub}, nil, []string{"warning unused-ignore .cloop/config.yaml:2:3"}},
		"for what cannot be known": {map[string]string{".cloop/config.yaml": ignoreAboveHub, "clusters/eu/kustomization.yaml": "resources: [nowhere]\n"}, nil,
			[]string{"error missing-reference clusters/eu/kustomization.yaml:1:13"}},
		"for nothing that is looked at": {map[string]string{".cloop/config.yaml": ignoreAboveHub, "hub/gpu.yaml": hubPool + "# cloop:ignore hubpool-without-pool x\n"}, []string{"hub"}, []string{}},
		"until a day that is to come": {map[string]string{"clusters/eu/larger.yaml": aboveHub(""), ".cloop/config.yaml": ignoreAboveHub + "  until: 2026-12-01\n"}, nil,
			[]string{"ignored " + above + " by config at .cloop/config.yaml:2: the hub follows"}},
		"until a day that is over": {map[string]string{"clusters/eu/larger.yaml": aboveHub(""), ".cloop/config.yaml": ignoreAboveHub + "  until: 2026-11-30\n"}, nil,
			[]string{"warning expired-ignore .cloop/config.yaml:2:3", "warning " + above + ":3 spec.maxRunners"}},
		"that nobody can": {map[string]string{"clusters/eu/larger.yaml": "# cloop:ignore schema x\n" + strings.Replace(aboveHub(""), "40", "-1", 1)}, nil,
			[]string{"error config clusters/eu/larger.yaml:1:3", "error cel clusters/eu/larger.yaml:7:3 spec", "error schema clusters/eu/larger.yaml:7:3 spec.maxRunners"}},
		"that there are not":                       {map[string]string{"hub/gpu.yaml": hubPool + "# cloop:ignore nope x\n"}, nil, []string{"error config hub/gpu.yaml:10:3"}},
		"without a reason":                         {map[string]string{"hub/gpu.yaml": hubPool + "# cloop:ignore labels-disagree\n"}, nil, []string{"error config hub/gpu.yaml:10:3"}},
		"in a file of another name":                {map[string]string{".cloop/config.yml": ignoreAboveHub}, nil, []string{"error config .cloop/config.yml:1:1"}},
		"with rules in a file of nearly that name": {map[string]string{".cloop/rule.cue": "package rules"}, nil, []string{"error config .cloop/rule.cue:1:1"}},
		"in a folder below the top":                {map[string]string{"infra/.cloop/config.yaml": ignoreAboveHub, "infra/.cloop/sandbox.yaml": "x: y"}, nil, []string{"warning config infra/.cloop/config.yaml:1:1"}},
		"beside a project's sandbox":               {map[string]string{".cloop/sandbox.yaml": "capabilities: {}"}, nil, nil},
		"in a file that is no file":                {map[string]string{".cloop/config.yaml/x": "x"}, nil, []string{"error config .cloop/config.yaml:1:1"}},
		"in a file elsewhere":                      {map[string]string{".cloop/config.yaml": fleettest.Symlink("../../x.yaml")}, nil, []string{"error config .cloop/config.yaml:1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := checkOn(t, "2026-12-01", with(sound(), test.changes), test.paths...)
			if got := verdicts(report); !slices.Equal(got, test.want) {
				t.Errorf("verdicts\n%s\nwant\n%s\n%v", strings.Join(got, "\n"), strings.Join(test.want, "\n"), report.Problems)
			}
		})
	}
}

// The file that has the value may be another than the overlay's, and then "remove it"
// and the finding itself would contradict each other.
func TestAnIgnoreOfTheWrongFileNamesTheRightOne(t *testing.T) {
	report := checkOn(t, "2026-12-01", with(sound(), map[string]string{
		"clusters/eu/kustomization.yaml": "namespace: cloop-gpu\nresources: [../../pools/base]\n", "clusters/eu/larger.yaml": "",
		"pools/base/gpu.yaml": strings.Replace(basePool, "4", "40", 1), ".cloop/config.yaml": ignoreAboveHub,
	}))
	for _, problem := range report.Problems {
		if problem.Rule == policy.RuleUnusedIgnore && strings.Contains(problem.Message, "one names pools/base/gpu.yaml") {
			return
		}
	}
	t.Errorf("problems: %v", report.Problems)
}

// What no cluster gets may look like a fleet: the templates of a chart, and what
// the repository excludes.
func TestWhatIsNoPartOfTheFleet(t *testing.T) {
	template := strings.Replace(basePool, "name: gpu\n", "name: {{ .Release.Name }}\n{{- if .Values.x }}\n", 1)
	exclude := "exclude:\n- paths: [testdata, '**/fixtures']\n  reason: cases of tests\n"
	for name, test := range map[string]struct {
		changes map[string]string
		want    []string
	}{
		"templates of a chart":         {map[string]string{"charts/runner/Chart.yaml": "name: runner\n", "charts/runner/templates/pool.yaml": template}, nil},
		"templates of no chart":        {map[string]string{"charts/runner/templates/pool.yaml": template}, []string{"error syntax charts/runner/templates/pool.yaml:6:1"}},
		"what is excluded":             {map[string]string{".cloop/config.yaml": exclude, "testdata/a.yaml": template, "x/fixtures/b/kustomization.yaml": "resources: [gone.yaml]\n"}, nil},
		"beside what is excluded":      {map[string]string{".cloop/config.yaml": exclude, "x/kustomization.yaml": "resources: [gone.yaml]\n"}, []string{"error missing-reference x/kustomization.yaml:1:13"}},
		"excluded without a reason":    {map[string]string{".cloop/config.yaml": "exclude:\n- paths: [x]\n", "x/kustomization.yaml": "resources: [gone.yaml]\n"}, []string{"error config .cloop/config.yaml:2:3 exclude[0].reason", "error missing-reference x/kustomization.yaml:1:13"}},
		"all excluded":                 {map[string]string{".cloop/config.yaml": "exclude: [{paths: ['**'], reason: x}]\n"}, []string{}},
		"excluded, and used by others": {map[string]string{".cloop/config.yaml": "exclude: [{paths: [pools], reason: x}]\n", "pools/base/gpu.yaml": strings.Replace(basePool, "https://", "http://", 1)}, []string{"error cel pools/base/gpu.yaml:7:3 spec.hubURL"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := checkOn(t, "2026-12-01", with(sound(), test.changes))
			if got := verdicts(report); !slices.Equal(got, test.want) {
				t.Errorf("verdicts\n%s\nwant\n%s\n%v", strings.Join(got, "\n"), strings.Join(test.want, "\n"), report.Problems)
			}
		})
	}
}

func TestSeveritiesAreChanged(t *testing.T) {
	files := with(sound(), map[string]string{
		"clusters/eu/larger.yaml": aboveHub(""),
		".cloop/config.yaml":      "severities: {maximum-above-hub: error, duplicate-pool: warning, unused-ignore: error}\nignore:\n- {rule: labels-disagree, paths: ['**'], reason: x}\n",
		"pools/base/gpu.yaml":     basePool + "---\n" + strings.Replace(basePool, "name: gpu\n", "name: gpu2\n", 1) + "  hubPool: gpu\n",
	})
	report := checkOn(t, "2026-12-01", files)
	want := []string{"error unused-ignore .cloop/config.yaml:3:3", "error maximum-above-hub clusters/eu/larger.yaml:6:3 spec.maxRunners", "warning duplicate-pool pools/base/gpu.yaml:22:3 spec.hubPool"}
	if got := verdicts(report); !slices.Equal(got, want) {
		t.Errorf("verdicts\n%s", strings.Join(got, "\n"))
	}
	for _, root := range report.Roots {
		if root.Failed != (root.Path == "clusters/eu") {
			t.Errorf("of root %s failed is %t", root.Path, root.Failed)
		}
	}
	files[".cloop/config.yaml"] = "severities: {duplicate-pool: warning}\n"
	for _, root := range checkOn(t, "2026-12-01", files).Roots {
		if root.Failed {
			t.Errorf("root %s failed by a rule that is a warning here", root.Path)
		}
	}
}

// Whoever applies a commit judges it as the check before the merge did, but for
// the days: a commit that was merged does not stop being applied on one.
func TestWhoAppliesHonoursThePolicy(t *testing.T) {
	const path = "clusters/eu"
	duplicate := map[string]string{"pools/base/gpu.yaml": basePool + "---\n" + strings.Replace(basePool, "name: gpu\n", "name: gpu2\n", 1) + "  hubPool: gpu\n"}
	ignore := "ignore:\n- {rule: duplicate-pool, paths: [pools], reason: x, until: 2020-01-01}\n"
	for name, test := range map[string]struct {
		changes map[string]string
		want    []string
		failed  bool
	}{
		"nothing":       {nil, []string{"error duplicate-pool pools/base/gpu.yaml:22:3 spec.hubPool"}, true},
		"ignored":       {map[string]string{".cloop/config.yaml": ignore}, []string{"ignored duplicate-pool pools/base/gpu.yaml:22 by config at .cloop/config.yaml:2: x"}, false},
		"a warning":     {map[string]string{".cloop/config.yaml": "severities: {duplicate-pool: warning}\n"}, []string{"warning duplicate-pool pools/base/gpu.yaml:22:3 spec.hubPool"}, false},
		"a broken file": {map[string]string{".cloop/config.yaml": ignore + "x: 1\n"}, []string{"error config .cloop/config.yaml:3:1 x", "ignored duplicate-pool pools/base/gpu.yaml:22 by config at .cloop/config.yaml:2: x"}, true},
		"its own rule":  {map[string]string{".cloop/config.yaml": ignore, ".cloop/rules.cue": small}, []string{"error small-pools pools/base/gpu.yaml:21:3 spec.maxRunners", "ignored duplicate-pool pools/base/gpu.yaml:22 by config at .cloop/config.yaml:2: x"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, report, err := fleet.BuildChecked(t.Context(), validator(t), repo(t, with(with(sound(), duplicate), test.changes)), path, nil)
			if err != nil || len(rendered) != 2 {
				t.Fatalf("%d objects, error %v", len(rendered), err)
			}
			if got := verdicts(report); !slices.Equal(got, test.want) || report.Failed() != test.failed {
				t.Errorf("failed is %t, verdicts\n%s\nwant\n%s", report.Failed(), strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// small allows three runners in a cluster.
const small = `package rules

rules: "small-pools": {
	expression: "object.spec.maxRunners <= 3"
	message:    "a pool has at most 3 runners"
	at:         "spec.maxRunners"
	match: {
		kinds: ["ExecutorPool"]
		roots: ["clusters/*"]
	}
}
`

// together allows a hub pool what its clusters may start.
const together = `rules: "clusters-fit": {
	severity:   "warning"
	expression: "pools.filter(p, p.object.metadata.name == object.metadata.name).map(p, p.object.spec.maxRunners).sum() <= object.spec.maxRunners"
	message:    "the clusters together may start more than the hub allows"
	at:         "spec.maxRunners"
	match: kinds: ["HubPool"]
}
`

func TestOwnRules(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]string
		paths   []string
		want    []string
	}{
		"holds":                   {map[string]string{".cloop/rules.cue": small}, nil, []string{}},
		"is broken":               {map[string]string{".cloop/rules.cue": small, "clusters/eu/larger.yaml": strings.Replace(aboveHub(""), "40", "4", 1)}, nil, []string{"error small-pools clusters/eu/larger.yaml:6:3 spec.maxRunners"}},
		"is turned off":           {map[string]string{".cloop/rules.cue": small, "clusters/eu/larger.yaml": strings.Replace(aboveHub(" # cloop:ignore small-pools eu is large"), "40", "4", 1)}, nil, []string{"ignored small-pools clusters/eu/larger.yaml:6 by comment at clusters/eu/larger.yaml:6: eu is large"}},
		"is weakened":             {map[string]string{".cloop/rules.cue": small, ".cloop/config.yaml": "severities: {small-pools: warning}\n", "clusters/eu/larger.yaml": strings.Replace(aboveHub(""), "40", "4", 1)}, nil, []string{"warning small-pools clusters/eu/larger.yaml:6:3 spec.maxRunners"}},
		"has no answer":           {map[string]string{".cloop/rules.cue": strings.Replace(small, "object.spec.maxRunners <= 3", "object.spec.nope == 1", 1), ".cloop/config.yaml": "severities: {small-pools: warning}\n"}, nil, []string{"error small-pools clusters/eu/larger.yaml:6:3 spec.maxRunners"}},
		"about no root":           {map[string]string{".cloop/rules.cue": strings.Replace(small, "clusters/*", "cluster/*", 1)}, nil, []string{"warning unused-rule .cloop/rules.cue:3:8"}},
		"about no kind":           {map[string]string{".cloop/rules.cue": strings.Replace(small, "ExecutorPool", "Secret", 1)}, nil, []string{"warning unused-rule .cloop/rules.cue:3:8"}},
		"about nothing in a part": {map[string]string{".cloop/rules.cue": strings.Replace(small, "clusters/*", "cluster/*", 1)}, []string{"hub"}, []string{}},
		"about nothing yet":       {map[string]string{".cloop/rules.cue": strings.Replace(small, "clusters/*", "cluster/*", 1), ".cloop/config.yaml": "ignore: [{rule: unused-rule, paths: [.cloop], reason: next week}]\n"}, nil, []string{"ignored unused-rule .cloop/rules.cue:3 by config at .cloop/config.yaml:1: next week"}},
		"of an unsound object":    {map[string]string{".cloop/rules.cue": small, "clusters/eu/larger.yaml": strings.Replace(aboveHub(""), "40", "many", 1)}, nil, []string{"error schema clusters/eu/larger.yaml:6:3 spec.maxRunners"}},
		"with defaults":           {map[string]string{".cloop/rules.cue": strings.NewReplacer("object.spec.maxRunners <= 3", "object.spec.deletionPolicy == 'Orphan' && object.spec.harness == 'command'", "ExecutorPool", "HubPool", "clusters/*", "hub").Replace(small)}, nil, []string{}},
		"across pools": {map[string]string{".cloop/rules.cue": together, "clusters/us/kustomization.yaml": "resources: [../../pools/base]\n"}, nil,
			[]string{"warning clusters-fit hub/gpu.yaml:7:3 spec.maxRunners"}},
		"across pools of a part": {map[string]string{".cloop/rules.cue": together, "clusters/us/kustomization.yaml": "resources: [../../pools/base]\n"}, []string{"hub", "clusters"}, []string{}},
		"does not compile":       {map[string]string{".cloop/rules.cue": strings.Replace(small, "object.spec", "objekt.spec", 1)}, nil, []string{"error config .cloop/rules.cue:4:15 rules.small-pools.expression"}},
		"has an id of ours":      {map[string]string{".cloop/rules.cue": strings.Replace(small, "small-pools", "labels-disagree", 1)}, nil, []string{"error config .cloop/rules.cue:3:8 rules.labels-disagree"}},
	} {
		t.Run(name, func(t *testing.T) {
			report := checkOn(t, "2026-12-01", with(sound(), test.changes), test.paths...)
			if got := verdicts(report); !slices.Equal(got, test.want) {
				t.Errorf("verdicts\n%s\nwant\n%s\n%v", strings.Join(got, "\n"), strings.Join(test.want, "\n"), report.Problems)
			}
			for _, p := range report.Problems {
				if p.Rule == "small-pools" && p.Object != "ExecutorPool cloop-gpu/gpu" {
					t.Errorf("object is %q", p.Object)
				}
			}
		})
	}
}

// A rule that the API server's verdict is made of is never turned off.
func TestVerdictsOfTheServerAreFixed(t *testing.T) {
	fixed := map[string]bool{}
	for _, rule := range fleet.Rules() {
		fixed[rule.ID] = rule.Fixed
	}
	for _, id := range []string{schemas.RuleSyntax, schemas.RuleSchema, schemas.RuleCEL, schemas.RuleMetadata, schemas.RuleUnknownField, schemas.RuleUnknownKind, schemas.RuleTypeMeta, schemas.RuleDuplicateKey, fleet.RuleBuild, fleet.RuleDuplicateObject, fleet.RuleDuplicateHubPool} {
		if !fixed[id] {
			t.Errorf("%s is not fixed", id)
		}
	}
}

// A pool is compared with what it was in the same cluster.
func TestOwnRulesOnChangesOfOneOfSeveral(t *testing.T) {
	flux := func(most string) string {
		return kustomizationOf("pools", "./pools", "  postBuild: {substitute: {MAX: \""+most+"\"}}\n")
	}
	files := map[string]string{".cloop/rules.cue": growing, "hub/gpu.yaml": strings.Replace(hubPool, "4", "99", 1),
		"pools/gpu.yaml":       strings.Replace(basePool, "maxRunners: 4", "maxRunners: ${MAX}", 1),
		"clusters/eu/all.yaml": flux("3"), "clusters/us/all.yaml": flux("30")}
	base := repo(t, files)
	own := strings.ReplaceAll(flux("80"), "./pools", "./pools-us")
	for name, test := range map[string]struct {
		files map[string]string
		want  int
	}{
		"nothing":                         {nil, 0},
		"the same for both, too much":     {map[string]string{"pools/gpu.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: 40", 1)}, 1},
		"a path of its own":               {map[string]string{"clusters/us/all.yaml": strings.Replace(own, "80", "40", 1), "pools-us/gpu.yaml": files["pools/gpu.yaml"]}, 0},
		"too much in a path of its own":   {map[string]string{"clusters/us/all.yaml": own, "pools-us/gpu.yaml": files["pools/gpu.yaml"]}, 1},
		"too much by one who is alone":    {map[string]string{"clusters/us/all.yaml": "", "pools/gpu.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: 6", 1)}, 1},
		"a little":                        {map[string]string{"clusters/us/all.yaml": flux("40")}, 0},
		"too much in one":                 {map[string]string{"clusters/us/all.yaml": flux("80")}, 1},
		"too much in another":             {map[string]string{"clusters/eu/all.yaml": flux("30")}, 1},
		"a cluster that is new":           {map[string]string{"clusters/us/all.yaml": "", "clusters/jp/all.yaml": flux("30")}, 0},
		"a cluster beside them":           {map[string]string{"clusters/jp/all.yaml": flux("80")}, 0},
		"a file with another name":        {map[string]string{"clusters/us/all.yaml": "", "clusters/us/k.yaml": flux("40")}, 0},
		"too much in a file with another": {map[string]string{"clusters/us/all.yaml": "", "clusters/us/k.yaml": flux("80")}, 1},
	} {
		before, err := fleet.NewRenderer(base, nil)
		if err != nil {
			t.Fatal(err)
		}
		report, err := fleet.Checking{Validator: validator(t), Base: before}.Check(t.Context(), repo(t, with(maps.Clone(files), test.files)))
		before.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Problems) != test.want {
			t.Errorf("%s: %d problems, want %d: %v", name, len(report.Problems), test.want, report.Problems)
		}
	}
}

// growing lets a pool grow by at most half.
const growing = `rules: "grow-slowly": {
	expression: "!oldObject.hasValue() || object.spec.maxRunners * 2 <= oldObject.value().spec.maxRunners * 3"
	message:    "a pool grows by at most half at a time"
	at:         "spec.maxRunners"
	match: kinds: ["ExecutorPool"]
}
`

func TestOwnRulesOnChanges(t *testing.T) {
	files := with(sound(), map[string]string{".cloop/rules.cue": growing, "hub/gpu.yaml": strings.Replace(hubPool, "4", "40", 1)})
	base := repo(t, files)
	for runners, want := range map[string][]string{
		"4": {}, "5": {"error grow-slowly clusters/eu/larger.yaml:6:3 spec.maxRunners"},
	} {
		head := repo(t, with(files, map[string]string{"clusters/eu/larger.yaml": strings.Replace(aboveHub(""), "40", runners, 1),
			"clusters/new/kustomization.yaml": "resources: [../../pools/base]\n"}))
		before, err := fleet.NewRenderer(base, nil)
		if err != nil {
			t.Fatal(err)
		}
		report, err := fleet.Checking{Validator: validator(t), Base: before}.Check(t.Context(), head)
		before.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := verdicts(report); !slices.Equal(got, want) {
			t.Errorf("with %s runners: %v, want %v", runners, got, want)
		}
	}
	// One sync that applies it changes nothing of that, and a new name is no way around.
	pools := map[string]string{".cloop/rules.cue": growing, "hub/gpu.yaml": strings.Replace(hubPool, "4", "40", 1), "pools/gpu.yaml": basePool, "clusters/eu/all.yaml": kustomizationOf("pools", "./pools", "")}
	grown := strings.Replace(basePool, "maxRunners: 4", "maxRunners: 9", 1)
	for name, pool := range map[string]string{"alone": grown,
		"renamed": strings.Replace(grown, "name: gpu\nspec:", "name: big\n  annotations: {cloop.dev/moved-from: gpu}\nspec:\n  hubPool: gpu", 1)} {
		before, err := fleet.NewRenderer(repo(t, pools), nil)
		if err != nil {
			t.Fatal(err)
		}
		report, err := fleet.Checking{Validator: validator(t), Base: before}.Check(t.Context(), repo(t, with(maps.Clone(pools), map[string]string{"pools/gpu.yaml": pool})))
		before.Close()
		if err != nil {
			t.Fatal(err)
		}
		if got := verdicts(report); len(got) != 1 || !strings.HasPrefix(got[0], "error grow-slowly pools/gpu.yaml:") {
			t.Errorf("%s: %v", name, got)
		}
	}
	// Moving the directory in the same commit is no way around.
	moved := with(with(map[string]string{}, files), map[string]string{"clusters/eu/larger.yaml": "", "clusters/eu/kustomization.yaml": "",
		"clusters/west/kustomization.yaml": files["clusters/eu/kustomization.yaml"], "clusters/west/larger.yaml": strings.Replace(aboveHub(""), "40", "30", 1)})
	before, err := fleet.NewRenderer(base, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	report, err := fleet.Checking{Validator: validator(t), Base: before}.Check(t.Context(), repo(t, moved))
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts(report); !slices.Equal(got, []string{"error grow-slowly clusters/west/larger.yaml:6:3 spec.maxRunners"}) {
		t.Errorf("moved: %v", got)
	}
	if got := verdicts(checkOn(t, "2026-12-01", files)); len(got) > 0 {
		t.Errorf("without a base: %v", got)
	}
}

// Whatever lies where the policy should be, the check ends and says so.
func TestHostilePolicies(t *testing.T) {
	for name, put := range map[string]func(file string) error{
		"a pipe":        func(file string) error { return syscall.Mkfifo(file, 0o600) },
		"a device":      func(file string) error { return os.Symlink("/dev/zero", file) },
		"itself":        func(file string) error { return os.Symlink(filepath.Base(file), file) },
		"a huge file":   func(file string) error { return os.WriteFile(file, make([]byte, 8<<20), 0o600) },
		"a large file":  func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("#\n"), 1<<20), 0o600) },
		"binary":        func(file string) error { return os.WriteFile(file, []byte("\x00\xff\x1b"), 0o600) },
		"an alias bomb": func(file string) error { return os.WriteFile(file, []byte("ignore: &a [*a, *a]\n"), 0o600) },
		"deeply nested": func(file string) error { return os.WriteFile(file, bytes.Repeat([]byte("["), 30_000), 0o600) },
		"a long pattern": func(file string) error {
			return os.WriteFile(file, []byte("ignore: [{rule: labels-disagree, reason: r, paths: ['"+strings.Repeat("**/*", 5000)+"']}]\n"), 0o600)
		},
	} {
		for _, file := range []string{"config.yaml", "rules.cue"} {
			t.Run(name+" for "+file, func(t *testing.T) {
				dir := repo(t, sound())
				if err := os.MkdirAll(filepath.Join(dir, ".cloop"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := put(filepath.Join(dir, ".cloop", file)); err != nil {
					t.Fatal(err)
				}
				report, err := fleet.Check(t.Context(), validator(t), dir)
				if err != nil || len(report.Problems) != 1 || report.Problems[0].Rule != "config" || report.Problems[0].File != ".cloop/"+file {
					t.Errorf("error %v, problems %v", err, report.Problems)
				}
				if strings.Contains(fmt.Sprint(report.Problems), dir) {
					t.Errorf("the directory is shown: %v", report.Problems)
				}
			})
		}
	}
}
