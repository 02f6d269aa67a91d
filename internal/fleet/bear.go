package fleet

import (
	"context"
	"path"
	"slices"
	"strings"

	"cloop.dev/cloop/schemas"
)

// bearRemote makes warnings of the remote bases and charts of a root that is another
// team's: nothing of cloop.dev is in it, as far as the repository tells, and no
// PoolSync applies it, where the repository knows any; else what is of cloop.dev lies
// elsewhere than beside it. Whoever does apply it may take such.
func (b *builder) bearRemote(ctx context.Context, at string, who applicant, out *rendering) error {
	remote := func(p schemas.Problem) bool { return p.Rule == RuleRemoteReference }
	if who == poolSync || !slices.ContainsFunc(out.problems, remote) {
		return nil
	}
	s, err := b.surveyAll(ctx)
	if err != nil {
		return err
	}
	if b.mayBeOurs(root{path: at, kustomization: s.kustomizations[at]}) || who == anybody && !s.oursApart(path.Dir(at)) {
		return nil
	}
	for i := range out.problems {
		if remote(out.problems[i]) {
			out.problems[i].Severity = schemas.SeverityWarning
			if out.problems[i].Hint == rules[RuleRemoteReference].Remedy {
				out.problems[i].Hint = "what comes of it is not checked; a hub or a PoolSync would refuse it"
			}
		}
	}
	return nil
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
