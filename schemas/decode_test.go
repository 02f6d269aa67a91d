package schemas

import (
	"strings"
	"testing"
)

const fleetFile = `# a comment first
apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
  annotations:
    example.com/a: one
spec:
  maxRunners: 4
  template:
    env:
      - name: A
        secretKeyRef: {name: s, key: a}
      - name: B
---
apiVersion: cloop.dev/v1alpha1
kind: HubPool
metadata: {name: gpu}
spec: {maxRunners: 4}
`

func TestDecodeKeepsPositions(t *testing.T) {
	documents, problems := Decode("fleet.yaml", []byte(fleetFile))
	if len(problems) > 0 || len(documents) != 2 {
		t.Fatalf("%d documents, %v", len(documents), problems)
	}
	for pointer, want := range map[string][2]int{
		"":                                     {2, 1},
		"/spec":                                {8, 1},
		"/spec/maxRunners":                     {9, 3},
		"/spec/minRunners":                     {8, 1},
		"/spec/template/env/1/name":            {14, 9},
		"/spec/template/env/1":                 {14, 9},
		"/spec/template/env/7/name":            {11, 5},
		"/metadata/annotations/example.com~1a": {7, 5},
	} {
		if line, column := documents[0].Position(pointer); [2]int{line, column} != want {
			t.Errorf("%q is at %d:%d, want %v", pointer, line, column, want)
		}
	}
	for path, want := range map[string][2]int{
		"metadata.annotations[example.com/a]":   {7, 5},
		"metadata.annotations.example.com/a":    {7, 5},
		"spec.template.env[0].secretKeyRef.key": {13, 33},
	} {
		if line, column := documents[0].positionOf(path); [2]int{line, column} != want {
			t.Errorf("%q is at %d:%d, want %v", path, line, column, want)
		}
	}
	if documents[1].Line != 16 || documents[1].File != "fleet.yaml" {
		t.Errorf("the second document is at %s:%d", documents[1].File, documents[1].Line)
	}
	if line, column := (&Document{Line: 7}).Position("/spec"); line != 7 || column != 1 {
		t.Errorf("without nodes a field is at %d:%d, want the document's line", line, column)
	}
}

func TestDecodeReadsValuesAsKubernetesDoes(t *testing.T) {
	documents, problems := Decode("", []byte("apiVersion: v1\nkind: X\nyes: on\nnumber: 010\nbig: 3\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	object := documents[0].Object.Object
	if object["true"] != true {
		t.Errorf("yes: on reads as %v, want true: true", object)
	}
	if object["number"] != int64(8) || object["big"] != int64(3) {
		t.Errorf("numbers read as %v %v, want 8 and 3", object["number"], object["big"])
	}
}

func TestDecodeNamesTheBrokenLine(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		line int
	}{
		"wrong indentation":  {"apiVersion: v1\nkind: X\nspec:\n  a: 1\n   b: 2\n  c: 3\n", 5},
		"tab":                {"apiVersion: v1\nkind: X\nspec:\n\ta: 1\n", 4},
		"bracket never shut": {"apiVersion: v1\nkind: X\nspec: {a: 1\nstatus: 2\n", 3},
		"second document":    {"a: 1\n---\nb: 2\n- c\n", 4},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := Decode("f", []byte(test.text))
			last := problems[len(problems)-1]
			if last.Rule != RuleSyntax || last.Line != test.line {
				t.Errorf("found %v, want a syntax error on line %d", last, test.line)
			}
		})
	}
}

func TestDecodeReadsWhatStandsBeforeASyntaxError(t *testing.T) {
	documents, problems := Decode("f", []byte("apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\ntext: |\n  last\n  lines\n---\nb: [\n"))
	if len(documents) != 2 || len(problems) != 1 || problems[0].Rule != RuleSyntax {
		t.Fatalf("%d documents, %v", len(documents), problems)
	}
	if text := documents[1].Object.Object["text"]; text != "last\nlines\n" {
		t.Errorf("the last whole document reads %q", text)
	}
}

func TestProblemPrintsOnOneLine(t *testing.T) {
	problem := Problem{File: "a.yaml", Line: 3, Column: 5, Object: "HubPool gpu", Path: "spec.maxRunners", Message: "Invalid value: \"a\nb\"", Hint: "fix it"}
	if got, want := problem.String(), `a.yaml:3:5: HubPool gpu: spec.maxRunners: Invalid value: "a\nb" (fix it)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzDecode holds that no text breaks Decode, Position or Validate, and that
// every problem is inside the text.
func FuzzDecode(f *testing.F) {
	validator := mustValidator(f)
	f.Add([]byte(fleetFile))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("apiVersion: v1\nkind: A\n<<: &x {y: *x}\n...\n%YAML 1.1\n--- {}\n"))
	f.Add([]byte("{\"apiVersion\":\"cloop.dev/v1alpha1\",\"kind\":\"PoolSync\",\"metadata\":[],\"spec\":{\"a\":[{}]}}"))
	f.Add([]byte("apiVersion: cloop.dev/v1alpha1\r\nkind: HubPool\r\nmetadata: {name: a}\r\nspec: {maxRunners: 1e999}\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + strings.Count(string(data), "\u0085") +
			strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029") + 1
		documents, problems := Decode("f", data)
		for _, document := range documents {
			if document.Object == nil || document.Node == nil {
				t.Fatal("a document without an object or nodes")
			}
			document.Position("/spec/a/0/b")
			problems = append(problems, validator.Validate(document)...)
		}
		for _, problem := range problems {
			if problem.Line < 1 || problem.Line > lines || problem.Column < 1 {
				t.Errorf("%v is outside of the %d lines", problem, lines)
			}
			if strings.Contains(problem.String(), "\n") {
				t.Errorf("%q breaks the line", problem.String())
			}
		}
	})
}
