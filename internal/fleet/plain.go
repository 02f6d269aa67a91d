package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"cloop.dev/cloop/schemas"
)

// plainRoot reads a file, or a directory and what lies below it, as far as the root has
// that. A directory below with a kustomization is rendered by it.
func (b *builder) plainRoot(ctx context.Context, at root) (*rendering, error) {
	out := &rendering{}
	s := &scan{root: b.root, gate: b.gate, comments: b.comments}
	err := b.walk(ctx, at, walker{
		file: func(file string) error {
			data, problem, err := plainFile(s, file)
			switch {
			case err != nil:
			case problem != nil:
				out.problems = append(out.problems, *problem)
			case at.takes(data):
				out.add(parsed(file, data))
			}
			return err
		},
		directory: func(dir, kustomization string) error {
			inner, err := b.taken(ctx, dir, kustomization)
			if err == nil {
				out.add(inner)
			}
			return err
		},
		wrong: func(problem schemas.Problem) { out.problems = append(out.problems, problem) },
	})
	return out, out.ended(ctx, at.path, err)
}

func (r *rendering) add(other *rendering) {
	r.objects = append(r.objects, other.objects...)
	r.problems = append(r.problems, other.problems...)
	r.partial, r.lost = r.partial || other.partial, r.lost || other.lost
}

// ended makes a problem of why reading ended. Its error is the context's.
func (r *rendering) ended(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errBounds):
		*r = rendering{problems: append(r.problems, tooLarge(err, name))}
	case ctx.Err() != nil:
		return buildError(name, err)
	default:
		r.problems = append(r.problems, located(broken(RuleBuild, err.Error()), name))
	}
	return nil
}

// walker is what becomes of what lies in a plain directory. An error ends the walk.
type walker struct {
	file func(name string) error
	// directory is one with a kustomization.
	directory func(dir, kustomization string) error
	// wrong is told of what cannot be searched.
	wrong func(schemas.Problem)
}

// walk visits the YAML files of a path, and the directories with a kustomization below
// it, in order.
func (b *builder) walk(ctx context.Context, at root, visit walker) error {
	files := 0
	return fs.WalkDir(b.root.FS(), at.path, func(file string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if file == at.path {
				return err
			}
			visit.wrong(unsearched(file, err))
			return fs.SkipDir
		}
		if at.searched && b.law().Config.Excluded(file) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return b.plainDirectory(at, file, entry, visit)
		}
		if file != at.path && (!at.directory.reads(file) || isHidden(file)) || !at.directory.has(at.path, file) || at.readBy(file) {
			return nil
		}
		if b.leavesOut(at, file) {
			return nil
		}
		if !utf8.ValidString(file) {
			visit.wrong(unsearched(file, nil))
			return nil
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			if linked, err := b.root.Stat(file); err == nil && linked.IsDir() {
				return nil
			}
		}
		if files++; files > maxPlainFiles {
			return fmt.Errorf("%w: more than %d files", errBounds, maxPlainFiles)
		}
		return visit.file(file)
	})
}

func (b *builder) plainDirectory(at root, dir string, entry fs.DirEntry, visit walker) error {
	if dir == at.path {
		return nil
	}
	if at.flat || at.directory.flat() || at.except[dir] || at.leavesAll(dir) || strings.HasPrefix(entry.Name(), ".") || isRepository(b.root, dir) {
		return fs.SkipDir
	}
	if _, err := b.root.Stat(path.Join(dir, "Chart.yaml")); err == nil && !at.applied {
		return fs.SkipDir // a Helm chart, which nothing applies as documents
	}
	kustomization, err := b.gate.kustomizationIn(dir)
	if err != nil || kustomization == "" || at.directory != nil {
		return err // Argo CD reads a directory as files alone
	}
	if err := visit.directory(dir, kustomization); err != nil {
		return err
	}
	return fs.SkipDir
}

// isHidden says whether a file is one that tools keep their settings in, such as
// .gitlab-ci.yml and .sops.yaml, as directories of such a name do.
func isHidden(name string) bool { return strings.HasPrefix(path.Base(name), ".") }

func isYAML(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml":
		return true
	}
	return false
}

// plainFile reads one file. One that cannot be read is a problem and keeps
// nobody from the others; an error ends the reading.
func plainFile(s *scan, name string) ([]byte, *schemas.Problem, error) {
	// Aliases stand for nothing in another file.
	s.aliased = aliases{}
	data, err := s.read(name)
	switch {
	case errors.Is(err, errFile):
		problem := tooLarge(err, name)
		return nil, &problem, nil
	case err == nil || errors.Is(err, errBounds):
		return data, nil, err
	}
	problem := unsearched(name, err)
	return nil, &problem, nil
}

// parsed are the documents of one file.
func parsed(name string, data []byte) *rendering {
	documents, problems := schemas.Decode(name, data)
	part := &rendering{problems: problems, lost: len(problems) > 0, objects: make([]renderedObject, 0, len(documents))}
	for i := range documents {
		textsForNulls(documents[i].Object)
		part.objects = append(part.objects, renderedObject{Rendered: Rendered{Document: documents[i], SourcePath: name}})
	}
	return part
}

// judged is what is kept of a file, or of a kustomization among files.
type judged struct {
	objects  []*facts
	problems []schemas.Problem
	// lost: see rendering.
	lost bool
}

func (r *rootChecker) judgeAll(out *rendering) *judged {
	j := &judged{problems: out.problems, lost: out.lost, objects: make([]*facts, len(out.objects))}
	for i := range out.objects {
		j.objects[i] = r.judgeWith(&out.objects[i], r.variables)
	}
	return j
}

// errVariables ends the reading of plain files that turn out to have variables
// before it was decided which values those have.
var errVariables = errors.New("there are variables")

// plain checks plain files as builder.plain reads them, on every core and
// without keeping what it has read.
func (r *rootChecker) plain(ctx context.Context, b *builder, at root) error {
	var (
		parts  []*judged
		mu     sync.Mutex // guards parts
		view   = b.under(at.leaves)
		s      = &scan{root: b.root, gate: view.gate, comments: b.comments}
		judges errgroup.Group
	)
	judges.SetLimit(runtime.GOMAXPROCS(0))
	next := func() (index int) {
		mu.Lock()
		defer mu.Unlock()
		parts = append(parts, nil)
		return len(parts) - 1
	}
	put := func(index int, part *judged) {
		mu.Lock()
		defer mu.Unlock()
		parts[index] = part
	}
	undecided := false
	defer func() { b.diagnosing = view.diagnosing }()
	err := view.walk(ctx, at, walker{
		file: func(file string) error {
			data, problem, err := plainFile(s, file)
			if err != nil || problem == nil && !at.takes(data) {
				return err
			}
			if !r.decided && bytes.Contains(data, []byte("${")) {
				return errVariables
			}
			index := next()
			if problem != nil {
				put(index, &judged{problems: []schemas.Problem{*problem}, lost: true})
				return nil
			}
			judges.Go(func() error {
				put(index, r.judgeAll(parsed(file, data)))
				return nil
			})
			return nil
		},
		directory: func(dir, kustomization string) error {
			inner, err := view.taken(ctx, dir, kustomization)
			if err == nil {
				err = b.bearOthers(ctx, dir, r.applicant, inner)
			}
			if err == nil {
				undecided = undecided || !r.decided && inner.hasVariables()
				put(next(), r.judgeAll(inner))
			}
			return err
		},
		wrong: func(problem schemas.Problem) { put(next(), &judged{problems: []schemas.Problem{problem}}) },
	})
	// No judge fails.
	_ = judges.Wait()
	if errors.Is(err, errVariables) || undecided {
		return errVariables
	}
	end := &rendering{}
	if err := end.ended(ctx, at.path, err); err != nil {
		return err
	}
	// Argo CD may make something else than documents of what lies there; that a PoolSync
	// gets nothing is told of it.
	r.report.found = at.directory != nil || at.applied && b.whole
	r.broken(end.problems)
	r.lose(len(end.problems) > 0)
	for _, part := range parts {
		r.broken(part.problems)
		r.lose(part.lost)
		if !errors.Is(err, errBounds) {
			for _, f := range part.objects {
				r.object(f)
			}
		}
	}
	return nil
}
