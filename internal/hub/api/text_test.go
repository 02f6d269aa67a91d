package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextThatADecoderWouldReplaceIsNamed(t *testing.T) {
	for document, want := range map[string][]string{
		`{"a":"b"}`:                                  nil,
		`{"a":"\ufffd \u00e9 \ud83d\ude00"}`:         nil, // what stands for itself
		`{"a":"\\ud800"}`:                            nil, // a backslash and five letters
		`{"a":"\\\ud800"}`:                           {"body.a"},
		`{"a":"\ud800"}`:                             {"body.a"},
		`{"a":"\uDFFF"}`:                             {"body.a"},
		`{"a":"\ud800\ud800"}`:                       {"body.a"},
		`{"a":"\ude00\ud83d"}`:                       {"body.a"},
		`{"a":"\ud83d\n\ude00"}`:                     {"body.a"},
		`{"a":"\ud83dA"}`:                            {"body.a"},
		`"\ud800"`:                                   {"body"},
		`{"a": [1, -2.5e3, true, {"b" : "\ud800"}]}`: {"body.a[3].b"},
		`{"a\"]}":{"b":["x",null,"\udc00"]}, "c":"\ud800"}`: {`body.a"]}.b[2]`, "body.c"},
		`{"\ud800":1}`:                    {"body"},
		"{\"a\":[[],{},\"\xff\"]}":        {"body.a[2]"},
		"{\"a\":\"\xed\xa0\x80\"}":        {"body.a"}, // half a pair as UTF-8 would write it
		`{"a":1,"b":{"a":2,"A":3},"a":2}`: {"body.a"},
		`[{"x":{"y":1,"\u0079":2}}]`:      {"body[0].x.y"},
		"{\"a\":":                         nil, // the decoder says what is wrong
		"\xff":                            {"body"},
		`["` + strings.Repeat(`\ud800","`, 30) + `"]`: slices.Repeat([]string{"body"}, 20),
	} {
		var got []string
		for _, field := range textErrors([]byte(document)) {
			got = append(got, strings.TrimRight(field.Location, "0123456789[]"))
			if strings.HasPrefix(document, `["`) {
				continue
			}
			got[len(got)-1] = field.Location
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: found %q, want %q", document, got, want)
		}
	}
}

// A document may be as hostile as the decoder bears.
func TestADeepDocumentWithLongKeysIsScannedInTime(t *testing.T) {
	document := `{"` + strings.Repeat("k", 500<<10) + `":` + strings.Repeat("[", 9000) + `"\ud800"` + strings.Repeat("]", 9000) + "}"
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if found := textErrors([]byte(document)); len(found) != 1 || len(found[0].Location) > 300 {
				b.Fatalf("found %d", len(found))
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 16<<20 {
		t.Errorf("scanning %d bytes takes %d bytes", len(document), allocated)
	}
}

// What passes is decoded to exactly what was sent.
func FuzzTextErrors(f *testing.F) {
	for _, seed := range []string{`{"a":"\ud800"}`, `["\ud83d\ude00","\\u"]`, `{"a":{"b":[1,"\udc00"]}}`, "\"\xff\"", `"\"`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		found := textErrors(document)
		var value any
		if json.Unmarshal(document, &value) != nil || len(found) > 0 {
			return
		}
		if !utf8.Valid(document) {
			t.Fatalf("%q passes", document)
		}
		// Each U+FFFD of the value was sent as such.
		sent := strings.Count(string(document), "\ufffd") + strings.Count(strings.ToLower(string(document)), `\ufffd`)
		if replaced := countReplaced(value); replaced > sent {
			t.Fatalf("%q passes, and %d characters are replaced", document, replaced-sent)
		}
	})
}

func countReplaced(value any) (n int) {
	switch v := value.(type) {
	case string:
		n = strings.Count(v, "\ufffd")
	case []any:
		for _, item := range v {
			n += countReplaced(item)
		}
	case map[string]any:
		for key, item := range v {
			n += strings.Count(key, "\ufffd") + countReplaced(item)
		}
	}
	return n
}

// What the decoder does not take is said in words of the document, also where
// what is written is a number all right.
func TestADocumentIsRefusedInItsOwnWords(t *testing.T) {
	type Inner struct {
		MaxRunners int32 `json:"maxRunners"`
	}
	for document, want := range map[string]string{
		`{"maxRunners":1e0}`:        "body.maxRunners: must be a whole number of at most 32 bits, without a point or an exponent",
		`{"maxRunners":9000000000}`: "body.maxRunners: must be a whole number of at most 32 bits, without a point or an exponent",
		`{"list":{}}`:               "body.list: must be a list",
		`[]`:                        "body: must be an object",
		`{`:                         "body: must be JSON, and is not at byte 1",
		`{"a" 1}`:                   "body: must be JSON, and is not at byte 6",
	} {
		var into struct {
			Inner
			List []string `json:"list"`
		}
		err := unmarshal([]byte(document), &into)
		if err == nil {
			t.Errorf("%s is taken", document)
			continue
		}
		if got := strings.Replace(err.Error(), decodeMark, ": ", 1); got != want {
			t.Errorf("%s: %q, want %q", document, got, want)
		}
	}
}

func TestALineOfWhatNobodySeesIsRefused(t *testing.T) {
	for text, good := range map[string]bool{
		"node upgrade": true, "\u200b": false, " \u2060\ufe0f": false, "\U000e0041": false, "\u2800": false, "\u3164": false, "a\u2028b": false,
		"\U0001f468\u200d\U0001f469": true, "": false, "a\u202eb": false,
		"upgrade\U000e0041\U000e0042": false, "up\u00adgrade": false, "up\u200bgrade": false, "up\u034fgrade": false, "a\u115fb": false, "a\ufeffb": false,
		"a\U000e0100\U000e0101": false, "a\u200d\u200db": false, "\u200dup": false, "a \ufe0fb": false, "a\u180eb": false,
		"❤\ufe0f\u200d\U0001f525": true, "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645": true, "葛\U000e0100城": true, "e\u0301": true,
	} {
		if message := lineMessage(text); (message == "") != good {
			t.Errorf("%q: %q", text, message)
		}
	}
}
