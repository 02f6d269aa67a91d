package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/install"
)

// updateTries bounds how often an update is repeated on a pool that others keep
// changing.
const updateTries = 5

func (a *app) newPoolUpdateCommand() *cobra.Command {
	var definition poolFlags
	var over overrideFlags
	cmd := &cobra.Command{
		Use:   "update POOL [flags]",
		Short: "Change the definition of a pool",
		Long: `Change the definition of a pool. What is given replaces what the pool has; an
empty value takes it away. Somebody else's change of the same fields at the same
moment is not overwritten: the command says so.

A pool that Git manages is changed in its file. In an emergency --override
REASON sets aside what Git says: the pool shows as drifted, with who and why, and
is as Git says again when the time is up, when Git says something else of the
pool, or with cloop executor pool end-override.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := definition.changes(cmd)
			if err != nil {
				return err
			}
			if err := over.check(cmd); err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			pool, err := updatePool(cmd, hub, args[0], request, over)
			if err != nil {
				return fmt.Errorf("update pool %s: %w", args[0], err)
			}
			return a.showUpdated(cmd, hub, pool, request)
		},
	}
	definition.register(cmd)
	over.register(cmd)
	return cmd
}

// changes are the fields that flags were given for.
func (f *poolFlags) changes(cmd *cobra.Command) (hubv1.UpdatePoolRequest, error) {
	var request hubv1.UpdatePoolRequest
	changed := cmd.Flags().Changed
	if changed("max-runners") {
		if err := notNegative(cmd, "max-runners", f.maxRunners); err != nil {
			return request, err
		}
		request.MaxRunners = &f.maxRunners
	}
	if changed("label") {
		request.Labels = &f.labels
	}
	if changed("audience") {
		// An empty entry is how --audience= says that anyone may.
		audience := slices.DeleteFunc(f.audience, func(entry string) bool { return entry == "" })
		request.Audience = &audience
	}
	if changed("owner") {
		request.Owner = &f.owner
	}
	if changed("harness") {
		request.Harness = &f.harness
	}
	if changed("capability") {
		declared, err := f.declared(cmd)
		if err != nil {
			return request, err
		}
		if declared == nil {
			declared = map[string]bool{}
		}
		request.Capabilities = &declared
	}
	if request == (hubv1.UpdatePoolRequest{}) {
		return request, usageError(cmd, errors.New("nothing to change: give at least one of --max-runners, --label, --audience, --owner, --harness and --capability"))
	}
	return request, nil
}

// updatePool changes the pool as it was read. A change of other fields meanwhile
// is no reason not to; one of these fields is told.
func updatePool(cmd *cobra.Command, hub *hubclient.Client, ref string, request hubv1.UpdatePoolRequest, over overrideFlags) (hubv1.Pool, error) {
	was, err := hub.GetPool(cmd.Context(), ref)
	if err != nil {
		return was, err
	}
	for now, try := was, 1; ; try++ {
		var pool hubv1.Pool
		if over.given() {
			pool, err = hub.OverridePool(cmd.Context(), was.ID, hubclient.ETag(now), request, over.reason, over.lasts)
		} else {
			pool, err = hub.UpdatePool(cmd.Context(), was.ID, hubclient.ETag(now), request)
		}
		var refused *hubv1.Problem
		if !errors.As(err, &refused) || refused.Code != hubv1.CodePreconditionFailed || try == updateTries {
			return pool, err
		}
		if now, err = hub.GetPool(cmd.Context(), was.ID); err != nil {
			return now, err
		}
		if fields := contested(was.PoolDefinition, now.PoolDefinition, request); len(fields) > 0 {
			return now, &No{Message: fmt.Sprintf("somebody else changed its %s meanwhile, so nothing was changed: look at it with `cloop executor pool show %s` and decide again",
				strings.Join(fields, " and "), shellQuote(ref))}
		}
	}
}

// contested names the fields of the request that somebody else has changed.
func contested(was, now hubv1.PoolDefinition, request hubv1.UpdatePoolRequest) []string {
	var fields []string
	for _, field := range []struct {
		name     string
		asked    bool
		was, now any
	}{
		{"maximum", request.MaxRunners != nil, was.MaxRunners, now.MaxRunners},
		{"labels", request.Labels != nil, was.Labels, now.Labels},
		{"audience", request.Audience != nil, was.Audience, now.Audience},
		{"owner", request.Owner != nil, was.Owner, now.Owner},
		{"harness", request.Harness != nil, was.Harness, now.Harness},
		{"capabilities", request.Capabilities != nil, was.Capabilities, now.Capabilities},
	} {
		if field.asked && !reflect.DeepEqual(field.was, field.now) {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// updatedPool is what `pool update` shows.
type updatedPool struct {
	hubv1.Pool
	// Cluster is the command that changes the maximum in the cluster, where Helm
	// may have installed the pool there.
	Cluster string `json:"cluster,omitempty"`
}

// showUpdated shows the pool, and how the cluster's maximum follows the hub's.
func (a *app) showUpdated(cmd *cobra.Command, hub *hubclient.Client, pool hubv1.Pool, request hubv1.UpdatePoolRequest) error {
	shown := updatedPool{Pool: pool}
	if request.MaxRunners != nil {
		seen, err := a.hubSeen(cmd, hub)
		if err != nil {
			return err
		}
		if place := install.At(pool.Name, install.Place{}, pool.Install); pool.Source == nil && place.Check() == nil && seen.Check(pool.Name) == nil {
			shown.Cluster = place.MaximumCommand(seen, pool.MaxRunners)
		}
	}
	return a.show(shown, func(w io.Writer) {
		say(w, "Updated pool %s: at most %s.\n", pool.Name, count.Of(pool.MaxRunners, "runner"))
		sayOverride(w, pool)
		switch {
		case shown.Cluster != "":
			say(w, "The lower of the hub's and the cluster's maximum counts. Change spec.maxRunners of an ExecutorPool\n")
			say(w, "that is in Git there; one of a Helm release with\n\n%s\n", verbatim(shown.Cluster))
		case request.MaxRunners != nil:
			say(w, "The lower of the hub's and the cluster's maximum counts: that is spec.maxRunners of the ExecutorPool.\n")
		}
	})
}
