package sandbox_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/sandbox"
)

func TestWhatAProjectAsksFor(t *testing.T) {
	for text, want := range map[string]hubv1.Requirements{
		"":                      {},
		"# nothing\n":           {},
		"---\n":                 {},
		"capabilities:\n":       {},
		"capabilities: {}\n":    {},
		"labels: {gpu: 'true'}": {Labels: map[string]string{"gpu": "true"}},
		"capabilities:\n  kernelIsolated: true\n  network: false\n": {Capabilities: map[string]bool{"kernelIsolated": true, "network": false}},
	} {
		got, err := sandbox.Parse([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q asks for %+v, %v", text, got, err)
		}
	}
}

func TestMistakesAreNamedWithTheirLines(t *testing.T) {
	for text, want := range map[string]string{
		"capabilities:\n  hypervisor: true\nimage: x\n": `.cloop/sandbox.yaml:3: unknown key "image"`,
		"capabilities:\n  - a\n":                        ".cloop/sandbox.yaml:2: capabilities must be a mapping",
		"capabilities:\n  a: yes\n":                     ".cloop/sandbox.yaml:2: capability a must be true or false",
		"capabilities:\n\n  a: 1\n":                     ".cloop/sandbox.yaml:3: capability a must be true or false",
		"capabilities:\n  a-b: true\n":                  ".cloop/sandbox.yaml:2: \"a-b\" is no capability",
		"capabilities:\n  a: true\n  a: false\n":        `.cloop/sandbox.yaml:3: "a" is there twice`,
		"labels:\n  gpu: true\n":                        ".cloop/sandbox.yaml:2: label gpu must be text: write it in quotes",
		"labels:\n  a: \"x\\ny\"\n":                     ".cloop/sandbox.yaml:2: label a must be one line",
		"a: &x {b: true}\ncapabilities: *x\n":           ".cloop/sandbox.yaml:2: aliases are not taken",
		"capabilities:\n  <<: {a: true}\n":              ".cloop/sandbox.yaml:2: a key of capabilities must be plain text",
		"? [a]\n: b\n":                                  ".cloop/sandbox.yaml:1: a key of the file must be plain text",
		"- a\n":                                         ".cloop/sandbox.yaml:1: the file must be a mapping",
		"{}\n---\n{}\n":                                 "has a second document",
		"a: b: c\n":                                     ".cloop/sandbox.yaml: is no YAML: mapping values",
		"a: \xff\n":                                     ": is no YAML",
		"capabilities: {" + strings.Repeat("a", 300) + ": true}": ".cloop/sandbox.yaml:1: ",
		strings.Repeat("#", sandbox.MaxBytes) + "\n":             ".cloop/sandbox.yaml: is longer than 65536 bytes",
		"labels: {" + strings.Repeat("aa: b, ", 65) + "}":        "more than 64 entries",
		"\x1b[31mred: true\n":                                    ".cloop/sandbox.yaml",
	} {
		_, err := sandbox.Parse([]byte(text))
		var invalid *sandbox.Invalid
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q is refused with %v, want %s", text, err, want)
		}
	}
	_, err := sandbox.Parse([]byte("x: 1\nlabels: {a: 1}\ny: 2\n"))
	if want := 3; strings.Count(err.Error(), sandbox.Path) != want {
		t.Errorf("of %d mistakes are named: %v", want, err)
	}
}

func TestUnmetRequirementsAreNamedWithWhatIsDeclared(t *testing.T) {
	pool := hubv1.Declared{Pool: "gpu", Capabilities: map[string]bool{"kernelIsolated": true, "network": true}, Labels: map[string]string{"gpu": "true"}}
	asked := hubv1.Requirements{
		Capabilities: map[string]bool{"kernelIsolated": true, "network": false, "hypervisor": true, "absent": false},
		Labels:       map[string]string{"gpu": "true", "arch": "arm64"},
	}
	want := []string{
		"capability absent: false, of which pool gpu declares nothing",
		"capability hypervisor: true, of which pool gpu declares nothing",
		"capability network: false, which pool gpu declares to be true",
		"label arch=arm64, which pool gpu does not have",
	}
	if got := sandbox.Unmet(asked, pool); !reflect.DeepEqual(got, want) {
		t.Errorf("unmet are %q", got)
	}
	pool.Labels["gpu"] = "a100"
	if got := sandbox.Unmet(hubv1.Requirements{Labels: asked.Labels}, pool); len(got) != 2 || !strings.Contains(got[1], "is a100") {
		t.Errorf("unmet are %q", got)
	}
	if got := sandbox.Unmet(hubv1.Requirements{}, hubv1.Declared{}); got != nil {
		t.Errorf("nothing is asked for, and unmet are %q", got)
	}
}

// FuzzParse holds what anybody may commit to: a verdict, bounded and fit to be
// shown, and what was understood is what the file says.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "capabilities: {a: true}\nlabels: {b: c}\n", "a: &a [*a]\n", "{{{{", "\x00", "capabilities: !!bool x", "%YAML 1.1\n---\n", "? |\n  a\n: b",
		"capabilities: !!map {a: !!bool true}", "labels:\n\ta: b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := sandbox.Parse(data)
		if err == nil {
			if len(got.Capabilities) > 64 || len(got.Labels) > 64 {
				t.Fatalf("%d capabilities and %d labels", len(got.Capabilities), len(got.Labels))
			}
			for name, value := range got.Labels {
				if printable.Line(name+value) != name+value {
					t.Fatalf("label %q=%q", name, value)
				}
			}
			return
		}
		var invalid *sandbox.Invalid
		if !errors.As(err, &invalid) || !got.Empty() || len(invalid.Mistakes) == 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		if text := err.Error(); printable.Line(text) != text || len(text) > 20*512 {
			t.Fatalf("not fit to be shown: %q", text)
		}
		for _, m := range invalid.Mistakes {
			if m.Line < 0 || m.Line > len(data)+1 {
				t.Fatalf("line %d of %d bytes", m.Line, len(data))
			}
		}
	})
}
