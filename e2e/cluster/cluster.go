package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/filelock"
)

// Parts says which programs of a control plane run.
type Parts int

// The choices of Parts; each contains the one below it.
const (
	// Full is everything; Pods get a node.
	Full Parts = iota
	// WithoutScheduler leaves Pods pending.
	WithoutScheduler
	// APIServerOnly is etcd and the API server: no garbage collection, no
	// ServiceAccounts, and namespaces never go.
	APIServerOnly
)

// defaultReadyTimeout allows for a machine whose cores are busy; a quiet one
// needs five seconds.
const defaultReadyTimeout = 2 * time.Minute

// Options say what Up brings up.
type Options struct {
	// Dir holds everything: data, certificates, logs, records. It may be
	// missing or empty, or from an earlier Up.
	Dir string
	// Binaries are the programs, usually from FindBinaries.
	Binaries Binaries
	// Parts leaves programs out.
	Parts Parts
	// AuditLog, if set, is a file that gets a line of JSON for every request
	// to the API server, without bodies (level Metadata).
	AuditLog string
	// Env is extra environment for the processes, as NAME=value.
	Env []string
	// ReadyTimeout bounds the wait for a working API; 0 means two minutes.
	ReadyTimeout time.Duration
}

// Cluster is a control plane that is up.
type Cluster struct {
	// Dir is where it lives.
	Dir string
	// Kubeconfig is a file with an administrator's credentials.
	Kubeconfig string
	// Binaries are the programs that it was brought up with.
	Binaries Binaries
}

// Client rates that let a test or a developer's machine work without waiting;
// the server protects itself.
const (
	clientQPS   = 200
	clientBurst = 400
)

// RESTConfig is an administrator's access. Every call returns a config of the
// caller's own.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	return config, nil
}

// layout is what Up makes in its directory, and so what Down removes.
type layout struct{ dir string }

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.dir}, elements...)...)
}
func (l layout) settings() string   { return l.path("cluster.json") }
func (l layout) lock() string       { return l.path("lock") }
func (l layout) kubeconfig() string { return l.path("admin.kubeconfig") }
func (l layout) pki() string        { return l.path("pki") }
func (l layout) etcd() string       { return l.path("etcd") }
func (l layout) audit() string      { return l.path("audit-policy.yaml") }

// made are the entries of the directory that are Up's; the settings come last,
// because they are what says that the directory is Up's at all.
func (l layout) made() []string {
	return []string{l.path("run"), l.path("logs"), l.pki(), l.etcd(), l.audit(), l.audit() + ".new", l.kubeconfig(),
		l.kubeconfig() + ".new", l.settings() + ".new", l.settings(), l.lock()}
}

// stopGrace is short: the API server would use ten seconds to let go of its
// watches, and nobody loses anything when it does not.
const stopGrace = 2 * time.Second

func (l layout) processes() Processes { return Processes{Dir: l.dir, Grace: stopGrace} }

// settings are what stays the same when a part is started again.
type settings struct {
	Etcd, EtcdPeer, APIServer, ControllerManager, Scheduler int // ports
}

// Ports are picked below Linux's ephemeral range, 32768 and up: there, any
// outgoing connection could take one between the choice and its use.
const (
	lowestPort = 20000
	portCount  = 12000
	portTries  = 1000
)

func pickSettings() (settings, error) {
	ports, err := PickPorts(5)
	if err != nil {
		return settings{}, err
	}
	return settings{Etcd: ports[0], EtcdPeer: ports[1], APIServer: ports[2], ControllerManager: ports[3], Scheduler: ports[4]}, nil
}

// PickPorts picks different ports of 127.0.0.1 that nobody listens on, for
// processes that are started later and keep them.
func PickPorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for tries := 0; len(ports) < count; {
		candidate := lowestPort + rand.IntN(portCount) //nolint:gosec // a port is no secret
		listener, err := net.Listen("tcp", address(candidate))
		if err == nil {
			err = listener.Close()
		}
		if err == nil && !slices.Contains(ports, candidate) {
			ports, tries = append(ports, candidate), 0
			continue
		}
		if tries++; tries > portTries {
			return nil, fmt.Errorf("find a free port on 127.0.0.1 from %d to %d: %w", lowestPort, lowestPort+portCount-1, err)
		}
	}
	return ports, nil
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// keepSettings reads the directory's settings, or picks and stores them.
func (l layout) keepSettings() (settings, error) {
	var s settings
	data, err := os.ReadFile(l.settings())
	if err == nil {
		if err := json.Unmarshal(data, &s); err != nil {
			return settings{}, fmt.Errorf("read %s: %w", l.settings(), err)
		}
		return s, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return settings{}, err
	}
	if s, err = pickSettings(); err != nil {
		return settings{}, err
	}
	if data, err = json.Marshal(s); err != nil {
		return settings{}, err
	}
	return s, atomicfile.Write(l.settings(), append(data, '\n'), 0o600)
}

// Status lists the control plane's processes in the directory, alive or not,
// in the order in which they were started.
func Status(dir string) ([]Process, error) {
	return layout{dir}.processes().List()
}

// Down ends every process that Up started in the directory and removes what Up
// made there, however far Up came. A directory that Up did not make, or that
// is missing, is left as it is.
func Down(ctx context.Context, dir string) error {
	l := layout{dir}
	if _, err := os.Stat(l.settings()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	release, err := filelock.Wait(ctx, l.lock(), nil)
	if err != nil {
		return err
	}
	defer release()
	list, err := l.processes().List()
	if err != nil {
		return err
	}
	// Last started, first ended. Nothing of it is kept, so nobody gets time
	// to write it down.
	for _, process := range slices.Backward(list) {
		if err := l.processes().end(process); err != nil {
			return err
		}
	}
	for _, name := range l.made() {
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("remove what the cluster left: %w", err)
		}
	}
	// Somebody else's file in the directory keeps the directory.
	_ = os.Remove(dir)
	return nil
}
