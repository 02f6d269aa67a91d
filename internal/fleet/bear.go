package fleet

import (
	"context"
	"path"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// hubHalf is where a fleet repository has what the hub syncs.
const hubHalf = "hub"

// bearOthers makes warnings of what is wrong with a root that is another team's, such as
// its remote bases and charts, or what a job generates: nothing of cloop.dev is in it, as
// far as the repository tells, and no PoolSync applies it, where the repository knows
// any; else what is of cloop.dev lies elsewhere than beside it. Whoever does apply it may
// take such. One that renders nothing may be an overlay that somebody has emptied, where
// nobody is known to apply it.
func (b *builder) bearOthers(ctx context.Context, at string, who applicant, out *rendering) error {
	if who == poolSync || len(out.problems) == 0 {
		return nil
	}
	s, err := b.surveyAll(ctx)
	if err != nil {
		return err
	}
	remote := func(p schemas.Problem) bool { return p.Rule == RuleRemoteReference }
	// The hub's half is of cloop.dev, also when somebody has emptied it.
	sure := at != hubHalf && s.kustomizations[at] != "" && !s.unsure(at, map[string]bool{})
	if !sure && !slices.ContainsFunc(out.problems, remote) {
		return nil
	}
	if b.mayBeOurs(root{path: at, kustomization: s.kustomizations[at]}) {
		return nil
	}
	if who == anybody && !s.oursApart(path.Dir(at)) {
		for i := range out.problems {
			if p := &out.problems[i]; remote(*p) {
				p.Hint += "; if it is another team's, leave it out by `exclude` in " + policy.ConfigFile
			}
		}
		return nil
	}
	for i := range out.problems {
		p := &out.problems[i]
		switch {
		case remote(*p):
			p.Severity = schemas.SeverityWarning
			if p.Hint == rules[RuleRemoteReference].Remedy {
				p.Hint = "what comes of it is not checked; a hub or a PoolSync would refuse it"
			}
		case sure && (p.Rule == RuleBuild || p.Rule == RuleMissingReference || p.Rule == RuleEmptyRoot && who != anybody):
			p.Severity = schemas.SeverityWarning
		}
	}
	return nil
}

// unsure says whether a kustomization, or what it refers to, cannot be read, or refers to
// what is not there: that may be of cloop.dev.
func (s *survey) unsure(dir string, seen map[string]bool) bool {
	if seen[dir] {
		return false
	}
	if seen[dir] = true; s.unread[dir] {
		return true
	}
	return slices.ContainsFunc(s.refers[dir], func(name string) bool {
		if _, ok := s.kustomizations[name]; ok {
			return s.unsure(name, seen)
		}
		if remote.MatchString(strings.TrimPrefix(name, dir+"/")) || strings.Contains(name, ":") {
			return false // it is told as what it is
		}
		info, err := s.b.root.Stat(name)
		if err == nil && !info.IsDir() {
			_, err = s.b.gate.read(name)
		}
		return err != nil
	})
}

// oursApart says whether the repository has files with documents of cloop.dev, none of
// them in a directory.
func (s *survey) oursApart(dir string) bool {
	searched, apart := int64(0), false
	for _, file := range slices.Concat(s.plain, s.covered) {
		size, ours := s.ours(file)
		if searched += size; searched > maxSearched || ours && (dir == "." || strings.HasPrefix(file, dir+"/")) {
			return false
		}
		apart = apart || ours
	}
	return apart
}
