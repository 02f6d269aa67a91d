package processnode_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/processnode"
)

// Variables that make a copy of the test binary a process node.
const (
	envNode       = "PROCESSNODE_TEST_NODE"
	envKubeconfig = "PROCESSNODE_TEST_KUBECONFIG"
	envDir        = "PROCESSNODE_TEST_DIR"
	envExecutable = "PROCESSNODE_TEST_EXECUTABLE"
)

func TestMain(m *testing.M) {
	if node := os.Getenv(envNode); node != "" {
		if err := serve(node); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	clustertest.Main(m)
}

func serve(node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envKubeconfig))
	if err != nil {
		return err
	}
	return processnode.Run(context.Background(), processnode.Options{
		NodeName: node, Dir: os.Getenv(envDir), RESTConfig: config, Executable: os.Getenv(envExecutable),
	})
}

// fixture is a node with a namespace of its own in the shared control plane.
type fixture struct {
	*testing.T
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	namespace  string
	node, dir  string
	executable string
}

// newFixture prepares a node without starting it. Its "cloop" is a shell that
// runs the variable SCRIPT.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	cluster := clustertest.Start(t, clustertest.WithScheduler())
	config, err := cluster.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{
		T: t, kubeconfig: cluster.Kubeconfig, config: config, client: kubernetes.NewForConfigOrDie(config),
		namespace: clustertest.Namespace(t, config), dir: filepath.Join(t.TempDir(), "node"),
	}
	f.node = "node-" + f.namespace
	f.executable = filepath.Join(t.TempDir(), "cloop")
	if err := os.WriteFile(f.executable, []byte("#!/bin/sh\neval \"$SCRIPT\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := processnode.Clean(f.dir); err != nil {
			t.Error(err)
		}
		ctx := context.Background()
		if err := f.client.CoreV1().Nodes().Delete(ctx, f.node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return f
}

// startNode runs the node in this process; stop ends it and waits.
func (f *fixture) startNode() (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- processnode.Run(ctx, processnode.Options{
			NodeName: f.node, Dir: f.dir, RESTConfig: f.config, Executable: f.executable,
			Log: slog.New(slog.NewTextHandler(testWriter{f.T}, nil)),
		})
	}()
	stopped := false
	stop = func() {
		f.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			f.Errorf("the node ended: %v", err)
		}
	}
	f.Cleanup(stop)
	f.nodeReady(corev1.ConditionTrue)
	return stop
}

// startProcess runs the node in a process of its own.
func (f *fixture) startProcess() *exec.Cmd {
	f.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), envNode+"="+f.node, envKubeconfig+"="+f.kubeconfig, envDir+"="+f.dir, envExecutable+"="+f.executable)
	command.Stderr = testWriter{f.T}
	if err := command.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	f.nodeReady(corev1.ConditionTrue)
	return command
}

func (f *fixture) nodeReady(want corev1.ConditionStatus) {
	f.Helper()
	f.eventually("the node is ready: "+string(want), func() bool {
		node, err := f.client.CoreV1().Nodes().Get(f.Context(), f.node, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == want
			}
		}
		return false
	})
}

// pod is a runner Pod whose container runs the script.
func (f *fixture) pod(name, script string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.namespace, Labels: map[string]string{"app.kubernetes.io/name": "cloop-runner"}},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(20)),
			NodeSelector:                  map[string]string{corev1.LabelHostname: f.node},
			Containers:                    []corev1.Container{container("runner", script)},
		},
	}
}

func container(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "none", Command: []string{"cloop", "executor", "runner"}, Env: []corev1.EnvVar{{Name: "SCRIPT", Value: script}}}
}

func (f *fixture) create(pod *corev1.Pod) *corev1.Pod {
	f.Helper()
	created, err := f.client.CoreV1().Pods(f.namespace).Create(f.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return created
}

func (f *fixture) get(name string) *corev1.Pod {
	f.Helper()
	pod, err := f.client.CoreV1().Pods(f.namespace).Get(f.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	return pod
}

func (f *fixture) delete(name string, grace *int64) {
	f.Helper()
	if err := f.client.CoreV1().Pods(f.namespace).Delete(f.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) reaches(name string, phase corev1.PodPhase) *corev1.Pod {
	f.Helper()
	var pod *corev1.Pod
	f.eventually(name+" is "+string(phase), func() bool {
		pod = f.get(name)
		return pod.Status.Phase == phase
	})
	return pod
}

func (f *fixture) isGone(name string) {
	f.Helper()
	f.eventually(name+" is gone", func() bool {
		_, err := f.client.CoreV1().Pods(f.namespace).Get(f.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// podDir is where the node keeps a Pod.
func (f *fixture) podDir(pod *corev1.Pod) string {
	return filepath.Join(f.dir, "pods", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

func (f *fixture) log(pod *corev1.Pod, container string) string {
	data, err := os.ReadFile(filepath.Join(f.podDir(pod), "containers", container, "log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// says waits for a line of the runner's log.
func (f *fixture) says(pod *corev1.Pod, line string) {
	f.Helper()
	f.eventually(pod.Name+" says "+line, func() bool { return strings.Contains(f.log(pod, "runner"), line) })
}

// marked counts the live processes that sleep for a time, or whose script does. The time
// alone may stand in the command line of a process that has nothing to do with a Pod.
func marked(text string) int {
	count := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		// Arguments end with a zero byte; a shell has the words of its script.
		if data, err := os.ReadFile(file); err == nil && strings.Contains(strings.ReplaceAll(string(data), "\x00", " "), "sleep "+text) {
			count++
		}
	}
	return count
}

// eventually polls for what the control plane and the node do in their time.
func (f *fixture) eventually(what string, holds func() bool) {
	f.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatalf("waited in vain until %s", what)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

func terminated(t *testing.T, pod *corev1.Pod) *corev1.ContainerStateTerminated {
	t.Helper()
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Fatalf("no container has ended: %+v", pod.Status)
	}
	return pod.Status.ContainerStatuses[0].State.Terminated
}

const sigkill = syscall.SIGKILL
