package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newPoolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Pools of runners, as the hub knows them",
		Long: `Pools of runners, as the hub knows them. A pool that is defined in Git is
changed there; the hub refuses to change it here and names the file.`,
	}
	cmd.AddCommand(
		a.newPoolCreateCommand(),
		a.newPoolListCommand(),
		a.newPoolShowCommand(),
		a.newPoolUpdateCommand(),
		a.newPoolCordonCommand(),
		a.newPoolUncordonCommand(),
		a.newPoolRotateCommand(),
		a.newPoolRevokeCommand(),
	)
	return cmd
}

// poolFlags are the flags of a pool's definition.
type poolFlags struct {
	maxRunners int32
	labels     map[string]string
	audience   []string
	owner      string
}

func (f *poolFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int32Var(&f.maxRunners, "max-runners", 0, "at most `N` runners at once, over all clusters")
	flags.StringToStringVar(&f.labels, "label", nil, "label `KEY=VALUE` that runners enroll with; several times")
	flags.Lookup("label").DefValue = ""
	flags.StringSliceVar(&f.audience, "audience", nil, "user:, group: or role: `ENTRY` that may start runs, several times; none: anyone")
	flags.StringVar(&f.owner, "owner", "", "user:, group: or role: `ENTRY` that owns the pool; only projects that it may read run there")
}

// created is what `pool create` shows as JSON or YAML.
type created struct {
	hubv1.CreatePoolResponse
	// Install are the commands that put the credential into the cluster.
	Install []string `json:"install"`
}

func (a *app) newPoolCreateCommand() *cobra.Command {
	var (
		definition poolFlags
		harness    string
		place      credentialPlace
	)
	cmd := &cobra.Command{
		Use:   "create NAME --max-runners N",
		Short: "Make a pool and its controller's first credential",
		Long: `Make a pool at the hub and its controller's first credential, and print the
commands that put the credential into the cluster. The credential is shown
once: the hub keeps only its hash.`,
		Example: `  cloop executor pool create gpu --max-runners 4 --label gpu=true --audience group:ml-team
  cloop executor pool create gpu --max-runners 4 --credential-file gpu.credential`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("max-runners") {
				return usageError(cmd, errors.New("--max-runners is missing"))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			place.complete(args[0])
			if err := place.reserve(); err != nil {
				return err
			}
			response, err := hub.CreatePool(cmd.Context(), hubv1.CreatePoolRequest{
				Name: args[0],
				PoolDefinition: hubv1.PoolDefinition{
					MaxRunners: definition.maxRunners, Labels: definition.labels,
					Audience: definition.audience, Owner: definition.owner, Harness: harness,
				},
			})
			if err != nil {
				place.release()
				return fmt.Errorf("create pool %s: %w", args[0], err)
			}
			kept, err := place.keep(response.Credential)
			if err != nil {
				return err
			}
			response.Credential = kept.credential
			return a.show(created{response, kept.commands}, func(w io.Writer) {
				say(w, "Created pool %s.\n\n", response.Pool.Name)
				kept.print(w)
				say(w, "\nBind projects to pool:%s\n", response.Pool.ID)
			})
		},
	}
	definition.register(cmd)
	cmd.Flags().StringVar(&harness, "harness", "command", "`NAME` of the harness that the pool's runners carry")
	place.register(cmd)
	return cmd
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
				row(w, "NAME", "STATE", "MAX", "STARTING", "IDLE", "BUSY", "QUEUED", "MANAGED BY", "CONTACT")
				for _, p := range pools {
					row(w, p.Name, poolState(p), p.MaxRunners, p.Runners.Starting, p.Runners.Idle, p.Runners.Busy,
						p.Queued, managedBy(p), lastContact(p))
				}
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "revoked pools too")
	return cmd
}

func (a *app) newPoolShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show POOL",
		Short: "Show a pool, its controllers and its runners",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			pool, err := hub.GetPool(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("show pool %s: %w", args[0], err)
			}
			runners, err := hub.ListPoolRunners(cmd.Context(), pool.ID)
			if err != nil {
				return fmt.Errorf("list the runners of pool %s: %w", args[0], err)
			}
			shown := struct {
				hubv1.Pool
				RunnerList []hubv1.PoolRunner `json:"runnerList"`
			}{pool, listed(runners)}
			return a.show(shown, func(w io.Writer) { printPool(w, pool, runners) })
		},
	}
}

func (a *app) newPoolUpdateCommand() *cobra.Command {
	var definition poolFlags
	cmd := &cobra.Command{
		Use:   "update POOL [flags]",
		Short: "Change the definition of a pool that Git does not manage",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var request hubv1.UpdatePoolRequest
			changed := cmd.Flags().Changed
			if changed("max-runners") {
				request.MaxRunners = &definition.maxRunners
			}
			if changed("label") {
				request.Labels = &definition.labels
			}
			if changed("audience") {
				// An empty entry is how --audience= says that anyone may.
				audience := slices.DeleteFunc(definition.audience, func(entry string) bool { return entry == "" })
				request.Audience = &audience
			}
			if changed("owner") {
				request.Owner = &definition.owner
			}
			if request == (hubv1.UpdatePoolRequest{}) {
				return usageError(cmd, errors.New("nothing to change: give at least one of --max-runners, --label, --audience and --owner"))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			pool, err := hub.UpdatePool(cmd.Context(), args[0], "", request)
			if err != nil {
				return fmt.Errorf("update pool %s: %w", args[0], err)
			}
			return a.show(pool, func(w io.Writer) {
				say(w, "Updated pool %s: at most %s.\n", pool.Name, count.Of(pool.MaxRunners, "runner"))
				say(w, "A cluster's own spec.maxRunners is changed in Git; the lower of the two counts.\n")
			})
		},
	}
	definition.register(cmd)
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

func (a *app) newPoolUncordonCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "uncordon POOL",
		Short: "Hand out runs of a pool again",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changePool(cmd, args[0], "uncordon", func(hub *hubclient.Client) (hubv1.Pool, error) {
				return hub.Uncordon(cmd.Context(), args[0])
			}, "Uncordoned pool %s.\n")
		},
	}
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

func printPool(w io.Writer, p hubv1.Pool, runners []hubv1.PoolRunner) {
	row(w, "Name:", p.Name)
	row(w, "Binding:", "pool:"+p.ID)
	row(w, "State:", poolState(p))
	if p.Cordon != nil {
		row(w, "Cordoned:", fmt.Sprintf("%s (by %s, %s ago)", p.Cordon.Reason, p.Cordon.By, age(time.Now(), p.Cordon.At)))
	}
	if p.Source != nil {
		row(w, "Managed by:", fmt.Sprintf("Git: %s %s at %s", p.Source.Repository, p.Source.Path, fleet.Short(p.Source.Revision)))
	}
	row(w, "Max runners:", p.MaxRunners)
	row(w, "Labels:", dash(joinLabels(p.Labels)))
	row(w, "Audience:", audience(p.Audience))
	row(w, "Owner:", dash(p.Owner))
	row(w, "Harness:", dash(p.Harness))
	row(w, "Queued:", p.Queued)
	if len(p.Controllers) == 0 {
		row(w, "Controllers:", "none seen yet")
	}
	for _, c := range p.Controllers {
		row(w, "Controller:", fmt.Sprintf("%s, build %s, %s", dash(c.Instance), dash(c.Build), contact(c)))
	}
	if len(runners) == 0 {
		return
	}
	row(w)
	row(w, "RUNNER", "STATE", "RUN", "AGE")
	for _, r := range runners {
		row(w, r.ID, r.State, dash(r.RunID), age(time.Now(), r.CreatedAt))
	}
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
	return "Git@" + fleet.Short(p.Source.Revision)
}

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
