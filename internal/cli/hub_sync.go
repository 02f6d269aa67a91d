package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newHubSyncCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "The hub's Git syncs; `cloop fleet status` shows them",
	}
	cmd.AddCommand(a.newApprovePruneCommand())
	return cmd
}

func (a *app) newApprovePruneCommand() *cobra.Command {
	var revision string
	cmd := &cobra.Command{
		Use:   "approve-prune SYNC --revision COMMIT",
		Short: "Let pools go that a commit removes and the hub has kept, because they are many",
		Long: `Let the pools go that the hub has kept although the newest commit of a Git sync
lacks them: more than pruneLimit of the sync, which the hub's configuration says.
Each is drained and revoked or let go, as its deletionPolicy said last. The audit
trail says who approved what.

The commit is the whole one that cloop fleet status names: if another one has come
since, that one waits again.`,
		Example: `  cloop hub sync approve-prune fleet --revision 3f786850e387550fdab836ed7e6dc881de23001b`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if revision == "" {
				return usageError(cmd, errors.New("--revision is missing: `cloop fleet status` names the one that waits"))
			}
			return ask(a, cmd, "approve of what sync "+args[0]+" removes", func(ctx context.Context, hub *hubclient.Client) (hubv1.Sync, error) {
				return hub.ApprovePrune(ctx, args[0], revision)
			}, func(w io.Writer, sync hubv1.Sync) {
				what := "what it lacks"
				if sync.PruneWaits != nil {
					what = count.Of(len(sync.PruneWaits.Pools), "pool")
				}
				say(w, "Sync %s may let %s go at %s, and does so now: `cloop fleet status` shows when it has.\n", sync.Name, what, revision)
			})
		},
	}
	cmd.Flags().StringVar(&revision, "revision", "", "`COMMIT` that lacks the pools, in full")
	return cmd
}
