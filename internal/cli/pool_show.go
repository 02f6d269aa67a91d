package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/install"
)

// shownPool is what `pool show` shows as JSON or YAML.
type shownPool struct {
	hubv1.Pool
	// RunnerList are the runners that are not retired.
	RunnerList []hubv1.PoolRunner `json:"runnerList"`
	// Credentials are the live ones, without their secrets.
	Credentials []hubv1.Credential `json:"credentials"`
	// Hub is the hub's own build, which controllers are compared with.
	Hub string `json:"hub,omitempty"`
	// Upgrades bring the controllers that are behind to the hub's build.
	Upgrades []upgrade `json:"upgrades,omitempty"`
}

// upgrade brings one controller to the hub's build.
type upgrade struct {
	// Controller is the name of the process.
	Controller string `json:"controller"`
	// Build that it is of.
	Build string `json:"build"`
	// Command is the one for a Helm release. Unserved says that the hub serves no chart
	// yet: the Deployment is given an image of the build instead.
	Command  string `json:"command"`
	Unserved bool   `json:"unserved,omitempty"`
}

func (a *app) newPoolShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show POOL",
		Short: "Show a pool, its controllers and its runners, and what is wrong with it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			shown, err := a.readPool(cmd, hub, args[0])
			if err != nil {
				return fmt.Errorf("show pool %s: %w", args[0], err)
			}
			return a.show(shown, shown.print)
		},
	}
}

// readPool asks the hub for all that is shown. An older hub knows less.
func (a *app) readPool(cmd *cobra.Command, hub *hubclient.Client, ref string) (*shownPool, error) {
	pool, err := hub.GetPool(cmd.Context(), ref)
	if err != nil {
		return nil, err
	}
	out := &shownPool{Pool: pool, Credentials: []hubv1.Credential{}}
	runners, err := hub.ListPoolRunners(cmd.Context(), pool.ID)
	if err != nil {
		return nil, fmt.Errorf("list its runners: %w", err)
	}
	out.RunnerList = listed(runners)
	credentials, err := hub.ListCredentials(cmd.Context(), pool.ID, false)
	if err != nil && !isNotFound(err) {
		return nil, fmt.Errorf("list its credentials: %w", err)
	}
	out.Credentials = listed(credentials)
	seen, err := a.hubSeen(cmd, hub)
	if err != nil {
		return nil, err
	}
	out.Hub = seen.Info.Build
	for _, c := range pool.Controllers {
		given := install.Place{}
		// Where it is says more than where it was to be.
		given.Namespace, _, _ = strings.Cut(c.ExecutorPool, "/")
		if place := install.At(pool.Name, given, pool.Install); install.Behind(c.Build, out.Hub) && place.Check() == nil && seen.Check(pool.Name) == nil {
			out.Upgrades = append(out.Upgrades, upgrade{Controller: c.Instance, Build: c.Build, Command: place.UpgradeCommand(seen), Unserved: seen.Info.Chart == ""})
		}
	}
	return out, nil
}

func (p *shownPool) print(w io.Writer) {
	p.printDefinition(w)
	for _, c := range p.Controllers {
		row(w, "Controller:", controllerLine(c))
	}
	if len(p.Controllers) == 0 {
		row(w, "Controllers:", "none seen yet")
	}
	p.printUpgrades(w)
	printFindings(w, p.Findings)
	if len(p.Credentials) > 0 {
		row(w)
		printCredentials(w, p.Credentials)
	}
	if len(p.RunnerList) == 0 {
		return
	}
	row(w)
	row(w, "RUNNER", "STATE", "RUN", "HOLDS", "AGE")
	for _, r := range p.RunnerList {
		row(w, r.ID, r.State, dash(r.RunID), dash(r.HoldsProject), age(time.Now(), r.CreatedAt))
	}
}

func (p *shownPool) printDefinition(w io.Writer) {
	row(w, "Name:", p.Name)
	row(w, "Binding:", "pool:"+p.ID)
	row(w, "State:", poolState(p.Pool))
	if p.Cordon != nil {
		row(w, "Cordoned:", fmt.Sprintf("%s (by %s, %s ago)", p.Cordon.Reason, p.Cordon.By, age(time.Now(), p.Cordon.At)))
	}
	if s := p.Source; s != nil {
		shown := *s
		shown.Revision = shortRevision(s.Revision)
		text := shown.String()
		if _, _, _, ofCluster := s.Cluster(); !ofCluster {
			text += ", sync " + s.Sync
		}
		row(w, "Managed by:", text)
	}
	p.printOverride(w)
	row(w, "Max runners:", p.MaxRunners)
	row(w, "Labels:", dash(joinLabels(p.Labels)))
	row(w, "Audience:", audience(p.Audience))
	row(w, "Owner:", dash(p.Owner))
	row(w, "Harness:", dash(p.Harness))
	if len(p.Capabilities) > 0 {
		row(w, "Capabilities:", joinCapabilities(p.Capabilities))
	}
	if p.Install != nil {
		row(w, "Installed:", installed(p.Name, p.Install))
	}
	row(w, "Runners:", fmt.Sprintf("%d starting, %d idle, %d busy, %d retiring", p.Runners.Starting, p.Runners.Idle, p.Runners.Busy, p.Runners.Retiring))
	row(w, "Queued:", p.Queued)
}

func joinCapabilities(capabilities map[string]bool) string {
	var has []string
	for name, declared := range capabilities {
		if !declared {
			name += "=false"
		}
		has = append(has, name)
	}
	slices.Sort(has)
	return strings.Join(has, ",")
}

// installed says how the pool was said to be installed when it was made; the
// cluster may have it otherwise by now.
func installed(pool string, hints *hubv1.InstallHints) string {
	place := install.At(pool, install.Place{}, hints)
	text := "namespace " + place.Namespace + ", release " + place.Release
	if hints.MinRunners > 0 {
		text += fmt.Sprintf(", minRunners %d", hints.MinRunners)
	}
	if kept := hints.Persistence; kept != nil {
		text += ", a volume of " + kept.Size + " per project"
		for _, more := range []string{kept.StorageClassName, kept.ReclaimPolicy} {
			if more != "" {
				text += ", " + more
			}
		}
	}
	return text + ", as asked for when it was made"
}

func controllerLine(c hubv1.ControllerContact) string {
	text := fmt.Sprintf("%s, build %s, %s", dash(c.Instance), dash(c.Build), contact(c))
	if c.ExecutorPool != "" {
		text += ", serves " + c.ExecutorPool
	}
	if len(c.Features) > 0 {
		text += ", speaks " + strings.Join(c.Features, " ")
	}
	return text
}

// printUpgrades says how the controllers that are behind come to the hub's build.
func (p *shownPool) printUpgrades(w io.Writer) {
	how := "It comes to the hub's with"
	if !install.Released(p.Hub) {
		how = "Both have the tag edge, so name the hub's image by its digest:"
	}
	for _, u := range p.Upgrades {
		if u.Unserved {
			how = "Give its Deployment an image of that build, as long as the hub serves no chart. Of a Helm release it is"
		}
		say(w, "\nController %s is of build %s, the hub of %s. %s\n\n%s\n", dash(u.Controller), u.Build, p.Hub, how, verbatim(u.Command))
	}
}
