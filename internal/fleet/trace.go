package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
	"strings"

	kfilesys "sigs.k8s.io/kustomize/kyaml/filesys"
)

// trace is all that one run of kustomize asked of the files, and what it was told.
// What a run renders depends on that, on the kustomizations that it was given
// instead of the files', and on nothing else: it sees neither the network nor a
// program nor the time. So where another tree gives every answer again, the run
// would render the same again, whatever else has changed there: a link that leads
// elsewhere, another name of a kustomization, a file where there was none.
type trace struct {
	answers map[question]answer
	// unknown says that the run did something that no answer tells, or read a text
	// with the directory of its own tree in it.
	unknown bool
}

// question is one call of a file system. name is relative to the tree, unless it
// is outside; then it is absolute.
type question struct {
	asks asks
	name string
}

// asks is what a question is about.
type asks uint8

const (
	asksContent asks = iota
	asksExists
	asksDirectory
	asksClean
	asksEntries
	asksMatches
)

// answer is a digest of what was told, an error included.
type answer [sha256.Size]byte

func answerOf(texts ...string) answer {
	h := sha256.New()
	var length [8]byte
	for _, text := range texts {
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	var a answer
	h.Sum(a[:0])
	return a
}

func newTrace() *trace { return &trace{answers: map[question]answer{}} }

// tracedFiles are files that a trace is kept of.
type tracedFiles struct {
	boundedFiles
	dir   string
	trace *trace
}

// relative is a path within the tree, or as it is.
func relative(dir, name string) string {
	if name == dir {
		return "."
	}
	if rest, below := strings.CutPrefix(name, dir+string(filepath.Separator)); below {
		return rest
	}
	return name
}

// told is an error without the directory of the tree, which is another each time.
func told(dir string, err error) string {
	if err == nil {
		return ""
	}
	return "error: " + strings.ReplaceAll(err.Error(), dir, ".")
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func (f tracedFiles) note(what asks, name string, texts ...string) {
	// What is not absolute would depend on where the process runs.
	f.trace.unknown = f.trace.unknown || !filepath.IsAbs(name)
	f.trace.answers[question{what, relative(f.dir, name)}] = answerOf(texts...)
}

// ReadFile is filesys.FileSystem's.
func (f tracedFiles) ReadFile(name string) ([]byte, error) {
	data, err := f.boundedFiles.ReadFile(name)
	if !f.isReplaced(name) {
		f.trace.unknown = f.trace.unknown || bytes.Contains(data, []byte(f.dir))
		f.note(asksContent, name, string(data), told(f.dir, err))
	}
	return data, err
}

// Exists is filesys.FileSystem's.
func (f tracedFiles) Exists(name string) bool {
	is := f.boundedFiles.Exists(name)
	f.note(asksExists, name, yesNo(is))
	return is
}

// IsDir is filesys.FileSystem's.
func (f tracedFiles) IsDir(name string) bool {
	is := f.boundedFiles.IsDir(name)
	f.note(asksDirectory, name, yesNo(is))
	return is
}

// CleanedAbs is filesys.FileSystem's.
func (f tracedFiles) CleanedAbs(name string) (kfilesys.ConfirmedDir, string, error) {
	dir, file, err := f.boundedFiles.CleanedAbs(name)
	f.note(asksClean, name, relative(f.dir, dir.String()), file, told(f.dir, err))
	return dir, file, err
}

// ReadDir is filesys.FileSystem's.
func (f tracedFiles) ReadDir(name string) ([]string, error) {
	entries, err := f.boundedFiles.ReadDir(name)
	f.note(asksEntries, name, append(entries, told(f.dir, err))...)
	return entries, err
}

// Glob is filesys.FileSystem's.
func (f tracedFiles) Glob(pattern string) ([]string, error) {
	found, err := f.boundedFiles.Glob(pattern)
	texts := []string{told(f.dir, err)}
	for _, name := range found {
		texts = append(texts, relative(f.dir, name))
	}
	f.note(asksMatches, pattern, texts...)
	return found, err
}

// What follows is nothing that kustomize does to render; a run that does it all
// the same is not remembered.

// Open is filesys.FileSystem's.
func (f tracedFiles) Open(name string) (kfilesys.File, error) {
	f.trace.unknown = true
	return f.boundedFiles.Open(name)
}

// Walk is filesys.FileSystem's.
func (f tracedFiles) Walk(name string, visit filepath.WalkFunc) error {
	f.trace.unknown = true
	return f.boundedFiles.Walk(name, visit)
}

// Create is filesys.FileSystem's.
func (f tracedFiles) Create(name string) (kfilesys.File, error) {
	f.trace.unknown = true
	return f.boundedFiles.Create(name)
}

// WriteFile is filesys.FileSystem's.
func (f tracedFiles) WriteFile(name string, data []byte) error {
	f.trace.unknown = true
	return f.boundedFiles.WriteFile(name, data)
}

// Mkdir is filesys.FileSystem's.
func (f tracedFiles) Mkdir(name string) error {
	f.trace.unknown = true
	return f.boundedFiles.Mkdir(name)
}

// MkdirAll is filesys.FileSystem's.
func (f tracedFiles) MkdirAll(name string) error {
	f.trace.unknown = true
	return f.boundedFiles.MkdirAll(name)
}

// RemoveAll is filesys.FileSystem's.
func (f tracedFiles) RemoveAll(name string) error {
	f.trace.unknown = true
	return f.boundedFiles.RemoveAll(name)
}

// replay asks a tree questions, each once.
type replay struct {
	files tracedFiles
}

func newReplay(files boundedFiles, dir string) *replay {
	// Every alias was counted when the run was made.
	files.aliased, files.replaced = nil, nil
	return &replay{tracedFiles{files, dir, newTrace()}}
}

// holds says whether the tree gives every answer of a trace again.
func (r *replay) holds(t *trace) bool {
	for q, a := range t.answers {
		now, asked := r.files.trace.answers[q]
		if !asked {
			r.ask(q)
			now = r.files.trace.answers[q]
		}
		if now != a {
			return false
		}
	}
	return !r.files.trace.unknown
}

func (r *replay) ask(q question) {
	name := q.name
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.files.dir, name)
	}
	switch q.asks {
	case asksContent:
		_, _ = r.files.ReadFile(name)
	case asksExists:
		r.files.Exists(name)
	case asksDirectory:
		r.files.IsDir(name)
	case asksClean:
		_, _, _ = r.files.CleanedAbs(name)
	case asksEntries:
		_, _ = r.files.ReadDir(name)
	case asksMatches:
		_, _ = r.files.Glob(name)
	}
}
