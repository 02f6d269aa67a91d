package printable_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/printable"
)

func TestLineShowsWhatATerminalWouldObey(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"plain":              {"Ünïcode, 日本語, 👩‍🚀: fine", "Ünïcode, 日本語, 👩‍🚀: fine"},
		"a colour":           {"a\x1b[31mred", `a\x1b[31mred`},
		"a title":            {"\x1b]0;owned\a", `\x1b]0;owned\x07`},
		"a C1 control":       {"a\u009b31m", `a\u009b31m`},
		"a raw C1 byte":      {"a\x9b31m", `a\x9b31m`},
		"line breaks":        {"a\nb\r\nc\u2028d\u0085", `a\nb\r\nc\u2028d\u0085`},
		"a tab":              {"a\tb", `a\tb`},
		"reading direction":  {"user\u202etxt.exe\u2066", `user\u202etxt.exe\u2066`},
		"what is not seen":   {"ad\u200bmin\ufeff", `ad\u200bmin\ufeff`},
		"tag characters":     {"a\U000e0041", `a\U000e0041`},
		"no UTF-8":           {"a\xff\xfeb", `a\xff\xfeb`},
		"delete":             {"a\x7f", `a\x7f`},
		"replacement itself": {"a\ufffd", "a\ufffd"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printable.Line(test.text); got != test.want {
				t.Errorf("Line = %q, want %q", got, test.want)
			}
		})
	}
}

func TestJSONMeansTheSame(t *testing.T) {
	for _, text := range []string{"plain", "a\x7fb\u009b\u202e\U000e0041\u2028\ufeff<>&", "a\nb\tc\x1b"} {
		encoded, err := json.MarshalIndent(map[string]string{"k": text}, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		shown := printable.JSON(encoded)
		var back map[string]string
		if err := json.Unmarshal(shown, &back); err != nil || back["k"] != text {
			t.Errorf("%q comes back as %q (%v) from %s", text, back["k"], err, shown)
		}
		if !printable.Safe(shown) {
			t.Errorf("%q is not safe", shown)
		}
	}
}

// A log is shown in pieces of any size.
func TestLogKeepsColoursAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct{ log, want string }{
		"colours":                {"\x1b[1;31mred\x1b[0m\n", "\x1b[1;31mred\x1b[0m\n"},
		"true colour":            {"\x1b[38:2::1:2:3mx\x1b[m", "\x1b[38:2::1:2:3mx\x1b[m"},
		"a colour left on":       {"\x1b[31mred", "\x1b[31mred\x1b[0m"},
		"a progress bar":         {"10%\r\x1b[K20%\n", "10%\r\x1b[K20%\n"},
		"clearing the screen":    {"a\x1b[2Jb", `a\x1b[2Jb`},
		"moving up":              {"a\x1b[1Ab", `a\x1b[1Ab`},
		"the clipboard":          {"\x1b]52;c;cm0gLXJm\x07", `\x1b]52;c;cm0gLXJm\x07`},
		"a question":             {"\x1b[6n\x1b[c", `\x1b[6n\x1b[c`},
		"an endless sequence":    {"\x1b[" + strings.Repeat("1;", 100) + "m", `\x1b[` + strings.Repeat("1;", 100) + "m"},
		"a sequence cut off":     {"a\x1b[3", `a\x1b[3`},
		"a character cut off":    {"a\xe2\x80", `a\xe2\x80`},
		"several bytes":          {"日本語\u202e👩", `日本語\u202e👩`},
		"bytes that are no text": {"\x00\xff\x9b1m", `\x00\xff\x9b1m`},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(test.log); size++ {
				var out bytes.Buffer
				log := printable.NewLog(&out)
				for rest := []byte(test.log); len(rest) > 0; {
					n := min(size, len(rest))
					if written, err := log.Write(rest[:n]); err != nil || written != n {
						t.Fatalf("Write = %d, %v", written, err)
					}
					rest = rest[n:]
				}
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				if got := out.String(); got != test.want {
					t.Fatalf("in pieces of %d: %q, want %q", size, got, test.want)
				}
			}
		})
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b[2J\xff\u202e"), 3)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size < 1 || size > 64 {
			t.Skip()
		}
		var out bytes.Buffer
		log := printable.NewLog(&out)
		for rest := data; len(rest) > 0; {
			n := min(size, len(rest))
			_, _ = log.Write(rest[:n])
			rest = rest[n:]
		}
		_ = log.Close()
		shown := out.String()
		if !utf8.ValidString(shown) {
			t.Errorf("%q is no UTF-8", shown)
		}
		for i, r := range shown {
			if r == '\x1b' && !strings.HasPrefix(shown[i:], "\x1b[") || r != '\x1b' && r != '\n' && r != '\r' && r != '\t' && unicode.IsControl(r) {
				t.Errorf("%q has %q at %d", shown, r, i)
			}
		}
	})
}

// Any text can be shown as YAML, and is read back.
func TestYAMLIsReadBack(t *testing.T) {
	for _, text := range []string{"plain", "a\x7fb\u009b\u202e\u2028\ufeff<>&", "a\nb\tc\x1b", "a\U000e0041b", "\u0085", "\ufffe\uffff", "\u3164", "👩‍🚀"} {
		document, err := json.Marshal(map[string]string{"k": text})
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := printable.YAML(document)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		read := func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
		if json.Valid(encoded) {
			read = json.Unmarshal
		}
		var got map[string]string
		if err := read(encoded, &got); err != nil || got["k"] != text {
			t.Errorf("%q is read back as %q (%v)", text, got["k"], err)
		}
		if !printable.Safe(encoded) {
			t.Errorf("%q is shown as %q", text, encoded)
		}
	}
}
