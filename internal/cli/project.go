package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newProjectCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "project", Short: "Projects: Git repositories whose commits are run"}
	cmd.AddCommand(
		a.newProjectCreateCommand(),
		a.newProjectListCommand(),
		a.newProjectShowCommand(),
		a.newProjectBindCommand(),
	)
	return cmd
}

func (a *app) newProjectCreateCommand() *cobra.Command {
	var request hubv1.CreateProjectRequest
	cmd := &cobra.Command{
		Use:     "create NAME --remote URL",
		Short:   "Make a project",
		Example: `  cloop project create app --remote https://git.example.com/team/app.git`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if request.Remote == "" {
				return usageError(cmd, errors.New("--remote is missing"))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			request.Name = args[0]
			project, err := hub.CreateProject(cmd.Context(), request)
			if err != nil {
				return fmt.Errorf("create project %s: %w", args[0], err)
			}
			return a.show(project, func(w io.Writer) {
				say(w, "Created project %s. Bind it to a pool with `cloop project bind %s POOL`.\n", project.Name, shellQuote(project.Name))
			})
		},
	}
	cmd.Flags().StringVar(&request.Remote, "remote", "", "https `URL` that runners clone from")
	cmd.Flags().StringVar(&request.DefaultRef, "ref", "", "`REF`, a branch or tag, to run where a run names none (default main)")
	return cmd
}

func (a *app) newProjectListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the projects",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			projects, err := hub.ListProjects(cmd.Context())
			if err != nil {
				return fmt.Errorf("list projects: %w", err)
			}
			return a.show(hubv1.ProjectList{Items: listed(projects)}, func(w io.Writer) {
				pools := newPoolNames(hub)
				row(w, "NAME", "REMOTE", "REF", "POOL", "AGE")
				for _, p := range projects {
					row(w, p.Name, p.Remote, p.DefaultRef, dash(pools.of(cmd.Context(), p.ExecutorID)), age(time.Now(), p.CreatedAt))
				}
			})
		},
	}
}

func (a *app) newProjectShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show PROJECT",
		Short: "Show a project",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			project, err := hub.GetProject(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("show project %s: %w", args[0], err)
			}
			return a.show(project, func(w io.Writer) {
				row(w, "Name:", project.Name)
				row(w, "ID:", project.ID)
				row(w, "Index:", project.Index)
				row(w, "Owner:", dash(project.Owner))
				row(w, "Remote:", project.Remote)
				row(w, "Default ref:", project.DefaultRef)
				row(w, "Pool:", dash(newPoolNames(hub).of(cmd.Context(), project.ExecutorID)))
				row(w, "Binding:", dash(project.ExecutorID))
				if project.Requirements != nil {
					row(w, "Requires:", requirementsText(*project.Requirements))
				}
				if project.Paused != nil {
					row(w, "Paused:", fmt.Sprintf("%s: %s waiting; %s", project.Paused.Reason, count.Of(project.Paused.Runs, "run")+" "+count.Is(project.Paused.Runs), project.Paused.Message))
				}
				if project.Dropped != nil {
					row(w, "Last dropped:", fmt.Sprintf("run %s at %s: %s", project.Dropped.Run, project.Dropped.At.UTC().Format(time.RFC3339), project.Dropped.Reason))
				}
				row(w, "Created:", project.CreatedAt.UTC().Format(time.RFC3339))
			})
		},
	}
}

// requirementsText is what a project asks of its runners in one line.
func requirementsText(r hubv1.ProjectRequirements) string {
	text := "nothing in particular"
	if !r.Empty() {
		text = demandText(r.Requirements)
	}
	if r.Unknown != "" {
		text = "not known to the hub, so its runners check: " + r.Unknown
	}
	if r.Commit != "" {
		text += " (at " + fleet.Short(r.Commit) + ")"
	}
	return text
}

func demandText(r hubv1.Requirements) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Capabilities)) {
		parts = append(parts, fmt.Sprintf("%s: %t", name, r.Capabilities[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		parts = append(parts, name+"="+r.Labels[name])
	}
	return strings.Join(parts, ", ")
}

func (a *app) newProjectBindCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "bind PROJECT POOL",
		Short: "Run a project on a pool",
		Long: `Run a project on a pool, given by its name or as pool:<id>. The hub refuses a
pool that does not meet what the project's .cloop/sandbox.yaml asks for. Runs
that wait for another pool leave its queue.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			executor, err := executorID(cmd.Context(), hub, args[1])
			if err != nil {
				return err
			}
			project, err := hub.BindProject(cmd.Context(), args[0], executor)
			if err != nil {
				return fmt.Errorf("bind project %s to %s: %w", args[0], args[1], err)
			}
			return a.show(project, func(w io.Writer) {
				say(w, "Project %s runs on pool %s.\n", project.Name, newPoolNames(hub).of(cmd.Context(), project.ExecutorID))
			})
		},
	}
}

// executorID is the binding of a pool that is given by name, by id or as the
// binding itself.
func executorID(ctx context.Context, hub *hubclient.Client, pool string) (string, error) {
	if strings.HasPrefix(pool, bindingPrefix) {
		return pool, nil
	}
	found, err := hub.GetPool(ctx, pool)
	if err != nil {
		return "", fmt.Errorf("find pool %s: %w", pool, err)
	}
	return bindingPrefix + found.ID, nil
}

// bindingPrefix stands before a pool's id where a project is bound to it.
const bindingPrefix = "pool:"

// poolNames finds the names of pools by their ids, each once: ids mean nothing
// to a person.
type poolNames struct {
	hub *hubclient.Client
	// known: id → name.
	known map[string]string
}

func newPoolNames(hub *hubclient.Client) *poolNames {
	return &poolNames{hub: hub, known: map[string]string{}}
}

// of returns the name of the pool of an id or a binding. Where the hub does not
// tell it, the id stands for it: a name is a nicety and no reason to fail.
func (n *poolNames) of(ctx context.Context, executor string) string {
	id := strings.TrimPrefix(executor, bindingPrefix)
	if id == "" {
		return ""
	}
	if name, ok := n.known[id]; ok {
		return name
	}
	n.known[id] = executor
	if pool, err := n.hub.GetPool(ctx, id); err == nil && pool.Name != "" {
		n.known[id] = pool.Name
	}
	return n.known[id]
}
