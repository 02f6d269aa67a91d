package fleet

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/schemas"
)

// kustomize ends at the first thing that it refuses, says so in one long line, and
// rarely where. A diagnosis finds all such things, each with its place, and renders
// the root without them, so that the rest of it can be checked too.
//
// It begins with what can be told by looking: what the scan has found, and what
// kustomize refuses whatever else there is. That is left out, however much it is.
// What remains is rendered. Where kustomize refuses that as well, a search takes
// the steps of the root, renders some of them, then more or fewer, until one is
// left with which it fails and without which it does not; leaves that out, and
// goes on behind it.
//
// What is refused only because of what was left out is left out in silence: see
// leftOut.
type diagnosis struct {
	*steps
	b   *builder
	dir string
	// file is the root's kustomization.
	file     string
	problems []schemas.Problem
	out      *leftOut
	// stuck says that something is wrong that is in no step, so that nothing can be
	// rendered without it.
	stuck bool
	began time.Time
	// tries counts the renderings; rendered is the last one that kustomize did not
	// refuse.
	tries    int
	rendered *run
}

// Bounds on the search for what is wrong: how often a root is rendered, and for
// how long, for all roots of a check together.
const (
	maxDiagnosis = 10 * time.Second
	maxSteps     = 100_000
)

var maxTries = 200

// diagnosed is a step that was found: an overlay that says the same, and has the
// same step, need not be searched.
type diagnosed struct {
	said  string
	entry entry
	part  int
	// problem is nil where it was left out in silence.
	problem *schemas.Problem
}

// refused is a root that is not rendered as it is: kustomize's error, or none where
// kustomize was not let near it.
func (s *scan) refusedBy(ctx context.Context, b *builder, dir, file string, refusal error) *rendering {
	s.unfold()
	d := &diagnosis{steps: s.takeApart(dir), b: b, dir: dir, file: file, out: &leftOut{scan: s}, began: b.clock.Now()}
	defer func() { b.diagnosing += b.clock.Since(d.began) }()
	said := ""
	if refusal != nil {
		said = b.withoutDirectory(refusal)
	}
	d.stated()
	d.malformed()
	if d.count <= maxSteps {
		d.evident(ctx)
	}
	out := &rendering{}
	if reason := d.remaining(ctx, said, refusal, out); reason != "" {
		problem := located(broken(RuleBuild, innermost(reason)), file)
		if len(d.problems) > 0 {
			problem.Hint = "mend the others first: the search for what else kustomize refuses ends here"
		}
		d.problems = append(d.problems, problem)
	}
	out.problems = append(d.problems, out.problems...)
	if len(out.problems) == 0 {
		// Whatever it was: what is left out is never well.
		out.problems = []schemas.Problem{located(broken(RuleBuild, innermost(said)), file)}
	}
	out.partial, out.lost = true, out.lost || d.out.lost() || len(out.objects) == 0
	for i := range out.objects {
		out.objects[i].without = d.out
	}
	return out
}

// remaining renders what is not left out. Its reason is why it cannot, in
// kustomize's words; none where d.problems have it.
func (d *diagnosis) remaining(ctx context.Context, said string, refusal error, out *rendering) (reason string) {
	if d.stuck || d.count == 0 || d.count > maxSteps {
		if len(d.problems) > 0 {
			return ""
		}
		return said
	}
	if errors.Is(refusal, errBounds) && len(d.problems) == 0 {
		d.problems = append(d.problems, tooLarge(refusal, d.file))
		return ""
	}
	if safe, problem := d.safe(ctx); !safe {
		if problem != nil {
			d.problems = append(d.problems, *problem)
		}
		return ""
	}
	failed := true
	if len(d.problems) > 0 || said == "" || errors.Is(refusal, errBounds) {
		said, failed = d.fails(ctx, d.count)
	}
	if failed && isClash(said) && d.twins(ctx) {
		said, failed = d.fails(ctx, d.count)
	}
	if failed {
		if reason, failed = d.search(ctx, said); failed {
			return reason
		}
	}
	d.out.lose()
	rendered := d.scan.objectsOf(d.rendered, false, d.file)
	d.scan.relate(rendered.objects, d.file)
	*out = *rendered
	return ""
}

// over says whether the search has had its time.
func (d *diagnosis) over(ctx context.Context) bool {
	return ctx.Err() != nil || d.b.diagnosing+d.b.clock.Since(d.began) > maxDiagnosis
}

// stated are the problems that the scan has found: they are told, and what they
// are about is left out.
func (d *diagnosis) stated() {
	for i := range d.scan.problems {
		problem := &d.scan.problems[i]
		d.problems = append(d.problems, *problem)
		d.leaveOut(problem, d.scan.of[i])
	}
}

// leaveOut leaves out what a problem is about: the document, the entry that brought
// it, or what stands at its place in a kustomization.
func (d *diagnosis) leaveOut(problem *schemas.Problem, of entry) {
	it := d.entries[of]
	if it == nil || of.file != problem.File {
		if _, kustomization := d.fields[problem.File]; kustomization {
			owners := d.ownersOf(problem)
			for _, owner := range owners {
				d.leave(owner, everyPart, true)
			}
			if d.names[nodeAt{problem.File, problem.Line, problem.Column}] && len(owners) == 0 {
				// The field has nothing that could be left out, and was to have something.
				d.out.objects, d.out.fields = true, true
				return
			}
			if len(owners) > 0 {
				return
			}
		}
	}
	switch {
	case it == nil:
		d.stuck = true
	case problem.Rule == schemas.RuleDuplicateKey && it.documents != nil:
		d.leave(it, it.document(problem.Line), false)
	case it.documents != nil:
		// What cannot be read is not among the documents that it is cut into.
		it.rewritten = true
		d.out.objects = true
	default:
		d.leave(it, everyPart, true)
	}
}

// malformed are the problems with the kustomizations themselves.
func (d *diagnosis) malformed() {
	told := map[place]bool{}
	for i := range d.problems {
		told[placeOf(&d.problems[i])] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(d.scan.directories)) {
		file := d.scan.directories[dir]
		others, wrong, empty := d.scan.malformed(dir, file)
		for i := range others {
			// Which of the two is meant nobody knows.
			d.hidden = append(d.hidden, others[i].File)
			d.out.objects, d.out.fields = true, true
		}
		wrong = slices.DeleteFunc(wrong, func(p schemas.Problem) bool { return told[placeOf(&p)] })
		for i := range wrong {
			d.leaveOut(&wrong[i], entry{})
		}
		if len(empty) > 0 {
			// As a part of the root it has a name at least, which is enough for kustomize.
			d.out.objects, d.out.fields = true, true
		}
		d.problems = append(d.problems, slices.Concat(others, wrong, empty)...)
	}
}

// safe says whether what remains may be given to kustomize, which might reach the
// network or render without bounds: it is scanned as every root is.
func (d *diagnosis) safe(ctx context.Context) (bool, *schemas.Problem) {
	replaced, err := d.files(d.count)
	if err != nil {
		return false, nil
	}
	s := &scan{root: d.scan.root, gate: d.scan.gate, replaced: replaced}
	if err = s.visit(ctx, d.dir, d.file, 0, 0); err == nil {
		err = s.tooMuch()
	}
	switch {
	case ctx.Err() != nil:
		return false, nil
	case errors.Is(err, errBounds):
		problem := tooLarge(err, d.file)
		return false, &problem
	}
	return err == nil && !s.refused && len(s.lost()) == 0, nil
}

// twins leaves out what kustomize refuses for being there twice, and says whether
// there is any.
func (d *diagnosis) twins(ctx context.Context) bool {
	found := d.b.twinsOf(ctx, d.dir, d.file)
	told := map[place]bool{}
	before := d.out.count
	for i := range found.problems {
		problem := &found.problems[i]
		if found.layers[i] >= len(d.scan.layers) {
			continue
		}
		l := &d.scan.layers[found.layers[i]]
		owners := d.ownersOf(problem)
		if l.file != problem.File && len(owners) > 0 {
			for _, it := range owners {
				d.leave(it, everyPart, false)
			}
		} else if it := d.entries[l.entry]; it != nil {
			d.leave(it, it.document(l.document.Line), false)
		}
		if key := placeOf(problem); !told[key] && !d.out.names {
			told[key] = true
			d.problems = append(d.problems, *problem)
		}
	}
	return d.out.count > before
}

func isClash(said string) bool {
	return strings.Contains(said, "already registered id") || strings.Contains(said, "ID conflict")
}

// search leaves out step by step what kustomize refuses, until it refuses nothing.
// said is its error for the whole. Where the search ends before, reason is what
// kustomize says then.
func (d *diagnosis) search(ctx context.Context, said string) (reason string, failed bool) {
	if message, failed := d.fails(ctx, 0); failed {
		return message, true
	}
	// The first good steps render, and bad ones do not. Behind what was found the
	// next is looked for close by: mistakes come together.
	good, bad, stride := 0, d.count, d.count
	for {
		if d.over(ctx) || d.tries > maxTries {
			return said, true
		}
		if step, problem, known := d.known(said); known {
			d.take(step, problem)
		} else {
			for bad-good > 1 {
				step := good + (bad-good)/2
				if message, failed := d.fails(ctx, step); failed {
					bad, said = step, message
				} else {
					good = step
				}
				if d.over(ctx) || d.tries > maxTries {
					return said, true
				}
			}
			d.take(bad, d.explain(bad, said))
			good, stride = bad, 1
		}
		for {
			bad = min(good+stride, d.count)
			if said, failed = d.fails(ctx, bad); failed || bad == d.count {
				break
			}
			good, stride = bad, 2*stride
		}
		if !failed {
			return "", false
		}
	}
}

// known is the step that another root was found to fail with in the same words.
func (d *diagnosis) known(said string) (step int, problem *schemas.Problem, ok bool) {
	said = innermost(said)
	for i := range d.b.diagnosed {
		known := &d.b.diagnosed[i]
		it := d.entries[known.entry]
		if known.said == said && it != nil && known.part < len(it.parts) && !it.left[known.part] {
			return it.first + known.part + 1, known.problem, true
		}
	}
	return 0, nil, false
}

// explain says what is wrong with a step; nil where that may only be for what was
// left out. said is what kustomize says.
func (d *diagnosis) explain(step int, said string) *schemas.Problem {
	it, n := d.step(step)
	said = innermost(said)
	f := d.scan.words(it, n, said)
	var problem *schemas.Problem
	if !d.out.explains(f) {
		told := f.problem()
		problem = &told
	}
	if it.list {
		d.b.diagnosed = append(d.b.diagnosed, diagnosed{said, it.entry(), n, problem})
	}
	return problem
}

// take tells a problem and leaves its step out.
func (d *diagnosis) take(step int, problem *schemas.Problem) {
	it, n := d.step(step)
	if problem != nil {
		d.problems = append(d.problems, *problem)
	}
	d.leave(it, n, false)
}

// fails renders the root as far as the first steps, and gives kustomize's error.
func (d *diagnosis) fails(ctx context.Context, count int) (message string, failed bool) {
	d.tries++
	replaced, err := d.files(count)
	if err != nil {
		return err.Error(), true
	}
	resources, err := d.b.run(ctx, d.dir, d.b.absolute(replaced), d.scan.knowledge())
	var of *run
	if err == nil {
		of, err = madeOf(resources)
	}
	if err != nil {
		return d.b.withoutDirectory(err), true
	}
	d.rendered = of
	return "", false
}

// withoutDirectory is an error's text with paths as the repository has them.
func (b *builder) withoutDirectory(err error) string {
	text := strings.ReplaceAll(err.Error(), b.dir+string(filepath.Separator), "")
	return strings.Join(strings.Fields(strings.ReplaceAll(text, b.dir, ".")), " ")
}

var (
	outerWords = regexp.MustCompile(`^(.*(recursed accumulation of path|couldn't make target for path) '[^']*': |accumulating (resources|components): |accumulation err='.*?': )`)
	quoted     = regexp.MustCompile(`accumulateDirectory: ("(?:[^"\\]|\\.)*")$`)
)

// innermost is what of kustomize's error is not about the way to where it met it.
func innermost(said string) string {
	for range maxNesting {
		before := said
		if match := quoted.FindStringSubmatch(said); match != nil {
			if text, err := strconv.Unquote(match[1]); err == nil {
				said = text
			}
		}
		said = strings.TrimPrefix(said, outerWords.FindString(said))
		if said == before {
			break
		}
	}
	return said
}

// document is the part of a resource file that begins on a line or before it.
func (it *item) document(line int) (number int) {
	if len(it.documents) < 2 {
		return everyPart
	}
	for i := range it.parts {
		if int(it.parts[i].at.line) <= line {
			number = i
		}
	}
	return number
}
