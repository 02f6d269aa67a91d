package store

import (
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// features are what this build's hub can do.
var features = []string{hubv1.FeatureRunnerStates, hubv1.FeatureRunnerGone, hubv1.FeatureRunnerHolds,
	hubv1.FeatureRunCauses, hubv1.FeatureRefusalKinds, hubv1.FeatureRequirements, hubv1.FeatureOverrides}

// Features are what every hub that uses the database can do: one that is too old
// for a feature turns it off for all.
func (s *Store) Features() []string {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	return slices.Clone(s.members.features)
}

func commonFeatures(all []MemberInfo) []string {
	out := slices.Clone(all[0].Features)
	for _, member := range all[1:] {
		out = slices.DeleteFunc(out, func(f string) bool { return !slices.Contains(member.Features, f) })
	}
	return out
}

// buildsWithout are the builds of members that do not have the feature. They are
// read in the change that relies on it: what Features knows is as old as this
// member's last sign of life.
func (tx *Tx) buildsWithout(feature string) ([]string, error) {
	if !tx.store.engine.shared() {
		return nil, nil
	}
	all, err := collect(tx.ctx, tx, scanMember, selectMembers+" ORDER BY started_at, id")
	if err != nil {
		return nil, err
	}
	var builds []string
	for _, m := range all {
		if !slices.Contains(m.Features, feature) && !slices.Contains(builds, m.Build) {
			builds = append(builds, m.Build)
		}
	}
	return builds, nil
}

// retryMember is how long who is refused because of a member's build is told to
// wait: members are upgraded within minutes.
const retryMember = 30

// held refuses a run that asks something of its runner, or of which nobody knows
// whether it does, while a member would hand it to any.
func (tx *Tx) held(project string, source Source) error {
	if source.Requirements != nil && source.Requirements.Empty() {
		return nil
	}
	builds, err := tx.buildsWithout(hubv1.FeatureRequirements)
	if err != nil || len(builds) == 0 {
		return err
	}
	asks := "asks something of its runners"
	if source.Requirements == nil {
		asks = "may ask something of its runners, which nobody could read"
	}
	p := problem.Refusal(hubv1.CodeMemberTooOld, "project %s %s, and a member of the hub of build %s would hand its run to any", project, asks, strings.Join(builds, " and "))
	p.RetryAfterSeconds = retryMember
	return p
}

// holdsKept refuses a runner that starts on a project's volume while a member
// would hand it another project's run.
func (tx *Tx) holdsKept() error {
	builds, err := tx.buildsWithout(hubv1.FeatureRunnerHolds)
	if err != nil || len(builds) == 0 {
		return err
	}
	return problem.New(hubv1.CodeHoldsUnknown, "a member of the hub of build %s does not keep projects' volumes apart", strings.Join(builds, " and "))
}
