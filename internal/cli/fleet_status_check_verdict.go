package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/forge"
)

const (
	// statusPrefix begins the context of each status.
	statusPrefix = "cloop/"
	// hubStatus is what follows it for the hub, which posts under the same name
	// where its configuration says so.
	hubStatus = "hub"
)

// judgement is what has become of a commit on one surface.
type judgement struct {
	// name of the surface: hub, or the cluster's.
	name  string
	state forge.State
	text  string
	// path of the folder that the surface takes from the repository.
	path string
}

// lineage says whether a commit is the other or one that came before it.
type lineage func(older, newer string) bool

// lineage asks the clone. What it does not know is not related.
func (c *commitCheck) lineage(ctx context.Context) lineage {
	return func(older, newer string) bool {
		if older == newer {
			return true
		}
		if newer == "" {
			return false
		}
		_, err := git(ctx, c.root, "merge-base", "--is-ancestor", older, newer)
		return err == nil
	}
}

func (c *commitCheck) judgeSurface(ctx context.Context, name string, syncs []syncStatus, err error) judgement {
	if err != nil {
		return judgement{name: name, state: forge.Error, text: "it cannot be read; the job's log says why"}
	}
	syncs = slices.DeleteFunc(syncs, func(s syncStatus) bool { return !forge.Same(s.Repository, c.remote) })
	return judgeSyncs(name, c.revision, syncs, c.lineage(ctx))
}

// weight orders states: what needs somebody's attention most comes last.
var weight = []forge.State{forge.Success, forge.Pending, forge.Error, forge.Failure}

// judgeSyncs is the worst that is to be said of a surface's syncs of a
// repository.
func judgeSyncs(name, revision string, syncs []syncStatus, before lineage) judgement {
	out := judgement{name: name, state: forge.Success}
	if len(syncs) == 0 {
		out.state, out.text = forge.Error, "no sync follows this repository there"
		return out
	}
	for i, sync := range syncs {
		state, text := judgeSync(revision, sync, before)
		if i > 0 && slices.Index(weight, state) <= slices.Index(weight, out.state) {
			continue
		}
		out.state, out.text, out.path = state, text, sync.Path
		if len(syncs) > 1 {
			out.text = sync.Name + ": " + text
		}
	}
	if out.state == forge.Success && len(syncs) > 1 {
		out.text, out.path = count.Of(len(syncs), "sync")+" have applied it", ""
	}
	return out
}

// judgeSync says what has become of a commit in one sync.
func judgeSync(revision string, sync syncStatus, before lineage) (forge.State, string) {
	applied, attempted := commitOf(sync.LastAppliedRevision), commitOf(sync.LastAttemptedRevision)
	failed := sync.Ready == string(metav1.ConditionFalse)
	noSource := sync.Reason == string(v1alpha1.ReasonSourceUnavailable)
	switch {
	case applied == revision && failed && attempted == revision && !noSource:
		return forge.Failure, "applied, and then: " + told(sync)
	case before(revision, applied):
		return judgeApplied(revision, applied, sync)
	case attempted == revision && failed && !noSource:
		return forge.Failure, "not applied: " + told(sync)
	case failed && noSource:
		return forge.Error, "not seen yet: " + told(sync)
	case failed && before(revision, attempted):
		return forge.Failure, fmt.Sprintf("not applied, nor is %s, which follows it: %s", fleet.Short(attempted), told(sync))
	case sync.Suspended:
		return forge.Pending, "not applied: the sync is " + cmp.Or(sync.Suspension, "suspended")
	case attempted == revision:
		return forge.Pending, "it is being applied"
	case applied == "":
		return forge.Pending, "not seen yet: nothing was applied so far"
	}
	return forge.Pending, "not seen yet: " + fleet.Short(applied) + " is applied"
}

// judgeApplied is the verdict on a commit that is applied, alone or with a later
// one.
func judgeApplied(revision, applied string, sync syncStatus) (forge.State, string) {
	text := "applied"
	if applied != revision {
		text += " with " + fleet.Short(applied) + ", which follows it"
	}
	switch {
	case sync.Drift > 0:
		verb := "differ"
		if sync.Drift == 1 {
			verb = "differs"
		}
		return forge.Failure, fmt.Sprintf("%s, but %s %s from it now", text, count.Of(sync.Drift, "field"), verb)
	case sync.Ready == string(metav1.ConditionUnknown) && applied == revision && !sync.Suspended:
		// The pools are there; whether they serve is not known yet.
		return forge.Pending, text + ", not ready yet"
	}
	return forge.Success, text
}

// told is reason and message of a sync that failed.
func told(sync syncStatus) string {
	if sync.Reason == "" {
		return sync.Message
	}
	return sync.Reason + ": " + sync.Message
}

// commitOf is the hash of a revision, which Flux-style controllers write as
// main@sha1:….
func commitOf(revision string) string {
	return revision[strings.LastIndexByte(revision, ':')+1:]
}
