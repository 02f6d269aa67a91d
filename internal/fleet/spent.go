package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// Bounds on what the roots of a check, or of one revision of a comparison, render
// together, each in all ways in which it is applied: a few overlays of one base, and a
// few objects that apply one path, make any number of documents of a small repository.
// The texts of the documents are counted in bytes.
var (
	maxDocuments int64 = 50_000
	maxAllTexts  int64 = 128 << 20
)

// spent counts what was rendered. Of the roots in which nothing is of cloop.dev it does
// so apart, so that those of other teams keep nobody's pools from being looked at.
type spent struct {
	documents, texts atomic.Int64
	// others are what those roots have, and began what there was before the last root.
	others, began tally
	// open: the root has not ended.
	open bool
}

type tally struct{ documents, texts int64 }

// begin begins a root, and end ends it. One that was begun again had nothing before.
func (s *spent) begin() {
	if s.open {
		s.documents.Store(s.began.documents)
		s.texts.Store(s.began.texts)
	}
	s.began, s.open = tally{s.documents.Load(), s.texts.Load()}, true
}

func (s *spent) end(ours bool) {
	if s.open = false; ours {
		return
	}
	s.others.documents += s.documents.Load() - s.began.documents
	s.others.texts += s.texts.Load() - s.began.texts
	s.documents.Store(s.began.documents)
	s.texts.Store(s.began.texts)
}

// add counts an object of the root. It is safe for concurrent use.
func (s *spent) add(o *renderedObject) {
	size := int64(0)
	eachText(o.Object.Object, "", func(_, text string) { size += int64(len(text)) })
	s.documents.Add(1)
	s.texts.Add(size)
}

// beyond says whether a bound is passed, and which.
func (t tally) beyond() (which string, passed bool) {
	switch {
	case t.documents > maxDocuments:
		return count.Of(maxDocuments, "document"), true
	case t.texts > maxAllTexts:
		return fmt.Sprintf("%d MiB of text", maxAllTexts>>20), true
	}
	return "", false
}

// nameThem is the way out of what is beyond the bounds of all roots together.
const nameThem = "name some of the roots at a time, such as `clusters/eu`, or have fewer ways of applying one"

// omitted is a root, in one of the ways in which it is applied, that is not rendered
// because the others have too many documents. That is a warning where nothing in the
// root can be of cloop.dev.
func (s *spent) omitted(b *builder, at root, v variant) (problem schemas.Problem, omit bool) {
	which, passed := tally{s.documents.Load(), s.texts.Load()}.beyond()
	switch {
	case passed && v.by != "":
		problem = broken(RuleTooLarge, fmt.Sprintf("it is not rendered as %s applies it, because the roots before it, each in all the ways in which it is applied, have together more than %s", v.by, which))
		problem.Hint = nameThem
	case passed:
		problem = broken(RuleTooLarge, fmt.Sprintf("it is not rendered, because the roots before it have together more than %s", which))
		problem.Hint = nameThem
	default:
		if which, passed = s.others.beyond(); !passed || b.mayBeOurs(at) {
			return schemas.Problem{}, false
		}
		problem = broken(RuleTooLarge, fmt.Sprintf("it is not rendered: nothing in it is of cloop.dev, and the roots before it of which that is true have together more than %s", which))
		problem.Severity, problem.Hint = schemas.SeverityWarning, "leave such roots out by `exclude` in "+policy.ConfigFile
	}
	problem.File, problem.Line, problem.Column = at.path, 1, 1
	if at.kustomization != "" {
		problem.File = at.kustomization
	}
	return problem, true
}

// mayBeOurs says whether a root may have a document of cloop.dev, as far as the texts of
// its files tell.
func (b *builder) mayBeOurs(at root) bool {
	s := b.surveyed
	if s == nil {
		return true
	}
	below := func(name string) bool { return at.path == "." || strings.HasPrefix(name, at.path+"/") }
	if at.kustomization != "" {
		return s.reaches(at.path, map[string]bool{}, ourDocument.Match)
	}
	for _, file := range slices.Concat(s.plain, s.covered) {
		if !below(file) {
			continue
		}
		if _, ours := s.ours(file); ours {
			return true
		}
	}
	return slices.ContainsFunc(s.order, func(dir string) bool { return below(dir) && s.reaches(dir, map[string]bool{}, ourDocument.Match) })
}
