package ignored_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/sourceignore/gitignore"
	"pgregory.net/rapid"

	"cloop.dev/cloop/internal/fleet/ignored"
)

// filter is what a repository's files, name → text, and spec.ignore make.
func filter(t rapid.TB, files map[string]string, spec *string) *ignored.Filter {
	t.Helper()
	set := &ignored.Files{}
	for name, text := range files {
		if path.Base(name) != ignored.Name {
			continue
		}
		if err := set.Add(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var list *ignored.List
	if spec != nil {
		var err error
		if list, err = ignored.ReadSpec("source.yaml", 7, *spec); err != nil {
			t.Fatal(err)
		}
	}
	f, err := ignored.New(set, list)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// kept are the files of a directory that source-controller takes into an artifact, as its
// SourceIgnoreFilter and Archive do, with Flux's own library.
func kept(t rapid.TB, dir string, spec *string) (files []string) {
	t.Helper()
	domain := strings.Split(dir, string(filepath.Separator))
	patterns, err := sourceignore.LoadIgnorePatterns(dir, domain)
	if err != nil {
		t.Fatal(err)
	}
	if spec != nil {
		patterns = append(patterns, sourceignore.ReadPatterns(strings.NewReader(*spec), domain)...)
	}
	var matcher gitignore.Matcher
	if matcher = sourceignore.NewDefaultMatcher(patterns, domain); len(patterns) > 0 {
		matcher = sourceignore.NewMatcher(append(sourceignore.VCSPatterns(domain), patterns...))
	}
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !matcher.Match(strings.Split(name, string(filepath.Separator)), entry.IsDir()) {
			relative, err := filepath.Rel(dir, name)
			files = append(files, filepath.ToSlash(relative))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// ours are those that are taken in here.
func ours(t rapid.TB, dir string, f *ignored.Filter) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && f.Leaves(name, entry.IsDir()) == nil {
			files = append(files, name)
		}
		return err
	})
	if err != nil || f.Err() != nil {
		t.Fatal(err, f.Err())
	}
	return files
}

func write(t rapid.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A tree with what Flux leaves out by default, and with names that patterns like.
func tree() map[string]string {
	files := map[string]string{}
	for _, name := range []string{
		".gitignore", ".gitmodules", "sub/.gitattributes", ".github/workflows/a.yaml", ".circleci/config.yml", ".travis.yml", ".gitlab-ci.yml", "appveyor.yml",
		".drone.yml", "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml", ".goreleaser.yml", "sub/.goreleaser.yml", ".sops.yaml", "sub/.sops.yaml", ".flux.yaml",
		"sub/cloudbuild.yaml", "a.jpg", "sub/a.tar.gz", "a.zip", "a.yaml", "deploy/a.yaml", "deploy/a.md", "deploy/sub/b.md", "deploy/sub/b.yaml",
		"a/b/c/d.yaml", "a/b/d.yaml", "a/x/b/d.yaml", "b/d.yaml", "!odd", "#odd", "odd ", "a b", "[a]", "a\\b", "drafts", "sub/drafts/a.yaml",
	} {
		files[name] = ""
	}
	return files
}

func TestLeavesOutWhatSourceControllerDoes(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, test := range map[string]struct {
		files map[string]string
		spec  *string
		out   []string
		in    []string
	}{
		"nothing is said":                {nil, nil, []string{".github/workflows/a.yaml", "cloudbuild.yaml", "sub/cloudbuild.yaml", "sub/.sops.yaml", "a.zip", ".gitignore"}, []string{"a.yaml", "deploy/a.md"}},
		"a pattern replaces defaults":    {map[string]string{".sourceignore": "/drafts\n"}, nil, []string{"drafts", ".gitignore"}, []string{"cloudbuild.yaml", ".github/workflows/a.yaml", "sub/drafts/a.yaml"}},
		"no pattern replaces nothing":    {map[string]string{".sourceignore": "# none\n\n   \n"}, text(""), []string{"cloudbuild.yaml"}, []string{"a.yaml"}},
		"anywhere":                       {map[string]string{"deploy/.sourceignore": "*.md\n"}, nil, []string{"deploy/a.md", "deploy/sub/b.md"}, []string{"cloudbuild.yaml", "a.yaml"}},
		"spec.ignore replaces defaults":  {nil, text("*.md"), []string{"deploy/a.md"}, []string{"cloudbuild.yaml"}},
		"both":                           {map[string]string{".sourceignore": "*.md\n"}, text("/deploy/sub"), []string{"deploy/a.md", "deploy/sub/b.yaml"}, []string{"deploy/a.yaml"}},
		"spec.ignore has the last word":  {map[string]string{"deploy/.sourceignore": "a.yaml\n"}, text("!a.yaml"), nil, []string{"deploy/a.yaml"}},
		"the documentation's":            {nil, text("# exclude all\n/*\n# include deploy dir\n!/deploy\n/deploy/**/*.md\n"), []string{"a.yaml", "deploy/sub/b.md"}, []string{"deploy/a.yaml", "deploy/sub/b.yaml"}},
		"in again below what is out":     {map[string]string{".sourceignore": "a/\n!a/b/d.yaml\n"}, nil, []string{"a/b/c/d.yaml"}, []string{"a/b/d.yaml"}},
		"the inner file has its say":     {map[string]string{".sourceignore": "*.yaml\n", "deploy/.sourceignore": "!*.yaml\n"}, nil, []string{"a.yaml", "b/d.yaml"}, []string{"deploy/a.yaml", "deploy/sub/b.yaml"}},
		"its directory's alone":          {map[string]string{"a/.sourceignore": "/b\n"}, nil, []string{"a/b/d.yaml"}, []string{"b/d.yaml", "a/x/b/d.yaml"}},
		"directories alone":              {map[string]string{".sourceignore": "drafts/\n"}, nil, []string{"sub/drafts/a.yaml"}, []string{"drafts"}},
		"two asterisks":                  {map[string]string{".sourceignore": "a/**/b\n**/c\n"}, nil, []string{"a/x/b/d.yaml", "a/b/d.yaml", "a/b/c/d.yaml"}, []string{"b/d.yaml"}},
		"what is escaped":                {map[string]string{".sourceignore": "\\!odd\n\\#odd\nodd\\ \n\\[a]\n"}, nil, []string{"!odd", "#odd", "[a]"}, []string{"a b"}},
		"Git's files in again":           {map[string]string{".sourceignore": "!.gitignore\n"}, nil, []string{".gitmodules"}, []string{".gitignore"}},
		"what is no pattern":             {map[string]string{".sourceignore": "[\n/\n//\na**b\n"}, nil, nil, []string{"a.yaml", "deploy/a.yaml"}},
		"slashes, and one that is blank": {map[string]string{".sourceignore": "//deploy\n/ \n//\n"}, nil, []string{"deploy/a.yaml"}, []string{"a.yaml"}},
		"lines of Windows":               {map[string]string{".sourceignore": "/drafts\r\n*.md\r\n"}, nil, []string{"drafts", "deploy/a.md"}, []string{"a.yaml"}},
		"a line that is too long":        {map[string]string{".sourceignore": "*.md\n" + strings.Repeat("x", 70_000) + "\n/a.yaml\n"}, nil, []string{"deploy/a.md"}, []string{"a.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := tree()
			maps.Copy(files, test.files)
			dir := t.TempDir()
			write(t, dir, files)
			f := filter(t, test.files, test.spec)
			if got, want := ours(t, dir, f), kept(t, dir, test.spec); !slices.Equal(got, want) {
				t.Errorf("taken in: %q, source-controller takes in %q", got, want)
			}
			for _, file := range test.out {
				if f.Leaves(file, false) == nil {
					t.Errorf("%s is taken in", file)
				}
			}
			for _, file := range test.in {
				if p := f.Leaves(file, false); p != nil {
					t.Errorf("%s is left out by %s", file, p)
				}
			}
		})
	}
}

// Whatever the patterns, it is what Flux's library says; and where no pattern takes
// anything in again, all below a directory that is left out is left out.
func TestAgreesWithTheLibrary(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, tree())
	part := rapid.SampledFrom([]string{"a", "b", "sub", "deploy", "drafts", "*", "**", "*.yaml", "*.md", "d.yaml", "?", "[a-c]", "", " ", "\\", "!", "a*", "x**", ".github", "a b", "d.y[a]ml", "[", "\\a"})
	line := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "!", "/", "!/", "#", "\\!"}).Draw(t, "before") + strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/") + rapid.SampledFrom([]string{"", "/", " ", "\\ ", "\r", "/ "}).Draw(t, "after")
	})
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(line, 0, 6).Draw(t, "lines"), "\n")
	})
	at := rapid.SampledFrom([]string{".", "a", "a/b", "deploy", "sub", ".github", "sub/drafts"})
	rapid.Check(t, func(t *rapid.T) {
		files := map[string]string{}
		for _, in := range rapid.SliceOfNDistinct(at, 0, 3, func(s string) string { return s }).Draw(t, "dirs") {
			files[path.Join(in, ignored.Name)] = text.Draw(t, "text")
		}
		var spec *string
		if rapid.Bool().Draw(t, "spec") {
			said := text.Draw(t, "ignore")
			spec = &said
		}
		write(t, dir, files)
		defer func() {
			for name := range files {
				_ = os.Remove(filepath.Join(dir, name))
			}
		}()
		f := filter(t, files, spec)
		got, want := ours(t, dir, f), kept(t, dir, spec)
		if !slices.Equal(got, want) {
			t.Fatalf("taken in: %q, the library takes in %q", got, want)
		}
		if f.TakesIn() {
			return
		}
		for _, name := range got {
			for above := path.Dir(name); above != "."; above = path.Dir(above) {
				if p := f.Leaves(above, true); p != nil {
					t.Fatalf("%s is taken in, and %s left out by %s", name, above, p)
				}
			}
		}
	})
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{"/*\n!/deploy\n", "a/**/b\r\n\\#x\n[\n", "!\n/\n **\n\\ \n"} {
		f.Add(text, "deploy/a.yaml")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		if !fs.ValidPath(name) || name == "." {
			return
		}
		var patterns []gitignore.Pattern
		if patterns = sourceignore.ReadPatterns(strings.NewReader(text), nil); len(patterns) == 0 {
			patterns = sourceignore.DefaultPatterns(nil)
		}
		want := sourceignore.NewMatcher(append(sourceignore.VCSPatterns(nil), patterns...)).Match(strings.Split(name, "/"), false)
		if got := filter(t, map[string]string{ignored.Name: text}, nil).Leaves(name, false); (got != nil) != want {
			t.Errorf("%q leaves out %q: %v, the library says %v", text, name, got, want)
		}
	})
}

func TestSaysWhichPattern(t *testing.T) {
	spec := "# all but\n/drafts\n"
	f := filter(t, map[string]string{".sourceignore": "# such\n\n*.md\n", "a/.sourceignore": "/b/\n"}, &spec)
	for name, want := range map[string]string{
		"x.md":       `"*.md" at .sourceignore:3`,
		"a/b/c.yaml": `"/b/" at a/.sourceignore:1`,
		"drafts":     `"/drafts" of spec.ignore at source.yaml:7`,
		".gitignore": `its default exclusion ".gitignore"`,
	} {
		if p := f.Leaves(name, false); p == nil || p.String() != want {
			t.Errorf("%s is left out by %v, want %s", name, p, want)
		}
	}
}

// Neither many patterns nor slow ones take more than seconds, or what they do not come to
// an end with is said.
func TestIsBounded(t *testing.T) {
	defer func(most int64) { ignored.MaxWork = most }(ignored.MaxWork)
	ignored.MaxWork = 500_000_000
	for name, test := range map[string]struct {
		pattern func(i int) string
		bounded bool
	}{
		"names":             {func(i int) string { return fmt.Sprintf("draft-%d.yaml", i) }, false},
		"paths":             {func(i int) string { return fmt.Sprintf("/apps/app-%d/draft-%d.yaml", i%100, i) }, false},
		"wildcards":         {func(i int) string { return fmt.Sprintf("*draft*%d?.yaml", i) }, true},
		"any directory":     {func(i int) string { return fmt.Sprintf("**/draft/%d", i) }, true},
		"slow":              {func(i int) string { return strings.Repeat("*a", 20) + fmt.Sprint(i) }, true},
		"the same, again":   {func(int) string { return "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.yaml/" }, true},
		"one for directory": {func(i int) string { return "**/a*/**/b*/**/c" + fmt.Sprint(i) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for i := range 100_000 {
				text.WriteString(test.pattern(i) + "\n")
			}
			began := time.Now()
			f := filter(t, map[string]string{".sourceignore": text.String()}, nil)
			read := time.Since(began)
			for i := range 10_000 {
				f.Leaves(fmt.Sprintf("apps/app-%d/%s/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.yaml", i, strings.Repeat("a", 30)), false)
			}
			took := time.Since(began)
			t.Logf("read in %v, all in %v: %v", read, took, f.Err())
			if (f.Err() != nil) != test.bounded {
				t.Errorf("it ends with %v", f.Err())
			}
			// Far more than it takes, for slow machines with the race detector.
			if took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
	if err := new(ignored.Files).Add(".sourceignore", []byte(strings.Repeat("a\n", 100_001))); !errors.Is(err, ignored.ErrBounds) {
		t.Error("more than 100,000 patterns are read")
	}
}
