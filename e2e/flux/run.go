package flux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"cloop.dev/cloop/e2e/cluster"
)

// Namespace is where the controllers look for Secrets of their own; they watch all.
const Namespace = "flux-system"

// Running are the two controllers as processes of their own.
type Running struct {
	// Processes: name → process id.
	Processes map[string]int
	// Metrics: name → URL.
	Metrics map[string]string
	// Logs are files.
	Logs map[string]string

	commands []*exec.Cmd
	logs     []*os.File
	once     sync.Once
}

// Start starts the controllers on the cluster of a kubeconfig, with what they set
// themselves where nothing is said. They keep artifacts and logs in dir.
func (f *Flux) Start(dir, kubeconfig string) (*Running, error) {
	const each = 3
	ports, err := cluster.PickPorts(2 * each)
	if err != nil {
		return nil, err
	}
	r := &Running{Processes: map[string]int{}, Metrics: map[string]string{}, Logs: map[string]string{}}
	for i, name := range []string{Source, Kustomize} {
		addr := func(at int) string { return fmt.Sprintf("127.0.0.1:%d", ports[each*i+at]) }
		arguments := []string{
			"--metrics-addr", addr(0), "--health-addr", addr(1),
			"--enable-leader-election=false", "--watch-all-namespaces=true", "--interval-jitter-percentage=0",
		}
		if name == Source {
			arguments = append(arguments, "--storage-path", filepath.Join(dir, "artifacts"), "--storage-addr", addr(2), "--storage-adv-addr", addr(2))
		}
		if err := r.start(dir, kubeconfig, name, f.program(name), arguments); err != nil {
			r.Stop()
			return nil, err
		}
		r.Metrics[name] = "http://" + addr(0) + "/metrics"
	}
	return r, nil
}

func (r *Running) start(dir, kubeconfig, name, program string, arguments []string) error {
	if err := os.MkdirAll(filepath.Join(dir, "artifacts"), 0o700); err != nil {
		return err
	}
	logFile := filepath.Join(dir, name+".log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	r.logs = append(r.logs, log)
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "RUNTIME_NAMESPACE="+Namespace, "KUBECONFIG="+kubeconfig)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	r.commands = append(r.commands, command)
	r.Processes[name], r.Logs[name] = command.Process.Pid, logFile
	return nil
}

// Stop ends them and waits until they have.
func (r *Running) Stop() {
	r.once.Do(func() {
		for _, command := range r.commands {
			_ = command.Process.Signal(os.Interrupt)
		}
		for _, command := range r.commands {
			// How it ended stands in its log.
			_ = command.Wait()
		}
		for _, log := range r.logs {
			_ = log.Close()
		}
	})
}
