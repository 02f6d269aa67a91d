package dev

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/hubclient"
)

// Parts of a system beside the control plane, as Status and Restart name them.
const (
	hubPart      = "hub"
	gitPart      = "git"
	executorPart = "executor-controller"
	fleetPart    = "fleet-controller"
	nodePart     = "node"
)

// NodeName is the process node's name in the cluster.
const NodeName = "cloop-process-node"

// runnerImage is what runner Pods name. The process node pulls nothing: it
// runs this system's own binary.
const runnerImage = "cloop.example.com/runner:dev"

func metricsOf(part string) string { return part + "-metrics" }
func healthOf(part string) string  { return part + "-health" }

// startCluster brings up a control plane of our own, or opens an existing one.
func (s *System) startCluster(ctx context.Context, o Options) error {
	if s.Kubeconfig = s.state.Kubeconfig; s.Kubeconfig != "" {
		if kubectl, err := exec.LookPath("kubectl"); err == nil {
			// Nothing else of a Kubernetes is needed on an existing cluster.
			s.Kubectl = []string{kubectl}
			return s.connectCluster()
		}
	}
	binaries, err := cluster.FindBinaries(ctx, o.Progress)
	if err != nil {
		return err
	}
	s.Kubectl = binaries.Kubectl
	if s.Kubeconfig == "" {
		up, err := cluster.Up(ctx, cluster.Options{Dir: s.path("cluster"), Binaries: binaries})
		if err != nil {
			return err
		}
		s.Kubeconfig = up.Kubeconfig
	}
	return s.connectCluster()
}

// startGit brings up the Git server with its two repositories.
func (s *System) startGit(ctx context.Context) error {
	for _, repository := range []string{"fleet", ProjectName} {
		if err := createBare(ctx, s.path("git", repository+".git")); err != nil {
			return err
		}
	}
	if err := s.start(gitPart); err != nil {
		return err
	}
	return s.seedProject(ctx)
}

// seedProject gives the project its first commit.
func (s *System) seedProject(ctx context.Context) error {
	var work *Repository
	err := s.await(ctx, gitPart, func(ctx context.Context, _ cluster.Process) (err error) {
		work, err = clone(ctx, s.path("work", ProjectName), s.GitURL(ProjectName), s.CAFile)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := work.Head(ctx); err == nil {
		return work.Push(ctx)
	}
	files, err := seedFiles("project", nil)
	if err != nil {
		return err
	}
	if err := work.Write(files); err != nil {
		return err
	}
	if _, err := work.Commit(ctx, "Add a check"); err != nil {
		return err
	}
	return work.Push(ctx)
}

// startHub brings up the hub, signs in and registers the project.
func (s *System) startHub(ctx context.Context) error {
	config := fmt.Sprintf(`sync:
  - name: %s
    url: %s
    ref: {branch: %s}
    path: ./hub
    interval: 1m
    pruneLimit: {count: 5, percent: 60}
    caFile: %[4]s
projects:
  caFile: %[4]s
`, SyncName, s.GitURL("fleet"), branch, yamlText(s.CAFile))
	if err := atomicfile.Write(s.path("hub.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	if err := s.start(hubPart); err != nil {
		return err
	}
	return s.await(ctx, hubPart, func(ctx context.Context, _ cluster.Process) error {
		if err := s.connectHub(); err != nil {
			return err
		}
		_, err := s.Hub.CreateProject(ctx, hubv1.CreateProjectRequest{Name: ProjectName, Remote: s.GitURL(ProjectName), DefaultRef: branch})
		var problem *hubv1.Problem
		if errors.As(err, &problem) && problem.Code == hubv1.CodeConflict {
			return nil
		}
		return err
	})
}

// startControllers brings up both controllers and the process node. Runners
// must land on a node that can reach this machine's loopback, so an existing
// cluster gets the process node too.
func (s *System) startControllers(ctx context.Context) error {
	for _, part := range []string{executorPart, fleetPart, nodePart} {
		if err := s.start(part); err != nil {
			return err
		}
	}
	for _, part := range []string{executorPart, fleetPart} {
		err := s.await(ctx, part, func(ctx context.Context, _ cluster.Process) error {
			return get(ctx, "http://"+s.address(healthOf(part))+"/readyz")
		})
		if err != nil {
			return err
		}
	}
	return s.await(ctx, nodePart, func(ctx context.Context, process cluster.Process) error {
		var node corev1.Node
		if err := s.Cluster.Get(ctx, client.ObjectKey{Name: NodeName}, &node); err != nil {
			return err
		}
		var lease coordinationv1.Lease
		if err := s.Cluster.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: NodeName}, &lease); err != nil {
			return err
		}
		return ready(&node, &lease, process.Started)
	})
}

// ready is an error unless the node is Ready, and said so since its process was
// started: an earlier process leaves its conditions behind.
func ready(node *corev1.Node, lease *coordinationv1.Lease, since time.Time) error {
	if renewed := lease.Spec.RenewTime; renewed == nil || renewed.Time.Before(since.Truncate(time.Microsecond)) {
		return fmt.Errorf("node %s was not heard of since it was started", node.Name)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready", node.Name)
}

// await asks a part that was started until the answer is no error. A part that
// ended is not waited for: the error quotes its log.
func (s *System) await(ctx context.Context, part string, ask func(context.Context, cluster.Process) error) error {
	return eventually(ctx, "wait for the "+part+" (log: "+s.logOf(part)+")", func(ctx context.Context) error {
		process, err := s.processes.Running(part)
		if err != nil {
			return never("%w", err)
		}
		return ask(ctx, process)
	})
}

// start starts a part unless it runs.
func (s *System) start(part string) error {
	if s.processes.Alive(part) {
		return nil
	}
	// What an earlier process left may still hold the ports.
	if err := s.processes.Stop(part); err != nil {
		return fmt.Errorf("start the %s: clean up what ran before: %w", part, err)
	}
	if err := s.portsFree(part, net.Listen, portPatience); err != nil {
		return err
	}
	if _, err := s.processes.Start(part, append([]string{s.executable}, s.arguments(part)...), environment()); err != nil {
		return fmt.Errorf("start the %s: %w", part, err)
	}
	return nil
}

// portPatience is how long the kernel may take to close what a process that was
// killed listened on: its threads do not all end at once.
const portPatience = 5 * time.Second

// portsFree says which of a part's ports another program has taken, and goes on
// holding for that long. They were free when the system was made, and cannot change:
// addresses are in Git.
func (s *System) portsFree(part string, listen func(network, address string) (net.Listener, error), patience time.Duration) error {
	for _, name := range []string{part, metricsOf(part), healthOf(part)} {
		if s.state.Ports[name] == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		err := until(ctx, "listen", func(context.Context) error {
			listener, err := listen("tcp", s.address(name))
			if err != nil {
				return err
			}
			return listener.Close()
		})
		cancel()
		if err != nil {
			return fmt.Errorf("start the %s: another program has taken its address %s: end that one, or take the system down and up again, which picks others: %w",
				part, s.address(name), err)
		}
	}
	return nil
}

// environment of a part: what finds programs and scratch space, and nothing
// that the caller's shell says of another hub or cluster.
func environment() []string {
	var kept []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, set := os.LookupEnv(name); set {
			kept = append(kept, name+"="+value)
		}
	}
	return kept
}

// arguments of a part's command line. Nothing secret is among them.
func (s *System) arguments(part string) []string {
	switch part {
	case hubPart:
		return []string{"hub", "serve", "--addr", s.address(hubPart), "--data-dir", s.path("hub"),
			"--tls-cert", s.path("pki", "hub.crt"), "--tls-key", s.path("pki", "hub.key"),
			"--config", s.path("hub.yaml"), "--admin-token-file", s.AdminTokenFile}
	case gitPart:
		return []string{"dev", "git-server", "--addr", s.address(gitPart), "--root", s.path("git"),
			"--tls-cert", s.path("pki", "git.crt"), "--tls-key", s.path("pki", "git.key")}
	case executorPart:
		return append(s.controllerArguments(part, "executorpool", PoolNamespace), "--runner-image", runnerImage)
	case fleetPart:
		return s.controllerArguments(part, "poolsync,hubpool", FleetNamespace)
	case nodePart:
		return []string{"dev", "node", "--name", NodeName, "--node-dir", s.path("node"), "--kubeconfig", s.Kubeconfig}
	}
	panic("unknown part " + part)
}

// controllerArguments are without a Lease: there is one controller of each kind
// and nothing that would start it again after an API server, or the whole
// machine, was asleep for longer than a Lease lasts.
func (s *System) controllerArguments(part, controllers, namespace string) []string {
	return []string{"executor", "controller", "run", "--controllers", controllers, "--namespace", namespace,
		"--kubeconfig", s.path("kubeconfig", part), "--cache-dir", s.path("cache", part),
		"--metrics-addr", s.address(metricsOf(part)), "--health-addr", s.address(healthOf(part))}
}

// Kill ends a part with SIGKILL, as a crash would, and waits until it has ended:
// Start takes what still runs for started.
func (s *System) Kill(part string) error {
	if err := s.processes.Kill(part, killSignal); err != nil {
		return fmt.Errorf("kill the %s: %w", part, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	return until(ctx, "the "+part+" ends", func(context.Context) error {
		if s.processes.Alive(part) {
			return errors.New("it runs")
		}
		return nil
	})
}

// killPatience is how long a process may take to end that was killed.
const killPatience = 30 * time.Second

// Start starts a part that was killed.
func (s *System) Start(part string) error { return s.start(part) }

// Crashable are the parts that a test may kill at any time.
func Crashable() []string { return []string{hubPart, executorPart, fleetPart} }

// PID is the process id of a part, 0 when it does not run.
func (s *System) PID(part string) int {
	listed, err := s.processes.List()
	if err != nil {
		return 0
	}
	for _, p := range listed {
		if p.Name == part && p.Alive {
			return p.ID.PID
		}
	}
	return 0
}

// logOf is the file with a part's output.
func (s *System) logOf(part string) string { return s.path("logs", part+".log") }

// MetricsURL is where a controller serves its metrics.
func (s *System) MetricsURL(part string) string {
	return "http://" + s.address(metricsOf(part)) + "/metrics"
}

// get asks for a URL on this machine and fails unless the answer is 200.
func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// pinOf is the pin of a PEM certificate.
func pinOf(certificate []byte) (string, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return "", errors.New("the hub's certificate is not PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", err
	}
	return hubclient.Pin(parsed), nil
}

func trimmed(token []byte) string { return strings.TrimSpace(string(token)) }
