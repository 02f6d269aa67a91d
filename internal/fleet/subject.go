package fleet

import (
	"cmp"
	"slices"

	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// Subject is what problems are about: an object that a root renders, or a file
// of it in which something other than an object is wrong.
type Subject struct {
	// Root is the path of the RootReport that it belongs to.
	Root string `json:"root"`
	// Object is named as in a Problem; empty for a file.
	Object string `json:"object,omitempty"`
	// Pool is the hub pool that an ExecutorPool or HubPool speaks of.
	Pool string `json:"pool,omitempty"`
	// File defines the object, and Line is where its document begins.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Problems are indexes into the report's problems, ascending. One that
	// several subjects show, such as a fault of a shared base, is in each.
	Problems []int `json:"problems,omitempty"`
}

// finding is a problem, and the index of the subject that shows it.
type finding struct {
	problem schemas.Problem
	subject int
}

func anyError(findings []finding) bool {
	return slices.ContainsFunc(findings, func(f finding) bool { return f.problem.Severity == schemas.SeverityError })
}

// filesWithErrors are the files in which there is an error.
func (c *checker) filesWithErrors() map[string]bool {
	files := map[string]bool{}
	for i := range c.findings {
		if p := &c.findings[i].problem; p.Severity == schemas.SeverityError {
			files[p.File] = true
		}
	}
	return files
}

func (c *checker) find(subject int, problems ...schemas.Problem) {
	for _, problem := range problems {
		c.findings = append(c.findings, finding{problem, subject})
	}
}

// objectSubject adds an object that a root renders.
func (c *checker) objectSubject(root string, f *facts) int {
	subject := Subject{Root: root, Object: f.object, File: f.file, Line: f.line}
	if f.half != nil {
		subject.Pool = f.half.hubPool
	}
	return c.addSubject(subject)
}

// fileSubject is a file of a root: the same one for all problems with it.
func (c *checker) fileSubject(root, file string) int {
	key := [2]string{root, file}
	subject, ok := c.files[key]
	if !ok {
		subject = c.addSubject(Subject{Root: root, File: file, Line: 1})
		c.files[key] = subject
	}
	return subject
}

func (c *checker) addSubject(subject Subject) int {
	c.report.Subjects = append(c.report.Subjects, subject)
	return len(c.report.Subjects) - 1
}

// place is equal for problems that are one: a fault of a base shows in every
// overlay that uses it.
type place struct {
	rule, file, path, message string
	line, column              int
}

func placeOf(p *schemas.Problem) place {
	return place{p.Rule, p.File, p.Path, p.Message, p.Line, p.Column}
}

func sortFindings(findings []finding) {
	slices.SortFunc(findings, func(a, b finding) int {
		p, q := &a.problem, &b.problem
		return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column),
			cmp.Compare(p.Path, q.Path), cmp.Compare(p.Rule, q.Rule), cmp.Compare(p.Message, q.Message),
			cmp.Compare(a.subject, b.subject))
	})
}

// finish makes the report's problems of the findings, sorted and each once, and
// tells the subjects which are theirs.
func (c *checker) finish() {
	sortFindings(c.findings)
	indexes := map[place]int{}
	failed := map[string]bool{}
	for _, found := range c.findings {
		p := found.problem
		key := placeOf(&p)
		index, repeated := indexes[key]
		if !repeated {
			index = len(c.report.Problems)
			indexes[key] = index
			// The verdict may quote a whole value; it is the API server's to the letter.
			p.Message = secret.Redact(p.Message)
			c.report.Problems = append(c.report.Problems, p)
		}
		subject := &c.report.Subjects[found.subject]
		if n := len(subject.Problems); n == 0 || subject.Problems[n-1] != index {
			subject.Problems = append(subject.Problems, index)
		}
		if p.Severity == schemas.SeverityError {
			failed[subject.Root] = true
		}
	}
	// Rules between roots have found theirs after the roots were done.
	for i := range c.report.Roots {
		root := &c.report.Roots[i]
		root.Failed = root.Failed || failed[root.Path]
	}
}
