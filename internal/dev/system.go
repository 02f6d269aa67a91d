package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/filelock"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pki"
	"cloop.dev/cloop/internal/processnode"
	"cloop.dev/cloop/internal/secret"
)

// Names that every system has.
const (
	// FleetNamespace holds the fleet controller and the PoolSync.
	FleetNamespace = "cloop-fleet"
	// PoolNamespace holds the executor controller, the pools and their runners.
	PoolNamespace = "cloop-pools"
	// SyncName names the PoolSync and the hub's sync entry.
	SyncName = "fleet"
	// ProjectName is the project that comes with the system.
	ProjectName = "app"
)

// startTimeout bounds how long one part may take to answer.
const startTimeout = 90 * time.Second

// Options say where a system lives and what it is made of.
type Options struct {
	// Dir holds everything that the system keeps.
	Dir string
	// Executable is the cloop binary that the parts run.
	Executable string
	// Kubeconfig of an existing cluster to use; empty: one of our own.
	Kubeconfig string
	// Progress gets a line for each thing done.
	Progress io.Writer
}

// System is a running system.
type System struct {
	// Dir holds everything that the system keeps.
	Dir string
	// Kubeconfig of the cluster's administrator.
	Kubeconfig string
	// Hub is signed in as the hub's administrator.
	Hub *hubclient.Client
	// HubURL, HubPin and CAFile are what a client needs to reach the hub.
	HubURL, HubPin, CAFile string
	// AdminTokenFile holds the hub administrator's token.
	AdminTokenFile string
	// Cluster reads and writes objects as the cluster's administrator.
	Cluster client.WithWatch
	// Kubectl runs kubectl; append its arguments.
	Kubectl []string

	executable string
	context    string // the kubeconfig's current one
	rest       *rest.Config
	processes  cluster.Processes
	state      state
	ca         *pki.CA
	mark       string // the value of systemLabel
}

// state is what a second Up must find again: kept in Dir/system.json.
type state struct {
	// Ports by what listens on them.
	Ports map[string]int `json:"ports"`
	// Kubeconfig of an existing cluster; empty: a cluster of our own.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Seeded is true once PublishSeed was through.
	Seeded bool `json:"seeded,omitempty"`
	// Found is true where the directory was there before.
	Found bool `json:"found,omitempty"`
}

// Up brings the system up, starting only what does not run. A system that was
// brought up half is completed. The directory must be missing, empty or a
// system's.
func Up(ctx context.Context, o Options) (*System, error) {
	s, err := up(ctx, o)
	return s, advise(o.Dir, err)
}

func up(ctx context.Context, o Options) (*System, error) {
	found, err := openDirectory(o.Dir)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(o.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := prepare(o, found)
	if err != nil {
		return nil, err
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(o.Progress, format+"\n", args...) }
	// Hub and Git server are quick; the control plane is not.
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.startCluster(groupCtx, o) })
	group.Go(func() error {
		if err := s.startGit(groupCtx); err != nil {
			return err
		}
		return s.startHub(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	say("control plane, hub (%s) and Git server run", s.HubURL)
	if err := s.install(ctx); err != nil {
		return nil, err
	}
	if err := s.startControllers(ctx); err != nil {
		return nil, err
	}
	say("controllers and node run")
	return s, nil
}

// Down ends every process that Up started in dir, takes what it put into an
// existing cluster out again and removes what it made in dir, and dir itself if
// it made that. Without a system it does nothing.
func Down(ctx context.Context, dir string) error {
	kept, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		// Not ours, or never begun: nothing there may be removed but what a
		// crash before the first state left.
		return nil
	} else if err != nil {
		return err
	}
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	var st state
	if err := json.Unmarshal(kept, &st); err != nil {
		// A loss of power may have emptied it. With a control plane of its own the
		// system is all in dir.
		if _, none := os.Stat(filepath.Join(dir, "cluster")); none != nil {
			return fmt.Errorf("read %s: %w: it named the cluster's kubeconfig; write {\"kubeconfig\": \"FILE\"} into it and try again", stateFile(dir), err)
		}
		st = state{}
	}
	existing := &System{Dir: dir, Kubeconfig: st.Kubeconfig, ca: &pki.CA{}}
	if st.Kubeconfig != "" {
		if existing.mark, err = markOf(dir); err != nil {
			return err
		}
		if err := existing.connectCluster(); err != nil {
			return err
		}
		if err := existing.withdraw(ctx); err != nil {
			return fmt.Errorf("withdraw the pools from the cluster of %s: %w", st.Kubeconfig, err)
		}
	}
	processes := cluster.Processes{Dir: dir}
	running, err := processes.List()
	if err != nil {
		return err
	}
	// The controllers go first: what they see ending must not look like faults.
	for i := len(running) - 1; i >= 0; i-- {
		if err := processes.Stop(running[i].Name); err != nil {
			return err
		}
	}
	// A node that was killed has left its runners running.
	if err := processnode.Clean(filepath.Join(dir, "node")); err != nil {
		return err
	}
	if st.Kubeconfig != "" {
		if err := existing.uninstall(ctx); err != nil {
			return fmt.Errorf("remove the system from the cluster of %s: %w", st.Kubeconfig, err)
		}
	} else if err := cluster.Down(ctx, filepath.Join(dir, "cluster")); err != nil {
		return err
	}
	return removeMade(dir, st.Found)
}

// Exists says whether there is a system in dir, whole or half.
func Exists(dir string) bool {
	_, err := os.Lstat(stateFile(dir))
	return err == nil
}

// Status lists the processes of the system in dir; none without a system.
func Status(dir string) ([]cluster.Process, error) {
	controlPlane, err := cluster.Status(filepath.Join(dir, "cluster"))
	if err != nil {
		return nil, err
	}
	parts, err := cluster.Processes{Dir: dir}.List()
	return append(controlPlane, parts...), err
}

// GitURL is the URL of a repository of the system's Git server.
func (s *System) GitURL(repository string) string {
	return "https://" + s.address(gitPart) + "/" + repository + ".git"
}

// Fleet opens a work tree of the fleet repository, in which a person can work
// too.
func (s *System) Fleet(ctx context.Context) (*Repository, error) {
	work, err := clone(ctx, s.path("work", "fleet"), s.GitURL("fleet"), s.CAFile)
	if err != nil {
		return nil, err
	}
	return work, work.followRemote(ctx, s.path("git", "fleet.git"))
}

// address is where a part listens.
func (s *System) address(name string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.state.Ports[name]))
}

func (s *System) path(elements ...string) string {
	return filepath.Join(append([]string{s.Dir}, elements...)...)
}

func stateFile(dir string) string { return filepath.Join(dir, stateName) }

// prepare makes or finds what needs no process: ports, certificates, names.
func prepare(o Options, found bool) (*System, error) {
	s := &System{Dir: o.Dir, executable: o.Executable, processes: cluster.Processes{Dir: o.Dir}}
	if err := s.keepState(o.Kubeconfig, found); err != nil {
		return nil, err
	}
	now := time.Now()
	pair, err := pki.Keep(s.path("pki"), "ca", func() (pki.Pair, error) {
		ca, err := pki.NewCA("cloop dev", now)
		if err != nil {
			return pki.Pair{}, err
		}
		return ca.Pair, nil
	})
	if err != nil {
		return nil, err
	}
	if s.ca, err = pki.ParseCA(pair); err != nil {
		return nil, err
	}
	if s.mark, err = markOf(s.Dir); err != nil {
		return nil, err
	}
	for _, name := range []string{"hub", "git"} {
		sign := func() (pki.Pair, error) { return s.ca.Server(now, "localhost", "127.0.0.1") }
		if pair, err = pki.Keep(s.path("pki"), name, sign); err != nil {
			return nil, err
		}
		if name == "hub" {
			if s.HubPin, err = pinOf(pair.Certificate); err != nil {
				return nil, err
			}
		}
	}
	s.CAFile = s.path("pki", "ca.crt")
	s.AdminTokenFile = s.path("hub", "admin-token")
	s.HubURL = "https://" + s.address(hubPart)
	return s, nil
}

// keepState reads system.json, and picks free ports where there is none. The
// cluster is chosen once; an empty kubeconfig agrees with any choice.
func (s *System) keepState(kubeconfig string, found bool) error {
	kept, err := os.ReadFile(stateFile(s.Dir))
	if err == nil {
		if err := json.Unmarshal(kept, &s.state); err != nil {
			return fmt.Errorf("read %s: %w: run `cloop dev down --dir %s`, which removes the system, and try again", stateFile(s.Dir), err, s.Dir)
		}
		if kubeconfig != "" && kubeconfig != s.state.Kubeconfig {
			return fmt.Errorf("the system in %s stands on another cluster than the one of %s: take it down first", s.Dir, kubeconfig)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.state = state{Ports: map[string]int{}, Kubeconfig: kubeconfig, Found: found}
	listening := []string{hubPart, gitPart, metricsOf(executorPart), metricsOf(fleetPart), healthOf(executorPart), healthOf(fleetPart)}
	ports, err := cluster.PickPorts(len(listening))
	if err != nil {
		return err
	}
	for i, name := range listening {
		s.state.Ports[name] = ports[i]
	}
	return s.writeState()
}

func (s *System) writeState() error {
	encoded, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	return atomicfile.Write(stateFile(s.Dir), encoded, 0o600)
}

// connectCluster makes the cluster's client and finds kubectl.
func (s *System) connectCluster() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Kubeconfig, err)
	}
	config.QPS, config.Burst = 200, 400
	kubeconfig, err := clientcmd.LoadFromFile(s.Kubeconfig)
	if err != nil {
		return err
	}
	s.context = kubeconfig.CurrentContext
	s.rest = config
	s.Cluster, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

// connectHub signs in at the hub with the administrator's token.
func (s *System) connectHub() error {
	token, err := os.ReadFile(s.AdminTokenFile)
	if err != nil {
		return fmt.Errorf("read the hub administrator's token: %w", err)
	}
	s.Hub, err = hubclient.New(hubclient.Options{
		URL: s.HubURL, Pin: s.HubPin, CABundle: s.ca.Certificate, Token: secret.New(trimmed(token)),
	})
	return err
}

// eventually is until for a part that starts: it gives up after startTimeout.
func eventually(ctx context.Context, what string, probe func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return until(ctx, what, probe)
}

// lock keeps two commands from changing one system at once. It locks the
// directory itself, so that Down leaves no file behind.
func lock(dir string) (unlock func(), err error) {
	directory, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	unlock, err = filelock.Try(directory)
	if errors.Is(err, filelock.ErrHeld) {
		err = fmt.Errorf("another cloop works on %s: wait for it to finish", dir)
	}
	return unlock, err
}
