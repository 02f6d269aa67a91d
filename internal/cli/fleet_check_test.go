package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet/output"
)

// all are the formats of a file each, in the working directory.
var all = []string{
	"-o", "text", "-o", "json=report.json", "-o", "yaml=report.yaml", "-o", "sarif=fleet.sarif",
	"-o", "github=github.txt", "-o", "gitlab=gitlab.json", "-o", "junit=junit.xml", "-o", "markdown=comment.md",
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Every output says the same, and the exit code too; paths are those of the
// repository wherever the command runs.
func TestFleetCheckWritesEveryOutput(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	for _, test := range []struct {
		name string
		from string
		pool string
		code int
		says map[string]string
	}{
		{"sound", ".", executorPoolYAML, 0, map[string]string{
			"report.json": `"verdict": "sound"`, "report.yaml": "verdict: sound", "fleet.sarif": `"exitCode": 0`, "github.txt": "all is well",
			"gitlab.json": "[]", "junit.xml": `value="sound"`, "comment.md": "✅ Fleet check: all is well",
		}},
		{"unsound", "clusters/eu", strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: 5", 1), 1, map[string]string{
			"report.json": `"file": "pools/gpu.yaml"`, "report.yaml": "file: pools/gpu.yaml", "fleet.sarif": `"uri": "pools/gpu.yaml"`, "github.txt": "::error file=pools/gpu.yaml,line=",
			"gitlab.json": `"path": "pools/gpu.yaml"`, "junit.xml": "CDATA[pools/gpu.yaml:", "comment.md": "- ❌ `pools/gpu.yaml:",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			edit(t, filepath.Join(dir, "pools/gpu.yaml"), test.pool)
			t.Chdir(filepath.Join(dir, test.from))
			got := cloop(t, append([]string{"fleet", "check", dir}, all...)...)
			if got.code != test.code || got.stderr != "" || test.code == 1 && !strings.HasPrefix(got.stdout, "../../pools/gpu.yaml:") {
				t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
			}
			for name, want := range test.says {
				if content := read(t, name); !strings.Contains(content, want) {
					t.Errorf("%s does not say %s:\n%s", name, want, content)
				}
			}
			if left, err := filepath.Glob("*.new"); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// What collects the files finds the reason in them too, not those of a run
// before.
func TestFleetCheckWritesOutputsWithoutAnAnswer(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "docs/README.md"), "text\n")
	for path, reason := range map[string]string{"docs": "nothing to check in docs", "nowhere": "read nowhere: no such file"} {
		got := cloop(t, append([]string{"fleet", "check", path}, all...)...)
		if got.code != 2 || !strings.Contains(got.stderr, reason) {
			t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
		}
		for _, name := range []string{"report.json", "report.yaml", "fleet.sarif", "github.txt", "gitlab.json", "junit.xml", "comment.md"} {
			if content := read(t, name); !strings.Contains(content, reason) {
				t.Errorf("%s does not say %s:\n%s", name, reason, content)
			}
		}
	}
}

// An output that cannot be is refused before anything is done.
func TestFleetCheckRefusesOutputsFirst(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "taken/x"), "")
	if err := os.Symlink("hub", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for outputs, want := range map[string]string{
		"sarif=no/such/fleet.sarif":  "-o sarif=no/such/fleet.sarif: there is no directory no/such: create it first",
		"sarif=hub/gpu.yaml/x":       "-o sarif=hub/gpu.yaml/x: hub/gpu.yaml is not a directory: name a file in one",
		"sarif=taken":                "-o sarif=taken: it is a directory: name a file in it",
		"sarif=":                     "-o sarif=: the file has no name: use -o sarif=FILE",
		"html":                       "-o html: no such format: use text, json, yaml, sarif, github, gitlab, junit or markdown",
		"sarif,junit":                "-o sarif,junit: only one format can go to standard output: write the others to a file with -o junit=FILE",
		"sarif=a.json,gitlab=a.json": "-o gitlab=a.json: sarif goes to that file already: give each format its own",
		"json=x,yaml=./x":            "-o yaml=./x: json goes to that file already: give each format its own",
		"json=hub/../x,yaml=x":       "-o yaml=x: json goes to that file already: give each format its own",
		"json=link/x,yaml=hub/x":     "-o yaml=hub/x: json goes to that file already: give each format its own",
		"json=" + filepath.Join(dir, "x") + ",yaml=x": "-o yaml=x: json goes to that file already: give each format its own",
		"text,sarif=x,json=no/x.json":                 "-o json=no/x.json: there is no directory no: create it first",
	} {
		got := cloop(t, "fleet", "check", "-o", outputs)
		if got.code != 2 || got.stdout != "" || got.stderr != "cloop: "+want+"\n" {
			t.Errorf("of %s: exit code %d, stdout %s, stderr %s", outputs, got.code, got.stdout, got.stderr)
		}
	}
	if _, err := os.Stat("x"); !os.IsNotExist(err) {
		t.Errorf("work was done before the refusal: %v", err)
	}
	cloop(t, "project", "list", "-o", "sarif").want(t, 2, "", "cloop: -o sarif: no such format: use text, json or yaml\n")
}

// A file is replaced as a whole with the mode it had, through a link to it;
// what is no file is written to.
func TestOutputFilesAreReplaced(t *testing.T) {
	noHub(t)
	fleetRepository(t)
	edit(t, "real.json", strings.Repeat("old ", 1<<20))
	if err := os.Chmod("real.json", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.json", "link.json"); err != nil {
		t.Fatal(err)
	}
	cloop(t, "fleet", "check", "-o", "json=link.json").want(t, 0, "", "")
	var report struct{ OK bool }
	if err := json.Unmarshal([]byte(read(t, "real.json")), &report); err != nil || !report.OK {
		t.Errorf("the file holds %+v (%v)", report, err)
	}
	info, err := os.Lstat("real.json")
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the mode is %v (%v)", info.Mode(), err)
	}
	if info, err := os.Lstat("link.json"); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v (%v)", info, err)
	}
	cloop(t, "fleet", "check", "-o", "json=/dev/null").want(t, 0, "", "")
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode().Type()&os.ModeDevice == 0 {
		t.Fatalf("/dev/null is %v (%v)", info, err)
	}
}

// An output that fails hides no other, and the command did not succeed.
func TestFleetCheckWritesWhatItCan(t *testing.T) {
	noHub(t)
	fleetRepository(t)
	// The file on the way to it cannot be made.
	if err := os.Mkdir("fleet.sarif.new", 0o755); err != nil {
		t.Fatal(err)
	}
	got := cloop(t, "fleet", "check", "-o", "sarif=fleet.sarif", "-o", "junit=junit.xml", "-o", "text")
	if got.code != 2 || !strings.HasSuffix(got.stdout, "all is well\n") || !strings.Contains(got.stderr, "write the result: open fleet.sarif.new: is a directory") {
		t.Errorf("exit code %d, stdout %s, stderr %s", got.code, got.stdout, got.stderr)
	}
	if content := read(t, "junit.xml"); !strings.Contains(content, `value="sound"`) {
		t.Errorf("junit.xml holds %s", content)
	}
}

// A name in the repository is no command to a runner that reads the text.
func TestFleetCheckTextIsNoCommand(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "::stop-commands::x/pool.yaml"), "kind: \"##[add-path]a\\e[31m\"\n")
	got := cloop(t, "fleet", "check", "./::stop-commands::x")
	for _, line := range strings.Split(got.stdout, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##") || strings.Contains(line, "\x1b") {
			t.Errorf("the line is a command: %q", line)
		}
	}
	if got.code != 1 || !strings.HasPrefix(got.stdout, "./::stop-commands::x/pool.yaml:1:1: ") {
		t.Errorf("exit code %d, stdout %s", got.code, got.stdout)
	}
	if t.Failed() {
		fmt.Println(got.stderr)
	}
}

// The jobs of the documentation are YAML, and their commands work.
func TestFleetCheckIsDocumented(t *testing.T) {
	page := read(t, "../../docs/check.md")
	noHub(t)
	gitIn(t, fleetRepository(t), "commit", "--quiet", "--allow-empty", "--message=Go on")
	// As the shell of a merge request's job has it.
	page = strings.ReplaceAll(page, `${CI_MERGE_REQUEST_DIFF_BASE_SHA:+--base "$CI_MERGE_REQUEST_DIFF_BASE_SHA"}`, "--base HEAD^1")
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1) {
		var job map[string]any
		if err := yaml.UnmarshalStrict([]byte(block[1]), &job); err != nil {
			t.Errorf("%v:\n%s", err, block[1])
		}
		for _, command := range regexp.MustCompile(`cloop (fleet check .*)`).FindAllStringSubmatch(block[1], -1) {
			commands++
			if got := cloop(t, strings.Fields(command[1])...); got.code != 0 {
				t.Errorf("%s: exit code %d, stderr %s", command[0], got.code, got.stderr)
			}
			if comment := read(t, "comment.md"); !strings.HasPrefix(comment, output.Marker+"\n") {
				t.Errorf("the comment is %s", comment)
			}
		}
	}
	if commands != 2 || strings.Count(page, output.Marker) != 2 {
		t.Errorf("%d commands, %d markers", commands, strings.Count(page, output.Marker))
	}
	for _, format := range output.Formats() {
		if !strings.Contains(page, "`"+string(format)+"`") {
			t.Errorf("the page does not tell of %s", format)
		}
	}
}

// What a repository says of its own check counts from the command line too, and
// rules on changes know what was before.
// What is not checked out is not checked, and the answer says so. What only that may
// cause is no problem.
func TestFleetCheckOfASparseCheckout(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	gitIn(t, dir, "sparse-checkout", "set", "pools", "clusters")
	const note = "the checkout is sparse, and what is not checked out was not checked: for the whole answer run `git sparse-checkout disable`"
	got := cloop(t, "fleet", "check", "-o", "text", "-o", "json=check.json", "-o", "markdown=check.md", "-o", "sarif=check.sarif", "-o", "gitlab=check.gitlab", "-o", "junit=check.xml")
	if got.code != 0 || !strings.Contains(got.stdout, "note: "+note) || !strings.Contains(got.stdout, ": all is well that is checked out\n") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for name, says := range map[string]string{"check.json": `"sparse": true`, "check.md": "all is well that is checked out", "check.sarif": "the checkout is sparse", "check.gitlab": "the checkout is sparse", "check.xml": "the checkout is sparse"} {
		if text := read(t, name); !strings.Contains(text, says) {
			t.Errorf("%s does not say %q: %s", name, says, text)
		}
	}
	gitIn(t, dir, "sparse-checkout", "set", "clusters")
	got = cloop(t, "fleet", "check")
	if got.code != 1 || !strings.Contains(got.stdout, "; the checkout is sparse: `git sparse-checkout add DIR` if it is committed and only not checked out") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	gitIn(t, dir, "sparse-checkout", "disable")
	if got = cloop(t, "fleet", "check"); got.code != 0 || strings.Contains(got.stdout, "sparse") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

func TestFleetCheckHonoursTheRepository(t *testing.T) {
	noHub(t)
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, ".cloop/rules.cue"), `rules: "grow-slowly": {
	message:    "a pool grows by at most half at a time"
	expression: "!oldObject.hasValue() || object.spec.maxRunners * 2 <= oldObject.value().spec.maxRunners * 3"
	match: kinds: ["ExecutorPool"]
}
`)
	sound := "2 roots, 2 documents, 1 pool: all is well"
	cloop(t, "fleet", "check", "--base", "HEAD").want(t, 0, sound+"\n", "")
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "maxRunners: 4", "maxRunners: 8 # cloop:ignore maximum-above-hub soon", 1))
	cloop(t, "fleet", "check").want(t, 0, sound+"; 1 ignored\n", "")
	if got := cloop(t, "fleet", "check", "--base", "HEAD"); got.code != 1 || !strings.Contains(got.stdout, "a pool grows by at most half at a time in clusters/eu [grow-slowly]") {
		t.Errorf("exit code %d, %s%s", got.code, got.stdout, got.stderr)
	}
	if got := cloop(t, "fleet", "check", "--base", "nowhere"); got.code != 2 || !strings.Contains(got.stderr, "nowhere") {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
}
