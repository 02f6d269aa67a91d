package fleet

import (
	"fmt"

	"cloop.dev/cloop/schemas"
)

// doubt notes why the appliers that the repository has are not known for sure: what
// cannot be read, or rendered, may have more.
func (b *builder) doubt(problems ...schemas.Problem) {
	for _, problem := range problems {
		if problem.Severity == schemas.SeverityError {
			b.doubts = append(b.doubts, problem)
		}
	}
}

// settleDoubts decides about variables without a value where an applier could not be
// read, which may give it. Where the report tells of that, the variable is a
// consequence, and is looked at again once that is mended. A file that belongs to no
// root, such as a template of objects, is told of nowhere, and hides nothing.
func (c *checker) settleDoubts() {
	if c.appliers != nil {
		c.hintUnknown(unknownPaths(*c.appliers))
		c.hintElsewhere()
	}
	if len(c.doubts) == 0 {
		return
	}
	wrong := c.filesWithErrors()
	for i := range c.doubts {
		if wrong[c.doubts[i].File] {
			c.sift(func(f *finding) bool { return f.problem.Rule != RuleUnresolvedVariable })
			return
		}
	}
	first := &c.doubts[0]
	for i := range c.findings {
		if p := &c.findings[i].problem; p.Rule == RuleUnresolvedVariable {
			p.Hint += fmt.Sprintf("; %s:%d may name what applies this, and cannot be read: %s", first.File, max(first.Line, 1), first.Message)
		}
	}
}

// hintUnknown says of variables without a value what may apply them with one.
func (c *checker) hintUnknown(unknown []schemas.Problem) {
	for i := range c.findings {
		if p := &c.findings[i].problem; p.Rule == RuleUnresolvedVariable && len(unknown) > 0 {
			p.Hint += fmt.Sprintf("; %s at %s:%d may apply this, but %s", unknown[0].Object, unknown[0].File, unknown[0].Line, unknown[0].Message)
		}
	}
}

// sift keeps some of the findings.
func (c *checker) sift(keep func(*finding) bool) {
	live := c.findings[:0:0]
	kept := make([]int, 0, len(c.findings)+1)
	for i := range c.findings {
		kept = append(kept, len(live))
		if keep(&c.findings[i]) {
			live = append(live, c.findings[i])
		}
	}
	kept = append(kept, len(live))
	c.findings = live
	for i, span := range c.spans {
		c.spans[i] = [2]int{kept[span[0]], kept[span[1]]}
	}
}
