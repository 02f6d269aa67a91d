package count_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/count"
)

func TestOneIsOne(t *testing.T) {
	got := strings.Join([]string{count.Of(0, "runner"), count.Of(int32(1), "runner"), count.Of(int64(2), "audit row"), count.Is(1), count.Is(0)}, ", ")
	if want := "0 runners, 1 runner, 2 audit rows, is, are"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// nouns are what people are told the number of.
var nouns = regexp.MustCompile(`%d (\w+ )?(runners|runs|pools|objects|documents|processes|fields|HubPools|Pods|projects|credentials|tokens|warnings)\b`)

// What a person is told counts with this package, or "1 runners" comes back.
func TestNobodyWritesAPluralAfterANumber(t *testing.T) {
	for _, root := range []string{"../../internal", "../../controllers", "../../apis", "../../schemas"} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(text), "\n") {
				if nouns.MatchString(line) {
					t.Errorf("%s:%d: count with count.Of: %s", path, i+1, strings.TrimSpace(line))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatIsLeftOutIsCounted(t *testing.T) {
	texts := []string{"a", "b", "c"}
	for most, want := range map[int]string{0: "and 3 more", 2: "a b and 1 more", 3: "a b c", 9: "a b c"} {
		if got := strings.Join(count.First(texts, most), " "); got != want {
			t.Errorf("the first %d are %q, want %q", most, got, want)
		}
	}
	if texts[2] != "c" {
		t.Error("what was given has changed")
	}
}
