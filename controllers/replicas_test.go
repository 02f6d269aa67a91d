package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// replicaEnvironment makes the test binary a controller process.
const replicaEnvironment = "CLOOP_TEST_REPLICA"

// replicaSettings are a controller process' settings.
type replicaSettings struct{ Name, Namespace, Kubeconfig, Health string }

// runReplica turns the process into a controller and does not return, if
// startReplica started it; else it does nothing.
func runReplica() {
	text := os.Getenv(replicaEnvironment)
	if text == "" {
		return
	}
	var s replicaSettings
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (s replicaSettings) run() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return Run(ctx, Options{
		Controllers: []string{executorPoolController}, Namespace: s.Namespace, RESTConfig: config, LeaderElect: true,
		MetricsAddr: "0", HealthAddr: s.Health, RunnerImage: "registry.example.com/runner:1", Build: s.Name, Instance: s.Name,
	})
}

// replica is a controller in a process of its own.
type replica struct {
	t       *testing.T
	name    string
	command *exec.Cmd
	// ended is closed when the process has ended, with err.
	ended chan struct{}
	err   error
}

// startReplica starts a controller process and waits until it could take over.
func (s *stage) startReplica(name string) *replica {
	s.t.Helper()
	settings := replicaSettings{Name: name, Namespace: s.ns, Kubeconfig: clustertest.Start(s.t, clustertest.WithAuditLog()).Kubeconfig, Health: freeAddress(s.t)}
	text, err := json.Marshal(settings)
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	r := &replica{t: s.t, name: name, command: exec.Command(self), ended: make(chan struct{})}
	r.command.Env = append(os.Environ(), replicaEnvironment+"="+string(text))
	// A process that is stopped notices nothing, not even that this one is gone.
	r.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &strings.Builder{}
	r.command.Stdout, r.command.Stderr = log, log
	if err := r.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		r.err = r.command.Wait()
		close(r.ended)
	}()
	s.t.Cleanup(func() {
		_ = r.command.Process.Kill()
		<-r.ended
		if s.t.Failed() {
			s.t.Logf("%s (%v) printed:\n%s", name, r.err, log)
		}
	})
	eventually(s.t, name+" is ready", func() error { return get(s.t, "http://"+settings.Health+"/readyz") })
	return r
}

func (r *replica) signal(s syscall.Signal) {
	if err := r.command.Process.Signal(s); err != nil {
		r.t.Error(err)
	}
}

// stop has the replica stand still, and returns once all of its threads do: until
// then it could still read an answer, and be sending a request when it stops.
func (r *replica) stop() {
	r.signal(syscall.SIGSTOP)
	if err := unix.Waitid(unix.P_PID, r.command.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		r.t.Errorf("wait for %s to stop: %v", r.name, err)
	}
}

// leader is the name of the replica that holds the Lease.
func (s *stage) leader() string {
	lease := &coordinationv1.Lease{}
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: v1alpha1.FieldManagerExecutorPool}, lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name
}

// wrote are the changes that a replica has made, its Lease aside.
func (s *stage) wrote(r *replica) []string {
	var made []string
	for _, request := range writes(requestsBy(s.t, v1alpha1.FieldManagerExecutorPool+"/"+r.name)) {
		if strings.Contains(request, s.ns) {
			made = append(made, request)
		}
	}
	return made
}

// takeover is the longest that a pool goes without a leader: the Lease, the look
// at it that shows the leader's last sign, the look that shows that there is none,
// and what a busy machine adds.
const takeover = leaseDuration + 2*22*leaseRetry/10 + 15*time.Second

// runnersOnce fails if a runner was started twice, or its token made useless.
func (s *stage) runnersOnce(pods []corev1.Pod, mints int) {
	s.t.Helper()
	runners := map[string]bool{}
	for i := range pods {
		runners[pods[i].Annotations[v1alpha1.AnnotationRunnerID]] = true
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if len(runners) != len(pods) || s.hub.starts != len(pods) || s.hub.mints != mints || int(s.hub.aliveLocked()) != len(pods) {
		s.t.Errorf("%d Pods of %d runners; the hub minted %d tokens for %d, of which %d live",
			len(pods), len(runners), s.hub.mints, s.hub.starts, s.hub.aliveLocked())
	}
}

func TestOneReplicaActsAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	s := newEmptyStage(t, 4)
	first := s.startReplica("first")
	s.until("the first leads", func() bool { return s.leader() == "first" })
	second := s.startReplica("second")
	s.pool()
	s.hub.queue(2)
	s.runnersOnce(s.untilPods(2), 2)
	if made := s.wrote(second); len(made) > 0 || len(s.wrote(first)) == 0 {
		t.Errorf("the standby has made %q", made)
	}

	// The leader dies with work to do.
	s.hub.queue(1)
	first.signal(syscall.SIGKILL)
	killed := time.Now()
	s.until("the second leads", func() bool { return s.leader() == "second" })
	took := time.Since(killed)
	t.Logf("took over after %s", took)
	if took > takeover {
		t.Errorf("that is longer than %s", takeover)
	}
	pods := s.untilPods(3)
	s.hub.mu.Lock()
	mints := s.hub.mints // the first may have minted before it died
	s.hub.mu.Unlock()
	if mints > 4 {
		t.Errorf("%d tokens for 3 runners", mints)
	}
	s.runnersOnce(pods, mints)
	for i := range pods {
		s.run(pods[i])
	}
}

// A leader that was stopped for longer than its Lease goes on in the middle of
// starting a runner that its successor has started meanwhile.
func TestAReplicaThatWasStoppedChangesNothing(t *testing.T) {
	t.Parallel()
	s := newEmptyStage(t, 4)
	stopped := s.startReplica("stopped")
	s.until("it leads", func() bool { return s.leader() == "stopped" })
	s.startReplica("successor")
	s.pool()
	s.hub.queue(1)
	s.untilPods(1)

	// It has its runner minted and never gets to read the token.
	s.hub.mu.Lock()
	s.hub.answering = func(r *http.Request) {
		if r.URL.Path == "/pool/v1/runners" && strings.HasSuffix(r.UserAgent(), "/stopped") {
			stopped.stop()
		}
	}
	s.hub.mu.Unlock()
	s.hub.queue(1)
	s.until("the successor leads", func() bool { return s.leader() == "successor" })
	pods := s.untilPods(2)
	s.runnersOnce(pods, 3)
	before := s.wrote(stopped)

	stopped.signal(syscall.SIGCONT)
	select {
	case <-stopped.ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if exit := (*exec.ExitError)(nil); !errors.As(stopped.err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v", stopped.err)
	}
	if after := s.wrote(stopped); len(after) > len(before) {
		t.Errorf("it made %q", after[len(before):])
	}
	s.runnersOnce(s.untilPods(2), 3)
	// The tokens are those that the successor had minted.
	for i := range pods {
		s.run(pods[i])
	}
	if s.leader() != "successor" {
		t.Errorf("%s leads", s.leader())
	}
}
