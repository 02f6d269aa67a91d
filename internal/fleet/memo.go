package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// memo is what a builder remembers of the last build of one path. The builds of
// one memo come one after another.
//
// What it holds is the text of the objects, and about a hundred bytes for each file
// and each verdict.
type memo struct {
	// runs of kustomize that the last build used: key → run.
	runs map[answer]*run
	// replaced: object and variables, by their digests → the object with the
	// variables replaced.
	replaced map[answer]made
	// sound are the objects that there was nothing to say of, by their digests,
	// with what it cost to say so; law is the digest of what they were judged by.
	sound map[[sha256.Size]byte]policy.Cost
	law   answer
	mu    sync.Mutex // guards next.sound
	// outlines: file and its text → the outline.
	outlines map[answer]*outline
	// next is what the build that is on its way will leave.
	next *memo
	// replay of the build that is on its way.
	replay *replay
}

// run is what one run of kustomize rendered.
type run struct {
	objects []made
	// fresh are the trees of objects until the first asks for them.
	fresh []*unstructured.Unstructured
	// wrong is about what is no object; a run with any is not remembered.
	wrong []error
	trace *trace
}

// trees are those of the run's objects.
func (r *run) trees() []*unstructured.Unstructured {
	trees := r.fresh
	if r.fresh = nil; trees != nil {
		return trees
	}
	trees = make([]*unstructured.Unstructured, len(r.objects))
	for i := range r.objects {
		trees[i] = r.objects[i].tree()
	}
	return trees
}

// begin makes ready for a build under a law. What was judged by another says
// nothing.
func (m *memo) begin(law answer) {
	m.next = &memo{
		runs: map[answer]*run{}, replaced: map[answer]made{}, sound: map[[sha256.Size]byte]policy.Cost{}, outlines: map[answer]*outline{},
	}
	if m.law != law {
		m.sound, m.law = nil, law
	}
}

// keep lets go of what the build did not use, once it is done. A build that
// failed leaves all as it was, for the one that mends it. judged says that the
// verdicts count.
func (m *memo) keep(judged bool) {
	sound := m.next.sound
	if !judged {
		sound = nil
	}
	m.runs, m.replaced, m.outlines, m.sound = m.next.runs, m.next.replaced, m.next.outlines, sound
}

// end lets go of what is of the build alone.
func (m *memo) end() { m.next, m.replay = nil, nil }

// remembered runs kustomize, or finds that an earlier run would render the same.
func (b *builder) remembered(ctx context.Context, dir string, replaced map[string][]byte, knows knowledge) (out *run, reused bool, err error) {
	files, err := b.files(replaced)
	if err != nil {
		return nil, false, err
	}
	if b.memo == nil {
		resources, err := b.runOver(ctx, dir, files, knows)
		if err != nil {
			return nil, false, err
		}
		out, err := madeOf(resources)
		return out, false, err
	}
	m, key := b.memo, b.keyOf(dir, replaced)
	if m.replay == nil {
		m.replay = newReplay(files, b.dir)
	}
	if out = m.runs[key]; out != nil && m.replay.holds(out.trace) {
		m.next.runs[key] = out
		return out, true, nil
	}
	traced := tracedFiles{files, b.dir, newTrace()}
	resources, err := b.runOver(ctx, dir, traced, knows)
	if err != nil {
		return nil, false, err
	}
	if out, err = madeOf(resources); err != nil {
		return nil, false, err
	}
	out.trace = traced.trace
	for _, text := range replaced {
		out.trace.unknown = out.trace.unknown || bytes.Contains(text, []byte(b.dir))
	}
	if len(out.wrong) == 0 && !out.trace.unknown {
		m.next.runs[key] = out
	}
	return out, false, nil
}

// keyOf is equal for runs over the same directory with the same kustomizations in
// place of the files'.
func (b *builder) keyOf(dir string, replaced map[string][]byte) answer {
	texts := []string{dir}
	for _, name := range slices.Sorted(maps.Keys(replaced)) {
		texts = append(texts, relative(b.dir, name), string(replaced[name]))
	}
	return answerOf(texts...)
}

// outlineOf is the outline of a file; nil: it is not known.
func (m *memo) outlineOf(key answer) *outline {
	if m == nil {
		return nil
	}
	known := m.outlines[key]
	if known == nil {
		// A root may read a file twice.
		known = m.next.outlines[key]
	}
	if known != nil {
		m.next.outlines[key] = known
	}
	return known
}

// noteOutline keeps the outline of a file.
func (m *memo) noteOutline(key answer, documents []schemas.Document) *outline {
	known := outlineOf(documents)
	m.next.outlines[key] = known
	return known
}

// substitute replaces an object's variables, or finds what became of it when it had
// the same values before. of is the digest of the values.
func (m *memo) substitute(o *renderedObject, v *Variables, of answer) []schemas.Problem {
	if m == nil || v == nil || o.digest == nil {
		return o.substitute(v)
	}
	key := answerOf(string(o.digest[:]), string(of[:]))
	known, ok := m.replaced[key]
	if !ok {
		if problems := o.substitute(v); len(problems) > 0 || o.variables == nil {
			return problems
		}
		if len(o.variables) > 0 {
			// The places of some fields are those of the values.
			return nil
		}
		known = madeAs([]byte(canonical(o.Object.Object)))
	} else {
		o.Object = known.tree()
	}
	m.next.replaced[key] = known
	o.digest, o.variables = &known.digest, map[string]placed{}
	return nil
}

// wasSound says whether there was nothing to say of an object, and what it cost
// to find that.
func (m *memo) wasSound(o *renderedObject) (cost policy.Cost, sound bool) {
	if m == nil {
		return nil, false
	}
	if cost, sound = m.sound[o.sum()]; sound {
		m.noteSound(o, cost)
	}
	return cost, sound
}

// noteSound keeps that there is nothing to say of an object. It is safe for
// concurrent use, as wasSound is.
func (m *memo) noteSound(o *renderedObject, cost policy.Cost) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next.sound[o.sum()] = cost
}

// sum is the digest of an object.
func (o *renderedObject) sum() [sha256.Size]byte {
	if o.digest == nil {
		digest := digestOf(o.Object)
		o.digest = &digest
	}
	return *o.digest
}

// digestOf is the digest of an object that kustomize did not render.
func digestOf(object *unstructured.Unstructured) [sha256.Size]byte {
	return sha256.Sum256([]byte(canonical(object.Object)))
}
