package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newPoolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Pools of runners, as the hub knows them",
		Long: `Pools of runners, as the hub knows them. A pool that is defined in Git is
changed there; the hub refuses to change it here and names the file, unless
--override says why it must be otherwise for a time.`,
	}
	cmd.AddCommand(
		a.newPoolCreateCommand(),
		a.newPoolListCommand(),
		a.newPoolShowCommand(),
		a.newPoolUpdateCommand(),
		a.newPoolCordonCommand(),
		a.newPoolUncordonCommand(),
		a.newPoolEndOverrideCommand(),
		a.newPoolReleaseCommand(),
		a.newPoolRotateCommand(),
		a.newPoolCredentialsCommand(),
		a.newPoolRevokeCredentialCommand(),
		a.newPoolRevokeCommand(),
	)
	return cmd
}

// poolFlags are the flags of a pool's definition.
type poolFlags struct {
	maxRunners   int32
	labels       map[string]string
	audience     []string
	owner        string
	harness      string
	capabilities []string
}

func (f *poolFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int32Var(&f.maxRunners, "max-runners", 0, "at most `N` runners at once, over all clusters")
	flags.StringToStringVar(&f.labels, "label", nil, "label `KEY=VALUE` that runners enroll with; several times")
	flags.Lookup("label").DefValue = ""
	flags.StringSliceVar(&f.audience, "audience", nil, "user:, group: or role: `ENTRY` that may start runs, several times; none: anyone")
	flags.StringVar(&f.owner, "owner", "", "user:, group: or role: `ENTRY` that owns the pool; only projects that it may read run there")
	flags.StringVar(&f.harness, "harness", hubv1.DefaultHarness, "`NAME` of the harness that the pool's runners carry")
	flags.StringSliceVar(&f.capabilities, "capability", nil, "`NAME` of a capability that the pool's runners are declared to have, such as kernelIsolated, or NAME=false; several times")
}

// declared reads the capabilities: NAME, or NAME=true or NAME=false.
func (f *poolFlags) declared(cmd *cobra.Command) (map[string]bool, error) {
	var declared map[string]bool
	for _, entry := range f.capabilities {
		if entry == "" {
			continue // --capability= declares none
		}
		name, text, given := strings.Cut(entry, "=")
		has := true
		if given {
			var err error
			if has, err = strconv.ParseBool(text); err != nil {
				return nil, usageError(cmd, fmt.Errorf("--capability %s: it takes NAME, NAME=true or NAME=false", entry))
			}
		}
		if declared == nil {
			declared = map[string]bool{}
		}
		declared[name] = has
	}
	return declared, nil
}

func (a *app) newPoolListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pools",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			list := hub.ListPools
			if all {
				list = hub.ListAllPools
			}
			pools, err := list(cmd.Context())
			if err != nil {
				return fmt.Errorf("list pools: %w", err)
			}
			return a.show(hubv1.PoolList{Items: listed(pools)}, func(w io.Writer) {
				row(w, "NAME", "STATE", "MAX", "STARTING", "IDLE", "BUSY", "QUEUED", "MANAGED BY", "CONTACT", "HEALTH")
				for _, p := range pools {
					row(w, p.Name, poolState(p), p.MaxRunners, p.Runners.Starting, p.Runners.Idle, p.Runners.Busy,
						p.Queued, managedBy(p), lastContact(p), health(p))
				}
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "revoked pools too")
	return cmd
}

func (a *app) newPoolCordonCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cordon POOL --reason TEXT",
		Short: "Hand out no more runs of a pool; busy runners finish",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return usageError(cmd, errors.New("--reason is missing: whoever waits is shown it"))
			}
			return a.changePool(cmd, args[0], "cordon", func(hub *hubclient.Client) (hubv1.Pool, error) {
				return hub.Cordon(cmd.Context(), args[0], reason)
			}, "Cordoned pool %s: busy runners finish, nothing new starts.\n")
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that whoever waits is shown")
	return cmd
}

func (a *app) newPoolRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke POOL",
		Short: "End a pool at once: this stops its runs",
		Long: `End a pool at once: its credentials, runner tokens and runners are refused, the
runs that wait for it are cancelled, and runs in progress are STOPPED. To let
them finish, remove the pool's HubPool document from Git with
deletionPolicy: Revoke, or cordon the pool and wait.

What the pool has in a cluster is removed there: delete its ExecutorPool.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changePool(cmd, args[0], "revoke", func(hub *hubclient.Client) (hubv1.Pool, error) {
				return hub.RevokePool(cmd.Context(), args[0])
			}, "Revoked pool %s: its credentials, tokens and runners are refused, and its runs are stopped.\n")
		},
	}
}

// changePool does one thing to a pool and shows the pool that it left.
func (a *app) changePool(_ *cobra.Command, name, verb string, act func(*hubclient.Client) (hubv1.Pool, error), done string) error {
	hub, err := a.connect()
	if err != nil {
		return err
	}
	pool, err := act(hub)
	if err != nil {
		return fmt.Errorf("%s pool %s: %w", verb, name, err)
	}
	return a.show(pool, func(w io.Writer) { say(w, done, pool.Name) })
}

func poolState(p hubv1.Pool) string {
	if p.State == hubv1.PoolActive && p.Cordon != nil {
		return "cordoned"
	}
	return string(p.State)
}

func managedBy(p hubv1.Pool) string {
	if p.Source == nil {
		return "-"
	}
	text := "HubPool"
	if revision := p.Source.Revision; revision != "" {
		text = "Git@" + shortRevision(revision)
	}
	if p.Override != nil {
		text += ", overridden"
	}
	return text
}

// shortRevision is the commit of a revision that may have its branch before it.
func shortRevision(revision string) string { return fleet.Short(fleet.CommitOf(revision)) }

func contact(c hubv1.ControllerContact) string {
	if c.Connected {
		return "in contact"
	}
	return "seen " + age(time.Now(), c.LastContact) + " ago"
}

// lastContact is how long ago a controller was last heard of.
func lastContact(p hubv1.Pool) string {
	switch {
	case len(p.Controllers) == 0:
		return "never"
	case p.Controllers[0].Connected:
		return "now"
	}
	return age(time.Now(), p.Controllers[0].LastContact)
}

func joinLabels(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for key, value := range labels {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func audience(entries []string) string {
	if len(entries) == 0 {
		return "anyone"
	}
	return strings.Join(entries, ",")
}
