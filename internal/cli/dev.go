package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/dev"
	"cloop.dev/cloop/internal/processnode"
)

func (a *app) newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "A whole system on this machine: control plane, node, hub, Git",
		Long: `Run a whole cloop on this machine: a real Kubernetes control plane, a node that
runs Pods as local processes, the hub, both controllers and a Git server.
Everything that it keeps is in one directory, which up makes or finds empty, and
down removes it and nothing else.`,
	}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "`DIR` that holds the system (default: cloop/dev, cloop/demo for demo, in $XDG_STATE_HOME or ~/.local/state)")
	status := a.newDevStatusCommand(&dir)
	others := []*cobra.Command{
		a.newDevUpCommand(&dir), a.newDevDownCommand(&dir), a.newDevDemoCommand(&dir), a.newDevGitServerCommand(), a.newDevNodeCommand(),
	}
	textOnly(others...)
	cmd.AddCommand(append(others, status)...)
	return cmd
}

// devDir is where a system lives when the command line does not say.
func devDir(flag, name string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "cloop", name), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a directory for the system: %w: give one with --dir", err)
	}
	return filepath.Join(home, ".local", "state", "cloop", name), nil
}

// devDown takes the system in dir down. Where nobody chose dir, the directory
// of cloop's systems goes with the last of them.
func devDown(ctx context.Context, dir, flag string) error {
	if err := dev.Down(ctx, dir); err != nil {
		return err
	}
	if flag == "" {
		// One that is not empty stays.
		_ = os.Remove(filepath.Dir(dir))
	}
	return nil
}

// up brings the system up in dir, saying what it does on standard error.
func (a *app) up(ctx context.Context, dir, kubeconfig string) (*dev.System, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if kubeconfig != "" {
		// The system outlives this working directory.
		if kubeconfig, err = filepath.Abs(kubeconfig); err != nil {
			return nil, err
		}
	}
	return dev.Up(ctx, dev.Options{Dir: dir, Executable: executable, Kubeconfig: kubeconfig, Progress: a.stderr})
}

func (a *app) newDevUpCommand(dir *string) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the system up, or complete one that is half up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := devDir(*dir, "dev")
			if err != nil {
				return err
			}
			system, err := a.up(cmd.Context(), at, kubeconfig)
			if err != nil {
				return err
			}
			if err := system.PublishSeed(cmd.Context()); err != nil {
				return err
			}
			fleet, err := system.Fleet(cmd.Context())
			if err != nil {
				return err
			}
			say(a.stdout, `The system is up. To use it from this shell:

%s
Then try:

  cloop run start --project %s --wait -- ./check
  kubectl get xpool --all-namespaces

The fleet repository is cloned in %s: commit to it, git push,
and "cloop fleet reconcile" has hub and cluster follow at once, not within a minute.
The controllers run beside the cluster, whose node runs cloop's runners only: do not
install them into it.
"%s" removes everything.
`, verbatim(shellSetup(system)), dev.ProjectName, fleet.Dir, inDir("cloop dev down", *dir, at))
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "use the existing cluster of this `FILE`, where no cloop is installed, instead of one of its own")
	return cmd
}

// shellSetup is what a POSIX shell must read so that cloop and kubectl are
// found there and reach the system.
func shellSetup(system *dev.System) string {
	var exports []string
	executable, err := os.Executable()
	if found, lookErr := exec.LookPath("cloop"); err == nil && (lookErr != nil || found != executable) {
		exports = append(exports, "PATH="+shellQuote(filepath.Dir(executable))+":$PATH")
	}
	for _, entry := range system.Environment() {
		name, value, _ := strings.Cut(entry, "=")
		exports = append(exports, name+"="+shellQuote(value))
	}
	setup := ""
	if os.Getenv(envToken) != "" {
		// It would contend with the token file.
		setup = "  unset " + envToken + "\n"
	}
	setup += "  export " + strings.Join(exports, " \\\n    ") + "\n"
	if _, err := exec.LookPath("kubectl"); err != nil {
		setup += "  kubectl() { " + commandText(system.Kubectl) + ` "$@"; }` + "\n"
	}
	return setup
}

func (a *app) newDevDownCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the system and remove everything that up made",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := devDir(*dir, "dev")
			if err != nil {
				return err
			}
			if !dev.Exists(at) {
				a.remark("there is no system in %s, so nothing was done", at)
			}
			return devDown(cmd.Context(), at, *dir)
		},
	}
}

// inDir is a command that means a directory which somebody has chosen.
func inDir(command, flag, dir string) string {
	if flag == "" {
		return command
	}
	return command + " --dir " + shellQuote(dir)
}

// devPart is a process of the system as `dev status` shows it.
type devPart struct {
	// Name of the process: what it is of the system.
	Name string `json:"name"`
	// PID of the process.
	PID int `json:"pid"`
	// Running is whether it runs.
	Running bool `json:"running"`
	// Log is the file that it writes to.
	Log string `json:"log"`
}

func (a *app) newDevStatusCommand(dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the system's processes; exit code 1 unless all run",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			at, err := devDir(*dir, "dev")
			if err != nil {
				return err
			}
			processes, err := dev.Status(at)
			if err != nil {
				return err
			}
			parts := make([]devPart, 0, len(processes))
			var down []string
			for _, p := range processes {
				parts = append(parts, devPart{Name: p.Name, PID: p.ID.PID, Running: p.Alive, Log: p.Log})
				if !p.Alive {
					down = append(down, p.Name)
				}
			}
			err = a.show(parts, func(w io.Writer) {
				if len(parts) == 0 {
					return
				}
				row(w, "NAME", "PID", "RUNNING", "LOG")
				for _, part := range parts {
					row(w, part.Name, part.PID, part.Running, part.Log)
				}
			})
			switch {
			case err != nil:
				return err
			case len(parts) == 0:
				return &No{Message: "no system runs in " + at + ": start one with `" + inDir("cloop dev up", *dir, at) + "`"}
			case len(down) > 0:
				return &No{Message: strings.Join(down, ", ") + " " + count.Is(len(down)) + " not running: `" + inDir("cloop dev up", *dir, at) + "` starts what is missing"}
			}
			return nil
		},
	}
}

func (a *app) newDevDemoCommand(dir *string) *cobra.Command {
	var keep bool
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Bring a system up and play the product's main job on it, checked and timed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := devDir(*dir, "demo")
			if err != nil {
				return err
			}
			// What an interrupted demo left is no place to begin.
			if err := dev.Down(cmd.Context(), at); err != nil {
				return err
			}
			err = a.demo(cmd.Context(), at, kubeconfig)
			if keep {
				a.remark("the system stays up in %s: cloop dev down --dir %s removes it", at, shellQuote(at))
				return err
			}
			if err != nil && cmd.Context().Err() == nil {
				a.remark("the system goes, and its logs with it: --keep leaves both")
			}
			// An interrupt must not leave the system behind.
			return errors.Join(err, devDown(context.WithoutCancel(cmd.Context()), at, *dir))
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the system up afterwards")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "use the existing cluster of this `FILE`, where no cloop is installed, instead of one of its own")
	return cmd
}

// demo plays the story and prints each step as it happens.
func (a *app) demo(ctx context.Context, dir, kubeconfig string) error {
	began := time.Now()
	system, err := a.up(ctx, dir, kubeconfig)
	if err != nil {
		return err
	}
	say(a.stdout, "the system was up after %.1f s\n", time.Since(began).Seconds())
	happened := 0
	story := dev.Story{
		System: system,
		Done: func(result dev.Result) {
			happened++
			a.tell(happened, result)
		},
	}
	if err := story.Run(ctx); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return &No{Message: fmt.Sprintf("%d of %d steps happened: %v (logs: %s)", happened, len(dev.Steps()), err, filepath.Join(dir, "logs"))}
	}
	say(a.stdout, "\nall %d steps happened, %.1f s in all\n", happened, time.Since(began).Seconds())
	return nil
}

// tell prints what a step showed.
func (a *app) tell(number int, result dev.Result) {
	say(a.stdout, "\n%d. %s\n", number, result.Step)
	for _, moment := range result.Moments {
		if moment.After == 0 {
			say(a.stdout, "            %s\n", moment.What)
			continue
		}
		say(a.stdout, "  %5d ms  %s\n", moment.After.Milliseconds(), moment.What)
	}
}

// newDevGitServerCommand is the Git server that up starts.
func (a *app) newDevGitServerCommand() *cobra.Command {
	var o dev.GitServerOptions
	cmd := &cobra.Command{
		Use:    "git-server",
		Short:  "Serve bare repositories over HTTPS to this machine",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dev.ServeGit(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Addr, "addr", "", "`HOST:PORT` to listen on")
	flags.StringVar(&o.Root, "root", "", "`DIR` with the bare repositories")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "PEM `FILE` with the certificate")
	flags.StringVar(&o.TLSKey, "tls-key", "", "PEM `FILE` with its key")
	return cmd
}

// newDevNodeCommand is the process node that up starts.
func (a *app) newDevNodeCommand() *cobra.Command {
	var name, dir, kubeconfig string
	cmd := &cobra.Command{
		Use:    "node",
		Short:  "Run the runner Pods of a cluster as local processes",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("read %s: %w", kubeconfig, err)
			}
			executable, err := os.Executable()
			if err != nil {
				return err
			}
			return processnode.Run(cmd.Context(), processnode.Options{
				NodeName: name, Dir: dir, RESTConfig: config, Executable: executable, Log: a.logger(),
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "`NAME` of the node in the cluster")
	// --dir is the dev command's own; here it is the node's directory.
	flags.StringVar(&dir, "node-dir", "", "`DIR` for volumes, logs and records")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` with access to the cluster")
	return cmd
}
