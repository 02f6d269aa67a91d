package fleet

import (
	"fmt"
	"sync/atomic"

	"cloop.dev/cloop/internal/count"
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

// spent counts what was rendered. It is safe for concurrent use.
type spent struct{ documents, texts atomic.Int64 }

func (s *spent) add(o *renderedObject) {
	size := int64(0)
	eachText(o.Object.Object, "", func(_, text string) { size += int64(len(text)) })
	s.documents.Add(1)
	s.texts.Add(size)
}

// beyond says whether a bound is passed, and which.
func (s *spent) beyond() (which string, passed bool) {
	switch {
	case s.documents.Load() > maxDocuments:
		return count.Of(maxDocuments, "document"), true
	case s.texts.Load() > maxAllTexts:
		return fmt.Sprintf("%d MiB of text", maxAllTexts>>20), true
	}
	return "", false
}

// nameThem is the way out of what is beyond the bounds of all roots together.
const nameThem = "name some of the roots at a time, such as `clusters/eu`, or have fewer ways of applying one"

// omitted is a root, in one of the ways in which it is applied, that is not rendered
// because the others have too many documents.
func (s *spent) omitted(at root, v variant) (problem schemas.Problem, omit bool) {
	which, passed := s.beyond()
	if !passed {
		return schemas.Problem{}, false
	}
	problem = broken(RuleTooLarge, fmt.Sprintf("it is not rendered, because the roots before it have together more than %s", which))
	if v.by != "" {
		problem.Message = fmt.Sprintf("it is not rendered as %s applies it, because the roots before it, each in all the ways in which it is applied, have together more than %s", v.by, which)
	}
	problem.Hint = nameThem
	problem.File, problem.Line, problem.Column = at.path, 1, 1
	if at.kustomization != "" {
		problem.File = at.kustomization
	}
	return problem, true
}
