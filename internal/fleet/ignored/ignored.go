package ignored

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/fluxcd/pkg/sourceignore"
	"github.com/fluxcd/pkg/sourceignore/gitignore"
)

// Name is what files with patterns are called.
const Name = sourceignore.IgnoreFile

// Bounds on what the committers of a repository can ask for. Patterns without a wildcard
// are found by their names, so that a long list of paths costs next to nothing; each of
// the others is tried on every path. MaxWork bounds that, in nanoseconds of a slow
// machine: a hundred patterns with wildcards for as many files as a root may have come to
// a third of it. maxPatterns bounds the memory, some 400 bytes a pattern.
const maxPatterns = 100_000

// MaxWork is a variable for tests.
var MaxWork int64 = 10_000_000_000

// ErrBounds is of patterns beyond the bounds.
var ErrBounds = errors.New("beyond the bounds")

// Pattern is one pattern, and where it is written.
type Pattern struct {
	// Text as it is written.
	Text string
	// File and Line are empty for a pattern that Flux has by default. Line is that of the
	// field for those of spec.ignore.
	File string
	Line int
	// InSpec says that it is one of spec.ignore.
	InSpec bool

	gitignore.Pattern
	globs bool
}

// String is the pattern as a message names it.
func (p *Pattern) String() string {
	switch {
	case p.File == "":
		return fmt.Sprintf("its default exclusion %q", p.Text)
	case p.InSpec:
		return fmt.Sprintf("%q of spec.ignore at %s:%d", p.Text, p.File, p.Line)
	}
	return fmt.Sprintf("%q at %s:%d", p.Text, p.File, p.Line)
}

// List is the patterns of one text, in order.
type List struct {
	patterns []Pattern
	// names: name → the patterns that can match only a path with such a name in it, and
	// below: path → those that can match only it and what lies below. others may match
	// any. The numbers are ascending.
	names, below map[string][]int32
	others       []int32
}

// Len counts the patterns.
func (l *List) Len() int { return len(l.patterns) }

// Files are the .sourceignore files of a repository. The zero value is none.
type Files struct {
	// lists: directory → the patterns of its file.
	lists map[string]*List
	total int
}

// Len counts the patterns of all.
func (f *Files) Len() int { return f.total }

// Add reads the text of one as source-controller does: lines that begin with # or are
// blank are no patterns, and what comes after a line of more than 64 KiB is not read. Its
// error is ErrBounds.
func (f *Files) Add(name string, text []byte) error {
	list, err := read(text, func(line int) Pattern { return Pattern{File: name, Line: line} })
	if err != nil {
		return err
	}
	if f.total += list.Len(); f.total > maxPatterns {
		return tooMany()
	}
	if f.lists == nil {
		f.lists = map[string]*List{}
	}
	f.lists[path.Dir(name)] = list
	return nil
}

// ReadSpec reads a source's spec.ignore, which is written at a place.
// Its error is ErrBounds.
func ReadSpec(file string, line int, text string) (*List, error) {
	return read([]byte(text), func(int) Pattern { return Pattern{File: file, Line: line, InSpec: true} })
}

func read(text []byte, at func(line int) Pattern) (*List, error) {
	l := newList()
	scanner := bufio.NewScanner(bytes.NewReader(text))
	for line := 1; scanner.Scan(); line++ {
		written := scanner.Text()
		if strings.HasPrefix(written, "#") || strings.TrimSpace(written) == "" {
			continue
		}
		if len(l.patterns) == maxPatterns {
			return nil, tooMany()
		}
		p := at(line)
		p.Text = written
		l.add(p)
	}
	return l, nil
}

func tooMany() error { return fmt.Errorf("%w: more than %d patterns", ErrBounds, maxPatterns) }

func newList() *List { return &List{names: map[string][]int32{}, below: map[string][]int32{}} }

// add adds a pattern, under what a path must have for it to match.
func (l *List) add(p Pattern) {
	p.Pattern = gitignore.ParsePattern(p.Text, nil)
	p.globs = strings.ContainsAny(p.Text, wildcards)
	number := int32(len(l.patterns)) //nolint:gosec // bounded by maxPatterns
	l.patterns = append(l.patterns, p)
	text := strings.TrimPrefix(p.Text, "!")
	if !strings.HasSuffix(text, `\ `) {
		text = strings.TrimRight(text, " ")
	}
	text = strings.TrimSuffix(text, "/")
	if !strings.Contains(text, "/") && !strings.ContainsAny(text, wildcards) {
		l.names[text] = append(l.names[text], number)
		return
	}
	var plain []string
	for part := range strings.SplitSeq(text, "/") {
		if strings.ContainsAny(part, wildcards) {
			break
		}
		// A slash more means nothing.
		if part != "" {
			plain = append(plain, part)
		}
	}
	if len(plain) == 0 || !strings.Contains(text, "/") {
		l.others = append(l.others, number)
		return
	}
	at := strings.Join(plain, "/")
	l.below[at] = append(l.below[at], number)
}

const wildcards = `*?[\`

// find is the last pattern that says something of a path; nil: none does. work is what it
// cost to tell.
func (l *List) find(names []string, dir bool) (found *Pattern, result gitignore.MatchResult, work int64) {
	if l == nil || len(names) == 0 {
		return nil, gitignore.NoMatch, 0
	}
	lists := [][]int32{l.others}
	for i, name := range names {
		lists = append(lists, l.below[strings.Join(names[:i+1], "/")])
		if !slices.Contains(names[:i], name) {
			lists = append(lists, l.names[name])
		}
	}
	length := 0
	for _, name := range names {
		length += len(name)
	}
	for {
		last := -1
		for i, numbers := range lists {
			if len(numbers) > 0 && (last < 0 || numbers[len(numbers)-1] > lists[last][len(lists[last])-1]) {
				last = i
			}
		}
		if last < 0 {
			return nil, gitignore.NoMatch, work
		}
		p := &l.patterns[lists[last][len(lists[last])-1]]
		lists[last] = lists[last][:len(lists[last])-1]
		work += p.work(len(names), length)
		if result := p.Match(names, dir); result != gitignore.NoMatch {
			return p, result, work
		}
	}
}

// work is about how many nanoseconds a match takes at most: what stands behind an
// asterisk is looked for at each place of a name.
func (p *Pattern) work(names, length int) int64 {
	same := min(len(p.Text), length)
	work := 50*names + 25*same
	if p.globs {
		work += 20*length + length*same/2
	}
	return int64(work)
}

// Filter is what is left out of one artifact. It is safe for concurrent use.
type Filter struct {
	// dirs: directory → the patterns of its file.
	dirs map[string]*List
	spec *List
	// defaults are those of Git's files, and all of Flux's where nothing else is said.
	defaults *List
	takesIn  bool
	digest   string

	mu sync.Mutex // guards what follows
	// known: path → the pattern that leaves it out.
	known map[question]*Pattern
	work  int64
}

type question struct {
	path string
	dir  bool
}

// New is what is left out where a repository has files with patterns, and the source has
// spec.ignore; nil: it has none. Its error is ErrBounds.
func New(files *Files, spec *List) (*Filter, error) {
	f := &Filter{dirs: map[string]*List{}, known: map[question]*Pattern{}, defaults: newList()}
	total := 0
	sum := sha256.New()
	note := func(dir string, l *List) {
		total += l.Len()
		for i := range l.patterns {
			f.takesIn = f.takesIn || strings.HasPrefix(l.patterns[i].Text, "!")
			_, _ = fmt.Fprintf(sum, "%q %q\n", dir, l.patterns[i].Text)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(files.lists)) {
		if l := files.lists[dir]; l.Len() > 0 {
			f.dirs[dir] = l
			note(dir, l)
		}
	}
	if spec != nil && spec.Len() > 0 {
		f.spec = spec
		note("spec.ignore", spec)
	}
	if total > maxPatterns {
		return nil, tooMany()
	}
	f.digest = hex.EncodeToString(sum.Sum(nil))
	defaults := []string{sourceignore.ExcludeVCS}
	if total == 0 {
		defaults = append(defaults, sourceignore.ExcludeExt, sourceignore.ExcludeCI, sourceignore.ExcludeExtra)
	}
	for text := range strings.SplitSeq(strings.Join(defaults, ","), ",") {
		f.defaults.add(Pattern{Text: text})
	}
	return f, nil
}

// Digest is equal for filters of the same patterns.
func (f *Filter) Digest() string { return f.digest }

// TakesIn says whether a pattern takes in again what others leave out. Where none does,
// all in a directory that is left out is left out too.
func (f *Filter) TakesIn() bool { return f.takesIn }

// Err is ErrBounds where telling took too much. What was asked since then was answered as
// if nothing left it out.
func (f *Filter) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.work > MaxWork {
		return fmt.Errorf("%w: it takes too long to hold the files of the repository against so many patterns with wildcards", ErrBounds)
	}
	return nil
}

// Most is a pattern of the longest text, for whoever says that there are too many.
func (f *Filter) Most() *Pattern {
	longest := f.defaults
	for _, l := range append(slices.Collect(maps.Values(f.dirs)), f.spec) {
		if l != nil && l.Len() > longest.Len() {
			longest = l
		}
	}
	return &longest.patterns[0]
}

// Leaves is the pattern that leaves a path out, relative to the repository's root with
// slashes; nil: it is in the artifact.
func (f *Filter) Leaves(name string, dir bool) *Pattern {
	if name == "." {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := question{name, dir}
	found, known := f.known[asked]
	if !known {
		found = f.leaves(name, dir)
		f.known[asked] = found
	}
	return found
}

func (f *Filter) leaves(name string, dir bool) *Pattern {
	parts := strings.Split(name, "/")
	verdict := func(l *List, below int) (found *Pattern, decided bool) {
		if f.work > MaxWork {
			return nil, true
		}
		found, result, work := l.find(parts[below:], dir)
		if f.work += work; result == gitignore.Exclude {
			return found, true
		}
		return nil, result == gitignore.Include
	}
	if found, decided := verdict(f.spec, 0); decided {
		return found
	}
	// The file of the innermost directory comes last, and has its say first.
	if len(f.dirs) > 0 {
		for below := len(parts) - 1; below >= 0; below-- {
			at := strings.Join(parts[:below], "/")
			if below == 0 {
				at = "."
			}
			if found, decided := verdict(f.dirs[at], below); decided {
				return found
			}
		}
	}
	found, _ := verdict(f.defaults, 0)
	return found
}
