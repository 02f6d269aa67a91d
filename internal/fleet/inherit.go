package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/schemas"
)

// Bounds on what syncs make of each other. maxParents is how many above a sync have a say
// in what it is, maxMade how many more there are than the repository defines, and
// maxMadeText the text of one, in bytes.
const (
	maxParents  = 16
	maxMade     = 2_000
	maxMadeText = 256 << 10
)

// inherited has the appliers as those have them that apply what defines them: with
// their variables, and what a Kustomization of Flux changes by fields of its own.
// What applies an applier is one itself, so it is done until nothing changes any more.
func (b *builder) inherited(ctx context.Context, found []applier) ([]applier, error) {
	h := &heritage{b: b, rendered: map[string][]renderedObject{}, in: map[placed][]string{}}
	units := map[string]int{}
	for _, a := range found {
		at, known := units[a.in]
		if !known {
			at = len(h.units)
			units[a.in], h.units = at, append(h.units, unit{in: a.in})
		}
		h.units[at].appliers = append(h.units[at].appliers, a)
		h.in[a.place] = append(h.in[a.place], a.in)
	}
	now := found
	for range maxParents {
		next, err := h.generation(ctx, now)
		if errors.Is(err, errBounds) {
			problem := broken(RuleTooLarge, err.Error())
			problem.File, problem.Line, problem.Column = found[0].place.file, max(int(found[0].place.line), 1), 1
			problem.Hint = "have no two of them apply the path that defines both"
			b.beyond = append(b.beyond, problem)
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		done := slices.EqualFunc(now, next, func(x, y applier) bool { return x.key() == y.key() })
		if now = next; done {
			break
		}
	}
	return now, nil
}

// unit is a root or plain file that defines appliers.
type unit struct {
	in       string
	appliers []applier
}

// heritage is what appliers are made of.
type heritage struct {
	b *builder
	// units with their appliers as they are by themselves.
	units []unit
	// in: where an applier is written → its units.
	in map[placed][]string
	// rendered: directory and what alters it → the appliers of it, variables and all.
	rendered map[string][]renderedObject
}

// key is equal for appliers that are one and say the same.
func (a *applier) key() string {
	alters := ""
	if a.alteration != nil {
		alters = a.alteration.digest
	}
	return strings.Join([]string{a.name, a.in, a.path, a.source, a.variables.Digest(), alters}, "\x00")
}

// generation has the appliers as some parents have them.
func (h *heritage) generation(ctx context.Context, parents []applier) (next []applier, err error) {
	seen, whole := map[string]bool{}, map[string]bool{}
	add := func(more ...applier) {
		for i := range more {
			if key := more[i].key(); !seen[key] {
				seen[key] = true
				next = append(next, more[i])
			}
		}
	}
	most := maxMade
	for i := range h.units {
		most += len(h.units[i].appliers)
	}
	paths := pathsOf(parents)
	for i := range h.units {
		u := &h.units[i]
		inherits := false
		for _, j := range paths.applying(parents, u.in) {
			p := &parents[j]
			if inherits = true; ctx.Err() != nil {
				return nil, buildError(u.in, ctx.Err())
			}
			if len(next) > most {
				return nil, fmt.Errorf("%w: syncs that apply each other make more than %d of themselves", errBounds, most)
			}
			switch {
			case p.alters() != nil:
				objects, err := h.altered(ctx, u.in, p)
				if err != nil {
					return nil, err
				}
				key := p.name + "\x00" + p.alteration.digest + "\x00" + p.variables.Digest() + "\x00" + p.path
				add(h.children(objects, u, p, !whole[key])...)
				whole[key] = true
				add(u.but(objects)...)
			case p.variables != nil:
				for k := range u.appliers {
					if o := u.appliers[k].object; o != nil {
						add(h.children([]renderedObject{*o}, u, p, false)...)
					} else {
						add(u.appliers[k])
					}
				}
			default:
				add(u.appliers...)
			}
		}
		if !inherits {
			add(u.appliers...)
		}
	}
	h.b.plainPaths(next)
	h.b.elsewhere(next)
	return next, nil
}

// but are the appliers of a unit that are not among objects: what cannot be rendered,
// which is told of the root, is as it is by itself.
func (u *unit) but(objects []renderedObject) (left []applier) {
	rendered := map[placed]bool{}
	for i := range objects {
		rendered[objects[i].defined()] = true
	}
	for _, a := range u.appliers {
		if !rendered[a.place] {
			left = append(left, a)
		}
	}
	return left
}

// defined is where an object is written.
func (o *renderedObject) defined() placed {
	return placed{file: o.File, line: int32(o.Line)} //nolint:gosec // files are bounded
}

// altered are the appliers of a root as its parent alters it, as far as it can be
// rendered. A plain directory is rendered as a whole.
func (h *heritage) altered(ctx context.Context, in string, p *applier) (found []renderedObject, err error) {
	at := root{path: in, kustomization: h.b.surveyed.kustomizations[in]}
	if p.plain {
		at = root{path: p.path, applied: true, directory: p.directory}
	}
	key := at.path + "\x00" + p.alteration.digest
	if known, ok := h.rendered[key]; ok {
		return known, nil
	}
	out, err := h.b.as(ctx, at, p)
	if err != nil {
		return nil, err
	}
	for i := range out.objects {
		if o := &out.objects[i]; len(o.applier(nil, in)) > 0 {
			found = append(found, *o)
		}
	}
	h.rendered[key] = found
	return found, nil
}

// children are the appliers that objects are with the variables of their parent: those
// that a unit defines and, with all, those that no unit does.
func (h *heritage) children(objects []renderedObject, u *unit, p *applier, all bool) (found []applier) {
	for i := range objects {
		o := objects[i]
		units := h.in[o.defined()]
		if !slices.Contains(units, u.in) && (!all || len(units) > 0) {
			continue
		}
		at := u.in
		if p.plain && len(units) == 0 {
			at = p.path
		}
		if p.variables != nil {
			v := p.variables.Over(h.b.given.in(at))
			// What has no value is told of a root, where it matters.
			made := o
			_ = made.substitute(v.lenient(o.Object))
			size := 0
			eachText(made.Object.Object, "", func(_, text string) { size += len(text) })
			if size <= maxMadeText {
				o = made
			}
		}
		o.finish()
		found = o.applier(found, at)
	}
	return found
}

// unknownPaths says of which appliers nobody knows what they apply, for a variable of
// their path that has no value here.
func unknownPaths(appliers []applier) (unknown []schemas.Problem) {
	for i := range appliers {
		if a := &appliers[i]; a.object != nil && strings.Contains(a.path, "${") {
			problem := a.object.locate(a.object.about(RuleUnresolvedVariable, "spec.path", fmt.Sprintf("its path %s has a variable without a value", a.path)))
			unknown = append(unknown, problem)
		}
	}
	return unknown
}
