package output_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/output"
)

// isCommand says whether a runner reads a line of a log as a command: one that
// begins with ::, or has a bracket behind ## or behind ## and a name anywhere.
func isCommand(line string) bool {
	return strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##")
}

// annotation is a workflow command as the runner reads it.
type annotation struct {
	kind, message string
	properties    map[string]string
}

var unescape = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%")

func readAnnotation(t *testing.T, line string) annotation {
	t.Helper()
	info, message, ok := strings.Cut(strings.TrimPrefix(line, "::"), "::")
	if !ok {
		t.Fatalf("no command: %s", line)
	}
	a := annotation{properties: map[string]string{}, message: unescape.Replace(message)}
	var properties string
	a.kind, properties, _ = strings.Cut(info, " ")
	for _, property := range strings.Split(properties, ",") {
		name, value, ok := strings.Cut(property, "=")
		if !ok || a.properties[name] != "" {
			t.Errorf("the property %q is none, or there twice: %s", property, line)
		}
		a.properties[name] = unescape.Replace(value)
	}
	return a
}

// validGitHub reads the commands as a runner does: the annotations are those of
// the problems, not more than are shown, and no other line is a command.
func validGitHub(t *testing.T, result *output.Result, data []byte) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	last := len(lines) - 1
	if isCommand(lines[last]) || lines[last] != result.Summary() {
		t.Errorf("the last line is no summary: %s", lines[last])
	}
	kinds := map[string]int{}
	places := map[string]bool{"": true}
	for i := range result.Report.Problems {
		places[result.Report.Problems[i].File] = true
	}
	for _, line := range lines[:last] {
		if !strings.HasPrefix(line, "::") {
			t.Errorf("a line is no command: %q", line)
			continue
		}
		a := readAnnotation(t, line)
		kinds[a.kind]++
		if a.kind != "error" && a.kind != "warning" && a.kind != "notice" {
			t.Errorf("the command %q is none of ours: %s", a.kind, line)
		}
		if a.message == "" || a.properties["title"] == "" {
			t.Errorf("no message or no title: %s", line)
		}
		if file := a.properties["file"]; !places[file] && !strings.Contains(file, `\`) {
			t.Errorf("the file %q has no problem: %s", file, line)
		}
		noControls(t, output.GitHub, line)
	}
	if kinds["error"] > 10 || kinds["warning"] > 10 || kinds["notice"] > 10 {
		t.Errorf("more annotations than GitHub shows: %v", kinds)
	}
}

func TestGitHubEscapesProperties(t *testing.T) {
	problem := wrong("a,b:c%.yaml", 3)
	problem.Message = "100% of a:b,c\nand more"
	data := rendered(t, output.Judge(reportOf(problem)))[output.GitHub]
	line, _, _ := strings.Cut(string(data), "\n")
	want := `::error file=a%2Cb%3Ac%25.yaml,line=3,col=5,title=Fleet check%3A cel::ExecutorPool team/gpu: spec.hubURL: 100%25 of a:b,c\nand more (do this) in clusters/eu`
	if line != want {
		t.Errorf("the command is\n%s\nwant\n%s", line, want)
	}
}
