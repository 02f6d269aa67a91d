package fleet_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/schemas"
)

func kustomization(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// hostileCases are what whoever can commit may commit: what runs programs,
// reaches elsewhere, or makes much of little.
func hostileCases() map[string]map[string]string {
	over := func(changes map[string]string) map[string]string { return with(sound(), changes) }
	eu := "clusters/eu/kustomization.yaml"
	deep := strings.Repeat("d/", 200)
	nested := map[string]string{}
	for i := range 40 {
		nested[fmt.Sprintf("n%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../n%d]\n", i+1)
	}
	nested["n40/kustomization.yaml"] = "resources: [p.yaml]\n"
	nested["n40/p.yaml"] = basePool
	exec := "apiVersion: example.com/v1\nkind: Evil\nmetadata:\n  name: e\n  annotations:\n    config.kubernetes.io/function: |\n      exec: {path: ./evil.sh}\n"
	container := strings.Replace(exec, "exec: {path: ./evil.sh}", "container: {image: evil, network: true}", 1)
	starlark := strings.Replace(exec, "exec: {path: ./evil.sh}", "starlark: {url: \"https://example.com/x.star\"}", 1)
	return map[string]map[string]string{
		"secret":                         over(map[string]string{eu: kustomization("resources: [../../pools/base, s.yaml]"), "clusters/eu/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n"}),
		"deployment plain":               {"d.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: s}\n"},
		"secretGenerator":                over(map[string]string{eu: kustomization("resources: [../../pools/base]", "secretGenerator: [{name: s, literals: [a=b]}]")}),
		"secretGenerator of /etc/passwd": over(map[string]string{eu: kustomization("resources: [../../pools/base]", "secretGenerator: [{name: s, files: [/etc/passwd]}]")}),
		"configMapGenerator env outside": over(map[string]string{eu: kustomization("resources: [../../pools/base]", "configMapGenerator: [{name: s, envs: [../../../../../../etc/passwd]}]")}),
		"link out":                       over(map[string]string{"pools/base/gpu.yaml": fleettest.Symlink("/etc/passwd")}),
		"link to dir out":                over(map[string]string{eu: kustomization("resources: [out]"), "clusters/eu/out": fleettest.Symlink("/etc")}),
		"plain link out":                 {"a.yaml": fleettest.Symlink("/etc/passwd"), "b.yaml": basePool},
		"plain link loop":                {"a.yaml": fleettest.Symlink("a.yaml"), "b.yaml": basePool},
		"link chain out":                 {"a/kustomization.yaml": "resources: [x/etc/passwd]\n", "a/x": fleettest.Symlink("../b"), "b": fleettest.Symlink("/")},
		"resources above":                over(map[string]string{eu: kustomization("resources: [../../../../../../../etc/passwd]")}),
		"resources absolute":             over(map[string]string{eu: kustomization("resources: [/etc/passwd]")}),
		"patch above":                    over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches: [{path: ../../../../../etc/passwd}]")}),
		"emptied":                        over(map[string]string{eu: "resources: []\n"}),
		"https":                          over(map[string]string{eu: kustomization("resources: [\"https://example.com/x.yaml\"]")}),
		"ssh":                            over(map[string]string{eu: kustomization("resources: [\"ssh://git@example.com/x\"]")}),
		"git::":                          over(map[string]string{eu: kustomization("resources: [\"git::https://example.com/x\"]")}),
		"git:: alone":                    over(map[string]string{eu: kustomization("resources: [\"git::example.com/x\"]")}),
		"github":                         over(map[string]string{eu: kustomization("resources: [\"github.com/a/b//c?ref=main\"]")}),
		"gh":                             over(map[string]string{eu: kustomization("resources: [\"gh:a/b\"]")}),
		"host with _git":                 over(map[string]string{eu: kustomization("resources: [\"dev.azure.com/a/b/_git/c\"]")}),
		"host.git":                       over(map[string]string{eu: kustomization("resources: [\"gitlab.com/a/b.git\"]")}),
		"host?ref":                       over(map[string]string{eu: kustomization("resources: [\"example.com/a/b?ref=main\"]")}),
		"generator elsewhere":            over(map[string]string{eu: kustomization("resources: [../../pools/base]", "generators: [\"example.com/a/b.git?ref=main\"]")}),
		"transformer elsewhere":          over(map[string]string{eu: kustomization("resources: [../../pools/base]", "transformers: [\"dev.azure.com/a/b/_git/c\"]")}),
		"scp":                            over(map[string]string{eu: kustomization("resources: [\"git@example.com:a/b\"]")}),
		"scp other user":                 over(map[string]string{eu: kustomization("resources: [\"evil@example.com:a/b\"]")}),
		"file://":                        over(map[string]string{eu: kustomization("resources: [\"file:///etc\"]")}),
		"oci":                            over(map[string]string{eu: kustomization("resources: [\"oci://example.com/x\"]")}),
		"s3":                             over(map[string]string{eu: kustomization("resources: [\"s3::https://example.com/x\"]")}),
		"folded url":                     over(map[string]string{eu: kustomization("resources:", "- >-", "  https://example.com/x.yaml")}),
		"url with space":                 over(map[string]string{eu: kustomization("resources:", "- \" https://example.com/x.yaml\"")}),
		"url upper":                      over(map[string]string{eu: kustomization("resources:", "- HTTPS://example.com/x.yaml")}),
		"crds url":                       over(map[string]string{eu: kustomization("resources: [../../pools/base]", "crds: [\"https://example.com/x.yaml\"]")}),
		"configurations url":             over(map[string]string{eu: kustomization("resources: [../../pools/base]", "configurations: [\"https://example.com/x.yaml\"]")}),
		"replacements url":               over(map[string]string{eu: kustomization("resources: [../../pools/base]", "replacements: [{path: \"https://example.com/x.yaml\"}]")}),
		"helmCharts":                     over(map[string]string{eu: kustomization("resources: [../../pools/base]", "helmCharts: [{name: x, repo: \"https://example.com\", version: \"1\"}]")}),
		"helmCharts local":               over(map[string]string{eu: kustomization("resources: [../../pools/base]", "helmCharts: [{name: x}]")}),
		"helmChartInflationGenerator":    over(map[string]string{eu: kustomization("resources: [../../pools/base]", "helmChartInflationGenerator: [{chartName: x}]")}),
		"exec function":                  over(map[string]string{eu: kustomization("resources: [../../pools/base]", "transformers: [e.yaml]"), "clusters/eu/e.yaml": exec, "clusters/eu/evil.sh": "#!/bin/sh\necho $0 >> $RAN\n"}),
		"container function":             over(map[string]string{eu: kustomization("resources: [../../pools/base]", "generators: [e.yaml]"), "clusters/eu/e.yaml": container}),
		"starlark function":              over(map[string]string{eu: kustomization("resources: [../../pools/base]", "validators: [e.yaml]"), "clusters/eu/e.yaml": starlark}),
		"go plugin":                      over(map[string]string{eu: kustomization("resources: [../../pools/base]", "transformers: [e.yaml]"), "clusters/eu/e.yaml": "apiVersion: someteam.example.com/v1\nkind: Evil\nmetadata: {name: e}\n"}),
		"huge file":                      {"a.yaml": basePool + "# " + strings.Repeat("x", 5<<20) + "\n"},
		"dense file":                     {"a.yaml": strings.Repeat("- \n", (4<<20)/3-10)},
		"dense flow":                     {"a.yaml": "[" + strings.Repeat("a,", (4<<20)/2-10) + "a]"},
		"dense file in kustomization":    {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": strings.Repeat("- \n", (4<<20)/3-10)},
		"many keys":                      {"a.yaml": basePool + manyKeys(60_000)},
		"deep flow":                      {"a.yaml": basePool + "  x: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n"},
		"deep block":                     {"a.yaml": basePool + "  x: " + strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000) + "\n"},
		"deep json":                      {"a.yaml": strings.Repeat("{\"a\":", 100_000) + "1" + strings.Repeat("}", 100_000)},
		"error at the end":               {"a.yaml": strings.Repeat("a: b\n---\n", 300_000) + "x: [\n"},
		"error in the middle":            {"a.yaml": strings.Repeat("- a\n", 400_000) + "x: [\n" + strings.Repeat("y\n", 300_000)},
		"many documents":                 {"a.yaml": strings.Repeat("---\na: 1\n", 400_000)},
		"list of lists":                  {"a.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + strings.Repeat("{apiVersion: v1, kind: List, items: [", 200) + strings.Repeat("]}", 200) + "\n"},
		"deep directories":               {deep + "p.yaml": basePool},
		"nested kustomizations":          nested,
		"alias bomb plain":               {"a.yaml": bomb()},
		"alias bomb merge":               {"a.yaml": mergeBomb()},
		"component in circle":            {"a/kustomization.yaml": "components: [../b]\n", "b/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncomponents: [../a]\n"},
		"panic replacement":              over(map[string]string{eu: kustomization("resources: [../../pools/base]", "replacements:", "- source: {kind: ExecutorPool, fieldPath: spec.maxRunners}", "  targets: [{select: {kind: ExecutorPool}, fieldPaths: [spec.template.env.*.x, \"spec.[a=b].c\", \"\"], options: {create: true, index: 100000000}}]")}),
		"regex bomb":                     over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches: [{target: {kind: ExecutorPool, name: \"(a{1000}){1000}\"}, patch: \"[{op: add, path: /spec/foo, value: 1}]\"}]")}),
		"json patch copy bomb":           over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches:", "- target: {kind: ExecutorPool}", "  patch: |-", "    "+strings.ReplaceAll(copyBomb(28), "\n", "\n    "))}),
		"patch named often":              over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches:", strings.Repeat("- path: p.yaml\n", 2000)), "clusters/eu/p.yaml": patchHead + keys("    ", 2000)}),
		"operations named often":         over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches:", strings.Repeat("- {path: p.yaml, target: {kind: None}}\n", 3000)), "clusters/eu/p.yaml": strings.Repeat("- {op: add, path: /spec/runnerLabels/a, value: a}\n", 500)}),
		"patch of many keys":             over(map[string]string{eu: kustomization("resources: [../../pools/base]", "patches: [{path: p.yaml}]"), "clusters/eu/p.yaml": patchHead + keys("    ", 40_000)}),
		"large object patched often":     over(map[string]string{eu: kustomization("resources: [../../pools/base, large.yaml]", "patches:", strings.Repeat("- {path: p.yaml, target: {kind: ConfigMap}}\n", 2000)), "clusters/eu/large.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata:\n" + keys("  ", 40_000), "clusters/eu/p.yaml": "- {op: add, path: /data/a, value: b}\n"}),
		"patches in a transformer":       over(map[string]string{eu: kustomization("resources: [../../pools/base]", "transformers:", strings.Repeat("- t.yaml\n", 2000)), "clusters/eu/t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: p.yaml\n", "clusters/eu/p.yaml": patchHead + keys("    ", 2000)}),
		"binary":                         {"a.yaml": "\x00\x01\x02\xff"},
		"fifo dir name":                  {"kustomization.yaml/x": "y", "p.yaml": basePool},
		"env quantity":                   {"a.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: 99999999999999999999999999", 1)},
		"yaml tag":                       {"a.yaml": strings.Replace(basePool, "maxRunners: 4", "maxRunners: !!python/object/apply:os.system [\"id\"]", 1)},
		"many replicas":                  over(map[string]string{eu: kustomization("resources: [../../pools/base]", "replicas: [{name: gpu, count: 1000000000}]")}),
	}
}

func copyBomb(n int) string {
	lines := []string{`- {op: add, path: /metadata/annotations, value: {a: "` + strings.Repeat("x", 1000) + `"}}`, "- {op: add, path: /spec/l, value: {}}"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("- {op: copy, from: /spec, path: /spec/l/c%d}", i))
	}
	return strings.Join(lines, "\n")
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  k%d: 1\n", i)
	}
	return b.String()
}

// keys are so many lines, each a key.
func keys(indent string, count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "%sk%d: a\n", indent, i)
	}
	return b.String()
}

const patchHead = "apiVersion: cloop.dev/v1alpha1\nkind: ExecutorPool\nmetadata: {name: gpu}\nspec:\n  runnerLabels:\n"

func bomb() string {
	var b strings.Builder
	b.WriteString(basePool + "x:\n  a: &a [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  %c: &%c [%s*%c]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 8), 'a'+i)
	}
	return b.String()
}

func mergeBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 {k: v}\n")
	for i := range 30 {
		fmt.Fprintf(&b, "a%d: &a%d\n  <<: [*a%d, *a%d]\n  k%d: {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i, i, i, i)
	}
	return b.String()
}

// Nothing that is committed runs a program, reaches another place, ends the
// process or takes more than a bounded part of its memory and time: it is a
// problem of its file like any other. Run it under ulimit -v all the same.
func TestHostileRepositories(t *testing.T) {
	const memory, patience = 320 << 20, 30 * time.Second
	v := validator(t)
	ran := filepath.Join(t.TempDir(), "ran")
	programs := t.TempDir()
	for _, program := range []string{"git", "helm", "docker", "evil.sh"} {
		if err := os.WriteFile(filepath.Join(programs, program), []byte("#!/bin/sh\necho $0 $* >> "+ran+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Setenv("RAN", ran)
	for name, want := range map[string]struct {
		// rules of the first problems, sorted; refused by Build.
		rules   string
		refused bool
	}{
		"secret":                         {"kind-not-applied", false},
		"deployment plain":               {"kind-not-applied", false},
		"secretGenerator":                {"kind-not-applied", false},
		"secretGenerator of /etc/passwd": {"missing-reference", true},
		"configMapGenerator env outside": {"missing-reference", true},
		"link out":                       {"missing-reference", true},
		"link to dir out":                {"missing-reference", true},
		"plain link out":                 {"build", true},
		"plain link loop":                {"build", true},
		"link chain out":                 {"missing-reference", true},
		"resources above":                {"missing-reference", true},
		"resources absolute":             {"missing-reference", true},
		"patch above":                    {"missing-reference", true},
		"emptied":                        {"empty-root", false},
		"https":                          {"remote-reference", true},
		"ssh":                            {"remote-reference", true},
		"git::":                          {"remote-reference", true},
		"git:: alone":                    {"missing-reference", true},
		"github":                         {"remote-reference", true},
		"gh":                             {"missing-reference", true},
		"host with _git":                 {"missing-reference", true},
		"host.git":                       {"missing-reference", true},
		"host?ref":                       {"missing-reference", true},
		"generator elsewhere":            {"missing-reference", true},
		"transformer elsewhere":          {"missing-reference", true},
		"scp":                            {"remote-reference", true},
		"scp other user":                 {"remote-reference", true},
		"file://":                        {"remote-reference", true},
		"oci":                            {"missing-reference", true},
		"s3":                             {"missing-reference", true},
		"folded url":                     {"remote-reference", true},
		"url with space":                 {"missing-reference", true},
		"url upper":                      {"remote-reference", true},
		"crds url":                       {"remote-reference", true},
		"configurations url":             {"remote-reference", true},
		"replacements url":               {"remote-reference", true},
		"helmCharts":                     {"remote-reference", true},
		"helmCharts local":               {"build", true},
		"helmChartInflationGenerator":    {"build", true},
		"exec function":                  {"build", true},
		"container function":             {"build", true},
		"starlark function":              {"build", true},
		"go plugin":                      {"build", true},
		"huge file":                      {"too-large", true},
		"dense file":                     {"too-large", true},
		"dense flow":                     {"too-large", true},
		"dense file in kustomization":    {"too-large", true},
		"many keys":                      {"unknown-field", false},
		"deep flow":                      {"too-large", true},
		"deep block":                     {"too-large", true},
		"deep json":                      {"syntax", true},
		"error at the end":               {"too-large", true},
		"error in the middle":            {"too-large", true},
		"many documents":                 {"too-large", true},
		"list of lists":                  {"kind-not-applied", false},
		"deep directories":               {"", false},
		"nested kustomizations":          {"too-large", true},
		"alias bomb plain":               {"too-large", true},
		"alias bomb merge":               {"too-large", true},
		"component in circle":            {"build", true},
		"panic replacement":              {"build", true},
		"regex bomb":                     {"build", true},
		"json patch copy bomb":           {"too-large", true},
		"patch named often":              {"too-large", true},
		"operations named often":         {"too-large", true},
		"patch of many keys":             {"too-large", true},
		"large object patched often":     {"too-large", true},
		"patches in a transformer":       {"too-large", true},
		"binary":                         {"syntax", true},
		"fifo dir name":                  {"", false},
		"env quantity":                   {"schema", false},
		"yaml tag":                       {"schema", false},
		"many replicas":                  {"build", true},
	} {
		t.Run(name, func(t *testing.T) {
			files, known := hostileCases()[name]
			if !known {
				t.Fatal("there is no such case")
			}
			dir := repo(t, files)
			path := "clusters/eu"
			if _, overlay := files[path+"/kustomization.yaml"]; !overlay {
				path = "."
			}
			var report *fleet.Report
			var err, refused error
			keepsTo(t, memory, patience, func() {
				report, err = fleet.Check(t.Context(), v, dir)
				_, refused = fleet.Build(t.Context(), dir, path)
			})
			if err != nil {
				t.Fatal(err)
			}
			rules := map[string]bool{}
			for _, p := range report.Problems[:min(len(report.Problems), 3)] {
				rules[p.Rule] = true
				if p.File == "" || p.File == "." || p.Hint == "" && p.Rule != schemas.RuleSyntax && p.Rule != schemas.RuleSchema && p.Rule != schemas.RuleCEL || strings.Contains(p.String(), dir) {
					t.Errorf("problem without a file or a remedy: %.300s", p)
				}
			}
			if got := strings.Join(slices.Sorted(maps.Keys(rules)), " "); got != want.rules {
				t.Errorf("rules %q, want %q: %.1000v", got, want.rules, report.Problems)
			}
			if (refused != nil) != want.refused {
				t.Errorf("Build says %v, refused is to be %t", refused, want.refused)
			}
		})
	}
	if said, err := os.ReadFile(ran); err == nil {
		t.Errorf("programs were run:\n%s", said)
	}
}
