package output_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet/output"
)

// element is a parsed element of XML.
type element struct {
	name       string
	attributes map[string]string
	children   []*element
	text       string
}

func parseXML(t *testing.T, data []byte) *element {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(data))
	stack := []*element{{}}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("XML: %v\n%s", err, data)
		}
		top := stack[len(stack)-1]
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attributes: map[string]string{}}
			for _, attribute := range token.Attr {
				e.attributes[attribute.Name.Local] = attribute.Value
			}
			top.children = append(top.children, e)
			stack = append(stack, e)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				top.text += string(token)
			}
		}
	}
	return stack[0].children[0]
}

// rule is what a schema says of an element: which children in which order, as a
// pattern of their names with a comma behind each, and attribute → the pattern
// of its value.
type rule struct {
	children             string
	required, attributes map[string]string
	text                 bool
}

// grammar: element → rule.
type grammar map[string]rule

func (g grammar) validate(t *testing.T, e *element) {
	t.Helper()
	r, ok := g[e.name]
	if !ok {
		t.Errorf("there is no element %s", e.name)
		return
	}
	var names strings.Builder
	for _, child := range e.children {
		names.WriteString(child.name + ",")
		g.validate(t, child)
	}
	if !matches(r.children, names.String()) {
		t.Errorf("%s has the children %.1000s, want %s", e.name, names.String(), r.children)
	}
	for name := range r.required {
		if _, ok := e.attributes[name]; !ok {
			t.Errorf("%s lacks the attribute %s", e.name, name)
		}
	}
	for name, value := range e.attributes {
		pattern, ok := r.attributes[name]
		if !ok {
			pattern, ok = r.required[name]
		}
		if !ok || !matches(pattern, value) {
			t.Errorf("%s may not have the attribute %s=%q", e.name, name, value)
		}
	}
	if !r.text && e.text != "" {
		t.Errorf("%s may not have the text %q", e.name, e.text)
	}
}

var patterns = map[string]*regexp.Regexp{}

// matches says whether a pattern fits the whole text.
func matches(pattern, text string) bool {
	if patterns[pattern] == nil {
		patterns[pattern] = regexp.MustCompile(`^(?s:` + pattern + `)$`)
	}
	return patterns[pattern].MatchString(text)
}

const (
	anyText  = `.*`
	someText = `.+`
	number   = `[0-9]+`
	decimal  = `[0-9]+(\.[0-9]+)?`
)

// antGrammar is what Ant's report requires, the strictest that is in use.
var antGrammar = grammar{
	"testsuites": {children: `(testsuite,)*`},
	"testsuite": {children: `properties,(testcase,)*system-out,system-err,`, required: map[string]string{
		"name": someText, "package": anyText, "id": number, "timestamp": `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`, "hostname": someText,
		"tests": number, "failures": number, "errors": number, "time": decimal,
	}},
	"properties": {children: `(property,)*`},
	"property":   {required: map[string]string{"name": someText, "value": anyText}},
	"testcase": {children: `(skipped,|error,|failure,)?`, required: map[string]string{
		"name": anyText, "classname": anyText, "time": decimal,
	}},
	"skipped":    {text: true},
	"error":      {text: true, required: map[string]string{"type": anyText}, attributes: map[string]string{"message": anyText}},
	"failure":    {text: true, required: map[string]string{"type": anyText}, attributes: map[string]string{"message": anyText}},
	"system-out": {text: true},
	"system-err": {text: true},
}

// xsdGrammar reads the part of XML Schema that Jenkins' schema uses: elements
// of text, or with a sequence of references and attributes of text. Anything
// else fails the test, so that nothing is passed over.
func xsdGrammar(t *testing.T, file string) grammar {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := grammar{}
	for _, e := range parseXML(t, data).children {
		if e.name != "element" {
			t.Fatalf("%s: %s is not understood", file, e.name)
		}
		r := rule{required: map[string]string{}, attributes: map[string]string{}, text: e.attributes["type"] == "xs:string"}
		for _, of := range e.children {
			r.text = of.attributes["mixed"] == "true"
			for _, part := range of.children {
				r.add(t, part)
			}
		}
		g[e.attributes["name"]] = r
	}
	return g
}

func (r *rule) add(t *testing.T, part *element) {
	t.Helper()
	switch {
	case part.name == "attribute" && part.attributes["type"] == "xs:string" && part.attributes["use"] == "required":
		r.required[part.attributes["name"]] = anyText
	case part.name == "attribute" && part.attributes["type"] == "xs:string":
		r.attributes[part.attributes["name"]] = anyText
	case part.name == "sequence":
		for _, child := range part.children {
			least, most := child.attributes["minOccurs"], child.attributes["maxOccurs"]
			if least == "" {
				least = "1"
			}
			switch most {
			case "":
				most = "1"
			case "unbounded":
				most = ""
			}
			r.children += fmt.Sprintf("(?:%s,){%s,%s}", child.attributes["ref"], least, most)
		}
	default:
		t.Fatalf("%s %v is not understood", part.name, part.attributes)
	}
}

// validJUnit holds a report to both schemas, and its counts to its cases.
func validJUnit(t *testing.T, result *output.Result, data []byte) {
	t.Helper()
	root := parseXML(t, data)
	xsdGrammar(t, "testdata/schemas/jenkins-junit.xsd").validate(t, root)
	antGrammar.validate(t, root)
	noControls(t, output.JUnit, string(data))
	failures, all := 0, map[string]bool{}
	for i, suite := range root.children {
		counted := map[string]int{}
		for _, c := range suite.children {
			if c.name != "testcase" {
				continue
			}
			counted["tests"]++
			for _, outcome := range c.children {
				counted[outcome.name+"s"]++
			}
			name := c.attributes["classname"] + "\x00" + c.attributes["name"]
			if all[name] || c.attributes["name"] == "" {
				t.Errorf("the case %q is there twice or has no name", name)
			}
			all[name] = true
		}
		for _, name := range []string{"tests", "failures", "errors"} {
			if suite.attributes[name] != strconv.Itoa(counted[name]) {
				t.Errorf("suite %s has %s=%s, and %d", suite.attributes["name"], name, suite.attributes[name], counted[name])
			}
		}
		if suite.attributes["id"] != strconv.Itoa(i) {
			t.Errorf("suite %d has the id %s", i, suite.attributes["id"])
		}
		failures += counted["failures"]
	}
	if result.Verdict == output.Unsound && failures == 0 {
		t.Error("no case fails")
	}
}

// The grammars refuse what the schemas refuse.
func TestGrammarsRefuse(t *testing.T) {
	jenkins := xsdGrammar(t, "testdata/schemas/jenkins-junit.xsd")
	for name, text := range map[string]string{
		"an unknown attribute": `<testsuites><testsuite name="a" tests="0" colour="red"/></testsuites>`,
		"a missing attribute":  `<testsuites><testsuite tests="0"/></testsuites>`,
		"another order":        `<testsuites><testsuite name="a" tests="1"><system-out/><testcase name="b"/></testsuite></testsuites>`,
		"an unknown element":   `<testsuites><suite/></testsuites>`,
	} {
		for of, g := range map[string]grammar{"Jenkins": jenkins, "Ant": antGrammar} {
			inner := &testing.T{}
			g.validate(inner, parseXML(t, []byte(text)))
			if !inner.Failed() {
				t.Errorf("%s's takes %s", of, name)
			}
		}
	}
}
