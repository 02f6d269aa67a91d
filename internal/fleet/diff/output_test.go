package diff_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/output"
)

var update = flag.Bool("update", false, "write testdata/golden")

// showcase has one of everything that a report says.
func showcase(t *testing.T) *diff.Report {
	t.Helper()
	files := fleetFiles()
	files["hub/kustomization.yaml"] = "resources: [gpu.yaml, old.yaml]\n"
	files["hub/old.yaml"] = hubPool("old", "maxRunners: 2\n  deletionPolicy: Revoke")
	files["clusters/broken/kustomization.yaml"] = "resources: [nowhere.yaml]\n"
	files["pools/base/kustomization.yaml"] = "resources: [gpu.yaml, cpu.yaml, quota.yaml]\n"
	files["pools/base/cpu.yaml"] = executorPool("cpu", "maxRunners: 10\n  persistence: {enabled: true, size: 50Gi}")
	files["pools/base/quota.yaml"] = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: all, namespace: cloop-pools}\nspec: {hard: {pods: 10}}\n"
	r := newRepo(t, files)
	r.write(map[string]string{
		"hub/kustomization.yaml": "resources: [gpu.yaml, new.yaml]\n",
		"hub/gpu.yaml":           hubPool("gpu", "maxRunners: 4\n  audience: ['user:ada@example.com']"),
		"hub/new.yaml":           hubPool("new", "maxRunners: 1"),
		"clusters/eu/kustomization.yaml": `resources: [../../pools/base]
patches:
  - patch: |
      apiVersion: cloop.dev/v1alpha1
      kind: ExecutorPool
      metadata: {name: gpu, namespace: cloop-pools}
      spec: {maxRunners: 2, scaleDownDelay: 10m, runnerLabels: {team: ml}, hubURL: "https://user:hunter2@hub.example.com"}
  - patch: |
      apiVersion: cloop.dev/v1alpha1
      kind: ExecutorPool
      metadata: {name: cpu, namespace: cloop-pools}
      spec: {persistence: {enabled: false}}
  - patch: |
      apiVersion: v1
      kind: ResourceQuota
      metadata: {name: all, namespace: cloop-pools}
      spec: {hard: {pods: 20}}
`,
		"clusters/us/kustomization.yaml":     "resources: [../../pools/base]\nnamePrefix: us-\n",
		"clusters/broken/kustomization.yaml": "resources: [nowhere.yaml, neither.yaml]\n",
	})
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	report.Base.Commit = strings.Repeat("0123456789", 4)
	return report
}

// Impacts are as the examples of the documents have them.
func withImpact(report *diff.Report) *diff.Report {
	for i := range report.Overlays {
		for j := range report.Overlays[i].Objects {
			if o := &report.Overlays[i].Objects[j]; o.Name == "gpu" && o.Kind == "ExecutorPool" {
				o.Impact = []diff.Impact{{Where: "eu", Retires: 3, Waiting: 2, Releases: 1, Deletes: true}}
			}
		}
	}
	report.Notes = append(report.Notes, "the hub could not be read, so the impact there is not known: no token")
	return report
}

var extensions = map[output.Format]string{output.Text: "txt", output.JSON: "json", output.YAML: "yaml", output.Markdown: "md"}

func TestOutputsAreAsShown(t *testing.T) {
	t.Parallel()
	reports := map[string]*diff.Report{"showcase": withImpact(showcase(t)), "same": {Base: diff.Revision{Name: "main", Commit: strings.Repeat("0", 40)}, Overlays: []diff.Overlay{{Path: "hub", Unchanged: true}}},
		"failed": diff.Failed("main", fmt.Errorf("there is no revision main here: correct --base"))}
	for name, report := range reports {
		report.Judge(diff.FailOnAny)
		for format, extension := range extensions {
			data, err := report.Render(format)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "golden", name+"."+extension)
			fleettest.Golden(t, file, data, *update)
		}
	}
}

func TestJSONAndYAMLSayTheSame(t *testing.T) {
	t.Parallel()
	report := withImpact(showcase(t))
	report.Judge(diff.FailOnAny)
	asJSON, err := report.Render(output.JSON)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := report.Render(output.YAML)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := json.Unmarshal(asJSON, &a); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(asYAML, &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("JSON and YAML differ")
	}
	if _, err := report.Render("html"); err == nil {
		t.Error("there is a format html")
	}
}

// Verdict, counts and exit code come from one value.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	object := func(class diff.Class) []diff.Object {
		return []diff.Object{{Kind: "HubPool", Change: "changed", Class: class}}
	}
	failure := []diff.Failure{{Revision: diff.AtHead}}
	for name, test := range map[string]struct {
		overlays               []diff.Overlay
		verdict                diff.Verdict
		any, destructive, none int
	}{
		"nothing":                  {nil, diff.Same, 0, 0, 0},
		"the same":                 {[]diff.Overlay{{Unchanged: true}}, diff.Same, 0, 0, 0},
		"a raise":                  {[]diff.Overlay{{Objects: object(diff.Raise)}}, diff.Differs, 1, 0, 0},
		"destructive":              {[]diff.Overlay{{Objects: object(diff.Destructive)}}, diff.Differs, 1, 1, 0},
		"not compared":             {[]diff.Overlay{{Failures: failure}}, diff.Unanswered, 2, 2, 2},
		"a raise, and not all":     {[]diff.Overlay{{Objects: object(diff.Raise)}, {Failures: failure}}, diff.Differs, 1, 2, 0},
		"destructive, and not all": {[]diff.Overlay{{Objects: object(diff.Destructive)}, {Failures: failure}}, diff.Differs, 1, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for on, want := range map[diff.FailOn]int{diff.FailOnAny: test.any, diff.FailOnDestructive: test.destructive, diff.FailOnNone: test.none} {
				report := &diff.Report{Overlays: test.overlays}
				report.Judge(on)
				if report.Verdict != test.verdict || report.ExitCode() != want || report.OK != (want == 0) {
					t.Errorf("on %s: %s, exit code %d, ok %v", on, report.Verdict, report.ExitCode(), report.OK)
				}
			}
		})
	}
	failed := diff.Failed("main", os.ErrNotExist)
	failed.Judge(diff.FailOnNone)
	if failed.ExitCode() != 2 || failed.OK {
		t.Error("no answer passes for one")
	}
}

// hostile is what somebody may put into a name or a value to make a reader act.
var hostile = []string{
	"::error::pwned", "##[add-path]/tmp", "\n::stop-commands::x", "<script>alert(1)</script>", "<!-- cloop-fleet-diff -->", "-->", "@everyone", "#1", "`", "a`b``c", "```\nx\n```",
	"[x](https://evil.example)", "![i](https://evil.example/x.png)", "https://evil.example", "|", "# x", "**x**", "\n\n# Approved\n\nby @admin", "/close",
	"\x1b[31mred\x1b[0m", "\x1b]8;;https://evil.example\x07x", "\u202egnp.exe", "\u2028x", "\x00", "\xff\xfe", "\u0085", "\u200b", strings.Repeat("x", 5_000), strings.Repeat("é@", 500), "",
}

func hostileReport(text string) *diff.Report {
	object := func(kind, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cloop.dev/v1alpha1", "kind": kind,
			"metadata": map[string]any{"name": text, "namespace": text, "labels": map[string]any{text: value}, "annotations": map[string]any{"cloop.dev/moved-from": value, text: value}},
			"spec": map[string]any{"hubPool": text, "hubURL": value, text: value, "runnerLabels": map[string]any{text: value}, "labels": map[string]any{text: value},
				"audience": []any{value}, "cordon": map[string]any{"reason": value}},
		}}
	}
	report := &diff.Report{Base: diff.Revision{Name: text, Commit: strings.Repeat("0", 40)}, Notes: []string{text}}
	for _, kind := range []string{"ExecutorPool", "HubPool", "ConfigMap"} {
		changed, _ := diff.CompareObjects(object(kind, "before"+text), object(kind, "after"+text))
		removed, _ := diff.CompareObjects(object(kind, text), nil)
		removed.Impact = []diff.Impact{{Where: text, Retires: 1}}
		report.Overlays = append(report.Overlays, diff.Overlay{Path: text, By: text, Objects: []diff.Object{changed, removed}})
	}
	return report
}

var ticks = regexp.MustCompile("`+")

// outsideCode is a line of Markdown without its code spans: each goes from a run
// of backticks to the next one that is as long.
func outsideCode(line string) string {
	var b strings.Builder
	for {
		open := ticks.FindStringIndex(line)
		if open == nil {
			return b.String() + line
		}
		b.WriteString(line[:open[0]])
		length, rest := open[1]-open[0], line[open[1]:]
		line = rest
		for _, end := range ticks.FindAllStringIndex(rest, -1) {
			if end[1]-end[0] == length {
				line = rest[end[1]:]
				break
			}
		}
	}
}

func TestHostileTextDoesNotAct(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		report := hostileReport(text)
		report.Judge(diff.FailOnAny)
		for format := range extensions {
			data, err := report.Render(format)
			if err != nil {
				t.Fatal(err)
			}
			if !utf8.Valid(data) {
				t.Errorf("%s of %.40q is no UTF-8", format, text)
			}
			for _, r := range string(data) {
				if r != '\n' && r != '\u200d' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028') {
					t.Errorf("%s of %.40q has %q", format, text, r)
					break
				}
			}
			for line := range strings.SplitSeq(string(data), "\n") {
				if format == output.Text && (strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##")) {
					t.Errorf("a runner would obey %.80q", line)
				}
				if outside := outsideCode(line); format == output.Markdown && line != diff.Marker &&
					(strings.ContainsAny(outside, "<@[]|") || strings.Contains(outside, "http")) {
					t.Errorf("a forge would act on %.120q of %.80q", outside, line)
				}
			}
			if format == output.Markdown && (len(data) > output.MaxComment || strings.Count(string(data), "\n"+diff.Marker) > 0) {
				t.Errorf("the comment of %.40q has %d bytes, or two markers", text, len(data))
			}
		}
	}
}

// What does not fit a comment is left out by whole pools, and counted.
func TestCommentsFit(t *testing.T) {
	t.Parallel()
	many := &diff.Report{Base: diff.Revision{Name: "main"}}
	for i := range 600 {
		o, _ := diff.CompareObjects(renamed(document(t, "ExecutorPool", "spec: {maxRunners: 1}"), i), renamed(document(t, "ExecutorPool", "spec: {maxRunners: 2, hubURL: https://a}"), i))
		many.Overlays = append(many.Overlays, diff.Overlay{Path: fmt.Sprintf("clusters/c%d", i%50), Objects: []diff.Object{o}})
	}
	for i := range 100 {
		many.Notes = append(many.Notes, fmt.Sprintf("note %d %s", i, strings.Repeat("x ", 500)))
	}
	many.Judge(diff.FailOnAny)
	data, err := many.Render(output.Markdown)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Count(string(data), "\n### ")
	if len(data) > output.MaxComment || shown < 100 || !strings.Contains(string(data), fmt.Sprintf("**Left out here: %d pools; `cloop fleet diff --base main` shows all.**", 600-shown)) {
		t.Errorf("%d bytes, %d pools shown: %.400s", len(data), shown, data)
	}
	if !strings.HasPrefix(string(data), diff.Marker+"\n## 🔄 Fleet diff: 600 changes\n\n600 of 600 roots differ") {
		t.Errorf("it begins with %.200s", data)
	}
	// A pool that is too large alone is cut, not hidden.
	one := &diff.Report{Base: diff.Revision{Name: "main"}}
	for i := range 700 {
		o, _ := diff.CompareObjects(document(t, "ExecutorPool", "spec: {maxRunners: 1}"), document(t, "ExecutorPool", "spec: {maxRunners: 2}"))
		one.Overlays = append(one.Overlays, diff.Overlay{Path: fmt.Sprintf("clusters/c%d", i), Objects: []diff.Object{o}})
	}
	one.Judge(diff.FailOnAny)
	if data, err = one.Render(output.Markdown); err != nil {
		t.Fatal(err)
	}
	if len(data) > output.MaxComment || strings.Count(string(data), "clusters/c") < 100 || !strings.Contains(string(data), "a part of the first one") {
		t.Errorf("%d bytes: %.400s", len(data), data)
	}
}

func renamed(o *unstructured.Unstructured, i int) *unstructured.Unstructured {
	o.SetName(fmt.Sprintf("pool-%d", i))
	return o
}

// Whatever somebody has committed where it does not belong stays there.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const canary = "hunter2canary"
	files := fleetFiles()
	r := newRepo(t, files)
	pem := "-----BEGIN PRIVATE KEY-----\\n" + canary + "\\n-----END PRIVATE KEY-----"
	pool := func(n string) string {
		return strings.Replace(executorPool("gpu", "maxRunners: 4\n  hubCABundle: \""+pem+n+"\"\n  runnerLabels: {token: cloop_pool1_"+canary+n+", password: "+canary+n+", example.com/api-key: "+canary+n+"}\n"+
			"  env: [{name: A, value: "+canary+n+"}]\n  template: {image: \"registry.example.com/a:glpat-"+canary+canary+n+"\", env: [{name: A, value: "+canary+n+", secretKeyRef: {name: s, key: k, value: "+canary+n+"}}]}"),
			"https://hub.example.com", "https://ada:"+canary+n+"@hub.example.com/x?access_token="+canary+n, 1) + strings.ReplaceAll("---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: n, annotations: {note: VALUE}}\nstringData: {password: VALUE}\ndata: {token: VALUE}\n"+
			"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: n}\ndata: {password: VALUE}\n"+
			"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: n}\nspec: {podSelector: {matchLabels: {token: VALUE}}}\n"+
			"---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, namespace: n, labels: {token: VALUE}, annotations: {password: VALUE}}\nimagePullSecrets: [{name: \"https://ada:VALUE@x\"}]\n", "VALUE", canary+n)
	}
	sync := func(n string) string {
		return "apiVersion: cloop.dev/v1alpha1\nkind: PoolSync\nmetadata: {name: s, namespace: n}\nspec: {interval: 1m, path: nowhere, source: {git: {url: \"https://ada:" + canary + n + "@git.example.com/x\"}}, substitute: {vars: {PASSWORD: " + canary + n + "}}}\n"
	}
	r.commit("One", map[string]string{"pools/base/gpu.yaml": pool("1"), "syncs/a.yaml": sync("1")})
	r.write(map[string]string{"pools/base/gpu.yaml": pool("2"), "syncs/a.yaml": sync("2"), "clusters/us/kustomization.yaml": "resources: [\"https://ada:" + canary + "@git.example.com/x?ref=v1\"]\n"})
	report, err := r.compare("HEAD")
	if err != nil {
		t.Fatal(err)
	}
	got := everything(t, report)
	if strings.Contains(got, canary) {
		t.Errorf("a secret is shown:\n%s", got)
	}
	for _, want := range []string{"/spec/hubURL", "/spec/substitute/vars/PASSWORD", "/spec/template/image", "/spec/runnerLabels/token", "/spec/hubCABundle", "/stringData/password", "Secret n/s changed"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not told", want)
		}
	}
	if _, err := r.compare("https://ada:" + canary + "@git.example.com/x"); err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("of a revision that is none: %v", err)
	}
	if shown := everything(t, diff.Failed("https://git.example.com/x?token="+canary, os.ErrNotExist)); strings.Contains(shown, canary) {
		t.Error("the revision shows a secret")
	}
	if err := diff.Failed("main", fmt.Errorf("clone https://ada:%s@git.example.com/x: no", canary)); strings.Contains(everything(t, err), canary) {
		t.Error("the reason shows a secret")
	}
}
