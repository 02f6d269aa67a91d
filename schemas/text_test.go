package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const smallestHubPool = "apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata: {name: a}\nspec: {maxRunners: 1}\n"

// aliases of aliases: ten to the power of depth values, in a few hundred bytes.
func bomb(depth int, line func(name, parts string) string) string {
	text := "a: &a {k: 1}\n"
	for i := range depth {
		parts := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 10), ",")
		text += line(string(rune('b'+i)), parts)
	}
	return text
}

// Every text is read as kubectl reads it, or refused with a line and a sentence.
func TestText(t *testing.T) {
	hubPool := func(spec string) string { return strings.Replace(smallestHubPool, "maxRunners: 1", spec, 1) }
	asJSON := `{"apiVersion":"cloop.dev/v1alpha1","kind":"HubPool","metadata":{"name":"a"},"spec":{"maxRunners":1}}`
	for name, test := range map[string]struct {
		text string
		// documents that come of it, and what is said: rule line message.
		documents int
		problems  []string
	}{
		"nothing":                                 {"", 0, nil},
		"comments only":                           {"# a\n\n# b\n", 0, nil},
		"separators only":                         {"---\n---\n# a\n---\n", 0, nil},
		"null":                                    {"null\n---\n~\n---\n", 0, nil},
		"a byte order mark":                       {"\ufeff" + smallestHubPool, 1, nil},
		"a byte order mark before a separator":    {"\ufeff---\n" + smallestHubPool, 1, nil},
		"a byte order mark in each document":      {"\ufeff" + smallestHubPool + "---\n\ufeff" + smallestHubPool, 2, nil},
		"a byte order mark behind a comment":      {smallestHubPool + "---  # a\n\ufeff" + smallestHubPool, 2, nil},
		"a byte order mark behind a first ---":    {"---\n\ufeff" + smallestHubPool, 0, []string{"type-meta 2 Required value"}},
		"a byte order mark on the second line":    {"\n\ufeff" + smallestHubPool, 0, []string{"type-meta 2 Required value"}},
		"a byte order mark after CRLF":            {"\ufeff" + strings.ReplaceAll(smallestHubPool+"---\n\ufeff"+smallestHubPool, "\n", "\r\n"), 2, nil},
		"UTF-16":                                  {"\xff\xfea\x00:\x00 \x001\x00\n\x00", 0, []string{"syntax 1 the text is UTF-16"}},
		"Latin-1":                                 {"apiVersion: v1\nkind: X\xe9\n", 0, []string{"syntax 2 the byte 0xe9 is not UTF-8"}},
		"a control character":                     {"apiVersion: v1\nkind: X\x01\n", 0, []string{"syntax 2 the character U+0001 may not be in YAML"}},
		"CRLF":                                    {strings.ReplaceAll(smallestHubPool+"---\n"+smallestHubPool, "\n", "\r\n"), 2, nil},
		"no line break at the end":                {strings.TrimSpace(smallestHubPool), 1, nil},
		"a comment behind a separator":            {"--- # the pool\n" + smallestHubPool, 1, nil},
		"a document behind a separator":           {smallestHubPool + "--- {apiVersion: v1, kind: X}\n", 1, []string{"syntax 5 invalid Yaml document separator: {apiVersion: v1, kind: X}"}},
		"a document behind an end":                {smallestHubPool + "...\n" + smallestHubPool, 1, []string{"syntax 6 did not find expected <document start>"}},
		"a directive":                             {"%YAML 1.1\n---\n" + smallestHubPool, 1, nil},
		"a separator in a block":                  {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: |\n    x\n    ---\n    y\n---\n" + smallestHubPool, 2, nil},
		"a separator in a folded block":           {"apiVersion: v1\nkind: ConfigMap\ndata:\n  a: >-\n    x\n    ---\n---\n" + smallestHubPool, 2, nil},
		"a tab as indentation":                    {"apiVersion: v1\nkind: X\nspec:\n\ta: 1\n", 0, []string{"syntax 4 found character that cannot start any token"}},
		"a list as a document":                    {"- a\n", 0, []string{"syntax 1 a document must be an object with apiVersion and kind"}},
		"a text as a document":                    {"hello\n", 0, []string{"syntax 1 a document must be an object with apiVersion and kind"}},
		"a kind that is a number":                 {"apiVersion: v1\nkind: 3\n", 0, []string{"type-meta 1 Required value"}},
		"yes in place of true":                    {hubPool("maxRunners: 1, capabilities: {a: yes, b: off}"), 1, nil},
		"on as a key":                             {hubPool("maxRunners: 1, capabilities: {on: true}"), 1, nil},
		"yes in place of a text":                  {hubPool("maxRunners: 1, labels: {a: yes}"), 1, []string{"warning", `schema 4 Invalid value: "boolean": spec.labels.a in body must be of type string: "boolean"`}},
		"an octal number":                         {hubPool("maxRunners: 010"), 1, nil},
		"an octal number of YAML 1.2":             {hubPool("maxRunners: 0o10"), 1, nil},
		"a hexadecimal number":                    {hubPool("maxRunners: 0x10"), 1, nil},
		"a number with an exponent":               {hubPool("maxRunners: 1e1"), 1, nil},
		"a number with a fraction of zero":        {hubPool("maxRunners: 1.0"), 1, nil},
		"a number with a fraction":                {hubPool("maxRunners: 1.5"), 1, []string{"warning", `schema 4 Invalid value: "": Checked value must be of type integer (default format) in spec.maxRunners`, `schema 4 Invalid value: "number": spec.maxRunners in body must be of type integer: "number"`}},
		"a number with underscores":               {hubPool("maxRunners: 1_0"), 1, nil},
		"a number in sexagesimal":                 {hubPool("maxRunners: 1:30"), 1, []string{"warning", `schema 4 Invalid value: "string": spec.maxRunners in body must be of type integer: "string"`}},
		"infinity":                                {hubPool("\n  maxRunners: .inf"), 0, []string{"syntax 5 json: unsupported value: +Inf"}},
		"not a number":                            {hubPool("\n  maxRunners: .NaN"), 0, []string{"syntax 5 json: unsupported value: NaN"}},
		"a date":                                  {hubPool("maxRunners: 1, labels: {d: 2026-01-01}"), 1, nil},
		"a tag":                                   {hubPool(`maxRunners: !!int "3"`), 1, nil},
		"a binary":                                {hubPool("maxRunners: 1, owner: !!binary dXNlcjph"), 1, nil},
		"numbers as keys":                         {hubPool("maxRunners: 1, labels: {1: a, 1.5: b, true: c}"), 1, nil},
		"null as a key":                           {strings.Replace(smallestHubPool, "{maxRunners: 1}", "\n  maxRunners: 1\n  labels:\n    null: c", 1), 0, []string{"syntax 7 unsupported map key of type"}},
		"an object as a key":                      {"apiVersion: v1\nkind: X\n? {a: b}\n: c\n", 0, []string{"syntax 3 invalid map key"}},
		"an anchor":                               {hubPool("maxRunners: &n 1, labels: {a: &t b, c: *t}"), 1, nil},
		"a merge key":                             {hubPool("<<: {maxRunners: 1}"), 1, nil},
		"merge keys in a list":                    {hubPool("<<: [{maxRunners: 1}, {maxRunners: 2, harness: x}]"), 1, nil},
		"an anchor of another document":           {"a: &a 1\n---\nb: *a\n", 0, []string{"type-meta 1 Required value", "type-meta 1 Required value", "syntax 3 unknown anchor 'a' referenced"}},
		"an anchor in itself":                     {"a: &a [*a]\n", 0, []string{"syntax 1 anchor 'a' value contains itself"}},
		"an alias bomb":                           {bomb(8, func(name, parts string) string { return name + ": &" + name + " [" + parts + "]\n" }), 0, []string{"syntax 1 document contains excessive aliasing"}},
		"a bomb of merge keys":                    {bomb(8, func(name, parts string) string { return name + ": &" + name + " {<<: [" + parts + "]}\n" }), 0, []string{"syntax 1 document contains excessive aliasing"}},
		"JSON":                                    {asJSON, 1, nil},
		"JSON with tabs":                          {strings.ReplaceAll(asJSON, ",", ",\n\t"), 1, nil},
		"JSON with escapes that YAML lacks":       {strings.ReplaceAll(asJSON, `1}`, `1,"cordon":{"reason":"a\/\ud83d\ude00"}}`), 1, nil},
		"JSON objects without a separator":        {asJSON + "\n" + asJSON + asJSON, 3, nil},
		"JSON objects with a separator":           {asJSON + "\n---\n" + asJSON, 2, nil},
		"JSON and then YAML":                      {asJSON + "\n---\n" + smallestHubPool, 2, nil},
		"JSON with a comma too many":              {strings.ReplaceAll(asJSON, "1}", "1,}"), 1, nil},
		"JSON with a key twice":                   {strings.ReplaceAll(asJSON, "1}", "1,\n\"maxRunners\":2}"), 1, []string{`duplicate-key 2 duplicate field "spec.maxRunners"`}},
		"JSON that ends early":                    {asJSON[:len(asJSON)-1], 0, []string{"syntax 1 did not find expected ',' or '}'"}},
		"a number beyond 64 bits":                 {hubPool("maxRunners: 99999999999999999999"), 1, []string{"warning", `schema 4 Invalid value: "": Checked`, `schema 4 Invalid value: "number"`, "schema 4 Invalid value: 1e+20"}},
		"a list of objects":                       {"apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(smallestHubPool, "\n", "\n  ") + "\n- {apiVersion: v1, kind: X}\n", 2, nil},
		"a list of one kind":                      {"apiVersion: cloop.dev/v1alpha1\nkind: HubPoolList\nitems:\n- metadata: {name: a}\n  spec: {maxRunners: -1}\n", 1, []string{"schema 5 Invalid value: -1"}},
		"an item that says nothing":               {"apiVersion: v1\nkind: List\nitems:\n- {}\n- 3\n", 0, []string{"type-meta 4 Required value", "type-meta 4 Required value", "syntax 5 an item of a list must be an object"}},
		"a list in a list":                        {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: X}]}]\n", 1, nil},
		"a list without items":                    {"apiVersion: v1\nkind: List\n", 1, nil},
		"lists in 10,001 lists":                   {"apiVersion: v1\nkind: X\na: " + strings.Repeat("[", 10001), 0, []string{"syntax 3 exceeded max depth of 10000"}},
		"objects in 9,000 objects":                {hubPool("maxRunners: 1, x: " + strings.Repeat("{a: ", 9000) + "1" + strings.Repeat("}", 9000)), 1, []string{`unknown-field 4 unknown field "spec.x"`}},
		"JSON in 10,001 objects":                  {strings.Repeat(`{"a":`, 10001), 0, []string{"syntax 1 exceeded max depth of 10000"}},
		"more than a request may have":            {hubPool("maxRunners: 1, owner: " + strings.Repeat("a", 3<<20)), 0, []string{"syntax 1 Request entity too large: limit is 3145728"}},
		"a syntax error at the end of a megabyte": {"apiVersion: v1\nkind: X\na:\n" + strings.Repeat("- {a: 1}\n", 1<<17) + " b: 1\n", 0, []string{"syntax 131076 did not find expected key"}},
	} {
		t.Run(name, func(t *testing.T) {
			documents, problems := Decode("f", []byte(test.text))
			for _, document := range documents {
				problems = append(problems, mustValidator(t).Validate(document)...)
			}
			if len(documents) != test.documents {
				t.Errorf("%d documents, want %d", len(documents), test.documents)
			}
			if len(problems) != len(test.problems) {
				t.Fatalf("found %d problems, want %d:\n%.1000v", len(problems), len(test.problems), problems)
			}
			for i := range problems {
				got := fmt.Sprintf("%s %d %s", problems[i].Rule, problems[i].Line, problems[i].Message)
				if problems[i].Severity == SeverityWarning {
					got = "warning"
				}
				if !strings.HasPrefix(got, test.problems[i]) {
					t.Errorf("found %.300s, want %s", got, test.problems[i])
				}
			}
		})
	}
}

// FuzzDecodeReadsAsKubectl holds that what both read without complaint is the
// same.
func FuzzDecodeReadsAsKubectl(f *testing.F) {
	for _, text := range []string{
		fleetFile, smallestHubPool + "---\n\ufeff" + smallestHubPool, "\n\ufeffapiVersion: v1\nkind: A\n", "a: 1\n--- # a\n\ufeffapiVersion: v1\nkind: A\n", "--- # a\n\ufeffapiVersion: v1\nkind: A\n", "--- # a\na: 1\n---\n---\nb: 'x\u0085y\u2028z'\n---\nc: |\n  ---\n",
		`{"apiVersion":"v1","kind":"A"}{"apiVersion":"v1","kind":"B"}`, "{\"apiVersion\":\"v1\",\"kind\":\"A\"}\n---\napiVersion: v1\nkind: B\n",
		"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n", "apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n",
		"apiVersion: v1\nkind: A\nx: &x {a: 010, b: yes, c: 1e3, d: 1_0}\ny: {<<: *x}\n", "%YAML 1.1\n---\napiVersion: v1\nkind: A\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, problems := Decode("f", data)
		if len(problems) > 0 {
			return
		}
		want, ok := asKubectl(data)
		if !ok {
			return
		}
		if len(documents) != len(want) {
			t.Fatalf("%d documents, kubectl reads %d", len(documents), len(want))
		}
		for i := range documents {
			if diff := cmp.Diff(want[i], documents[i].Object.Object); diff != "" {
				t.Errorf("document %d: kubectl reads (-), we read (+):\n%s", i, diff)
			}
		}
	})
}

// asKubectl reads a stream as kubectl's visitor does; ok is false where it
// fails, or where it reads what is no object with a kind.
func asKubectl(data []byte) (objects []map[string]any, ok bool) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		raw := runtime.RawExtension{}
		if err := decoder.Decode(&raw); err != nil {
			return objects, errors.Is(err, io.EOF)
		}
		raw.Raw = bytes.TrimSpace(raw.Raw)
		if len(raw.Raw) == 0 || bytes.Equal(raw.Raw, []byte("null")) {
			continue
		}
		object := map[string]any{}
		if err := json.Unmarshal(raw.Raw, &object); err != nil {
			return nil, false
		}
		// Lists are taken apart later, by code that needs a cluster.
		if _, list := object["items"]; list {
			return nil, false
		}
		objects = append(objects, object)
	}
}
