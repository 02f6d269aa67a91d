package processnode

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/internal/removal/removaltest"
)

func TestRewriteReplacesThePathsOfMounts(t *testing.T) {
	m := newMounts(mount{"/tmp/", "/n/tmp"}, mount{"/workspace", "/n/ws"}, mount{"/workspace/cache", "/n/cache"}, mount{"/dev/termination-log", "/n/end"})
	for value, want := range map[string]string{
		"/workspace":                 "/n/ws",
		"/workspace/":                "/n/ws/",
		"/workspace/a/b":             "/n/ws/a/b",
		"/workspace/cache/x":         "/n/cache/x",
		"/workspace/cached":          "/n/ws/cached",
		"/workspaces":                "/workspaces",
		"/tmp":                       "/n/tmp",
		"/tmp/x":                     "/n/tmp/x",
		"/dev/termination-log":       "/n/end",
		"--dir=/workspace":           "--dir=/workspace",
		"https://hub/workspace":      "https://hub/workspace",
		"workspace":                  "workspace",
		"":                           "",
		"/workspace:/workspace/more": "/workspace:/workspace/more",
	} {
		if got := m.rewrite(value); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
	if got := newMounts(mount{"/", "/n/root"}).rewrite("/etc/x"); got != "/n/root/etc/x" {
		t.Errorf("below a mount of everything: %q", got)
	}
}

func TestExpandAsTheKubeletDoes(t *testing.T) {
	variables := map[string]string{"A": "1", "B_2": "$(A)"}
	for value, want := range map[string]string{
		"$(A)": "1", "x$(A)y": "x1y", "$(NONE)": "$(NONE)", "$$(A)": "$(A)", "$A": "$A", "$": "$", "$(": "$(", "$(B_2)": "$(A)", "a$$": "a$", "": "",
	} {
		if got := expand(value, variables); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
}

func TestRefusal(t *testing.T) {
	runner := func(change func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelAppName: runnerAppName}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
				{Name: "runner", Command: []string{"cloop", "executor", "runner"}},
			}},
		}
		change(pod)
		return pod
	}
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		why    string
	}{
		"a runner":       {func(*corev1.Pod) {}, ""},
		"program's path": {func(p *corev1.Pod) { p.Spec.Containers[0].Command[0] = "/usr/bin/cloop" }, ""},
		"the image's":    {func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil }, "container runner"},
		"another":        {func(p *corev1.Pod) { p.Spec.Containers[0].Command[0] = "sh" }, "container runner"},
		"init with another": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Command: []string{"sh"}}}
		}, "container prepare"},
		"sidecar": {func(p *corev1.Pod) { p.Spec.Containers[0].RestartPolicy = &always }, "container runner"},
		"volume":  {func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "host"}} }, "volume host"},
		"variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.x"}}}}
		}, "variable X"},
		"all of a map": {func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{}} }, "envFrom"},
	} {
		t.Run(name, func(t *testing.T) {
			if why := refusal(runner(test.change)); (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
				t.Errorf("refused because %q, want %q in it", why, test.why)
			}
		})
	}
}

func TestPhaseFollowsTheContainers(t *testing.T) {
	at := time.Unix(1000, 0)
	waiting := containerState{}
	running := containerState{Started: at}
	good := containerState{Started: at, Ended: true}
	bad := containerState{Started: at, Ended: true, ExitCode: 1}
	for name, test := range map[string]struct {
		state podState
		want  corev1.PodPhase
	}{
		"nothing started":          {podState{Mains: []containerState{waiting}}, corev1.PodPending},
		"init runs":                {podState{Inits: []containerState{running}, Mains: []containerState{waiting}}, corev1.PodPending},
		"init failed":              {podState{Inits: []containerState{bad, waiting}, Mains: []containerState{waiting}}, corev1.PodFailed},
		"one of two runs":          {podState{Mains: []containerState{running, waiting}}, corev1.PodRunning},
		"one of two failed":        {podState{Mains: []containerState{bad, running}}, corev1.PodRunning},
		"both ended, one badly":    {podState{Mains: []containerState{bad, good}}, corev1.PodFailed},
		"both ended well":          {podState{Mains: []containerState{good, good}}, corev1.PodSucceeded},
		"refused":                  {podState{Reason: ReasonRefused, Mains: []containerState{waiting}}, corev1.PodFailed},
		"refused, and it waits":    {refusedState(podState{Mains: []containerState{waiting}}, "why"), corev1.PodPending},
		"out of time, still runs":  {podState{Reason: ReasonDeadline, Mains: []containerState{running}}, corev1.PodRunning},
		"out of time, ended well":  {podState{Reason: ReasonDeadline, Mains: []containerState{good}}, corev1.PodFailed},
		"init good, main not yet":  {podState{Inits: []containerState{good}, Mains: []containerState{waiting}}, corev1.PodPending},
		"init good, main succeeds": {podState{Inits: []containerState{good}, Mains: []containerState{good}}, corev1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.state.phase(); got != test.want {
				t.Errorf("phase %s, want %s", got, test.want)
			}
		})
	}
}

func TestStatusSaysHowAContainerEnded(t *testing.T) {
	begun, ended := time.Unix(1000, 0), time.Unix(1100, 0)
	state := podState{Executable: "/bin/cloop", Generation: 3, Started: begun, Mains: []containerState{{
		Name: "runner", Image: "i", ID: "process://7-8", Started: begun, Finished: ended, Ended: true, ExitCode: 3, Reason: reasonError, Message: "why",
	}}}
	before := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(begun)},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(begun)}}
	status := state.status(before, ended)
	if status.Phase != corev1.PodFailed || status.ObservedGeneration != 3 || len(status.ContainerStatuses) != 1 {
		t.Fatalf("status %+v", status)
	}
	terminated := status.ContainerStatuses[0].State.Terminated
	if terminated == nil || terminated.ExitCode != 3 || terminated.Reason != reasonError || terminated.Message != "why" ||
		!terminated.StartedAt.Time.Equal(begun) || !terminated.FinishedAt.Time.Equal(ended) {
		t.Errorf("terminated %+v", terminated)
	}
	for _, condition := range status.Conditions {
		want := ended
		if condition.Type == corev1.PodReady {
			want = begun
		}
		if !condition.LastTransitionTime.Time.Equal(want) {
			t.Errorf("%s changed at %s, want %s", condition.Type, condition.LastTransitionTime, want)
		}
	}
}

func TestCutShortEndsOnlyWhatRan(t *testing.T) {
	at := time.Unix(1000, 0)
	state := podState{Mains: []containerState{{Name: "ran", Started: at}, {Name: "done", Started: at, Ended: true}, {Name: "waits"}}}
	state.cutShort(ReasonRestarted, "text", at.Add(time.Second))
	if state.phase() != corev1.PodFailed || state.Mains[0].ExitCode != 137 || state.Mains[0].Reason != ReasonRestarted ||
		state.Mains[1].ExitCode != 0 || state.Mains[2].Ended {
		t.Errorf("%+v", state)
	}
}

func TestExitOf(t *testing.T) {
	for script, want := range map[string]exit{
		"exit 0": {0, reasonCompleted, ""}, "exit 3": {3, reasonError, ""}, "kill -9 $$": {137, reasonError, ""}, "kill -15 $$": {143, reasonError, ""},
	} {
		if got := exitOf(exec.Command("sh", "-c", script).Run()); got != want {
			t.Errorf("%q: %+v, want %+v", script, got, want)
		}
	}
}

func TestTerminationMessage(t *testing.T) {
	logs := corev1.TerminationMessageFallbackToLogsOnError
	for name, test := range map[string]struct {
		message, log string
		policy       corev1.TerminationMessagePolicy
		code         int32
		want         string
	}{
		"said":             {message: "done", want: "done"},
		"cut":              {message: strings.Repeat("x", 5000), want: strings.Repeat("x", messageBytes)},
		"cut in a letter":  {message: "x" + strings.Repeat("é", 2100), want: "x" + strings.Repeat("é", 2047)},
		"log not wanted":   {log: "boom", code: 1},
		"log not needed":   {log: "fine", policy: logs},
		"log":              {log: "boom\n", policy: logs, code: 1, want: "boom\n"},
		"message over log": {message: "said", log: "boom", policy: logs, code: 1, want: "said"},
		"log's end":        {log: strings.Repeat("line\n", 1000), policy: logs, code: 1, want: strings.Repeat("line\n", 79)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := podDir{t.TempDir()}
			container := &corev1.Container{Name: "runner", TerminationMessagePolicy: test.policy}
			write(t, dir.termination("runner"), test.message)
			write(t, dir.log("runner"), test.log)
			got, err := terminationMessage(dir, container, test.code)
			if err != nil || got != test.want {
				t.Errorf("%d bytes %.40q (%v), want %d bytes %.40q", len(got), got, err, len(test.want), test.want)
			}
		})
	}
}

func TestTerminationMessageOfAnotherKindOfFile(t *testing.T) {
	dir := podDir{t.TempDir()}
	file := dir.termination("runner")
	write(t, file, "x")
	for name, replace := range map[string]func() error{
		"nothing": func() error { return nil },
		"a link":  func() error { return os.Symlink("/etc/passwd", file) },
		"a pipe":  func() error { return exec.Command("mkfifo", file).Run() },
		"a dir":   func() error { return os.Mkdir(file, 0o700) },
	} {
		if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		if got, err := terminationMessage(dir, &corev1.Container{Name: "runner"}, 1); err != nil || got != "" {
			t.Errorf("%s: %q (%v)", name, got, err)
		}
	}
}

func TestSubPathStaysInTheVolume(t *testing.T) {
	volume := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(volume, "out")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"out/x", "../x", "a/../../x"} {
		if dir, err := subDirectory(volume, sub); err == nil {
			t.Errorf("%s leads to %s", sub, dir)
		}
	}
	dir, err := subDirectory(volume, "a/b")
	if err != nil || dir != filepath.Join(volume, "a/b") {
		t.Errorf("%s (%v)", dir, err)
	}
}

func TestInvokeKeepsASecretsValue(t *testing.T) {
	container := &corev1.Container{Command: []string{"cloop", "a", "/workspace/x"}, Args: []string{"$(PLAIN)"}, WorkingDir: "/workspace"}
	call := invoke(container, "/bin/cloop", map[string]string{"PLAIN": "/workspace", "SECRET": "/workspace", "PATH": "/image"},
		map[string]bool{"SECRET": true}, newMounts(mount{"/workspace", "/n/ws"}, mount{"/tmp", "/n/tmp"}), "/n/home")
	if got := strings.Join(call.argv, " "); got != "/bin/cloop a /n/ws/x /n/ws" {
		t.Errorf("command line %q", got)
	}
	environment := strings.Join(call.env, "\n") + "\n"
	for _, want := range []string{"PLAIN=/n/ws\n", "SECRET=/workspace\n", "TMPDIR=/n/tmp\n", "HOME=/n/home\n", "PATH=" + os.Getenv("PATH") + "\n"} {
		if !strings.Contains(environment, want) {
			t.Errorf("environment lacks %q:\n%s", want, environment)
		}
	}
	if call.dir != "/n/ws" {
		t.Errorf("directory %s", call.dir)
	}
}

func TestPruneKeepsTheYoungestAndTheBusy(t *testing.T) {
	s := store{t.TempDir()}
	old := time.Unix(1000, 0)
	for i := range keptPods + 3 {
		dir := filepath.Join(s.pods(), string(rune('a'+i/26))+string(rune('a'+i%26)))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, old, old.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.prune(func(entry string) bool { return entry == "aa" }); err != nil {
		t.Fatal(err)
	}
	for entry, kept := range map[string]bool{"aa": true, "ab": false, "ac": false, "ad": true} {
		if _, err := os.Stat(filepath.Join(s.pods(), entry)); (err == nil) != kept {
			t.Errorf("%s: %v, want kept %t", entry, err, kept)
		}
	}
}

func TestRecordsThatAPowerLossLeftStopNobody(t *testing.T) {
	dir := t.TempDir()
	for pod, left := range map[string]string{"ns_empty_1": "", "ns_zeros_2": "\x00\x00", "ns_part_3": `{"Root":`} {
		container := filepath.Join(dir, "pods", pod, "containers", "runner")
		if err := os.MkdirAll(container, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{filepath.Join(container, "process.json"), filepath.Join(dir, "pods", pod, "pod.json")} {
			if err := os.WriteFile(file, []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if states, err := (store{dir}).recover(time.Now()); err != nil || len(states) != 0 {
		t.Errorf("recovered %v (%v), want nothing", states, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "pods", "*", "containers", "*", "process.json")); len(left) != 0 {
		t.Errorf("records are left: %v", left)
	}
	if err := Clean(dir); err != nil {
		t.Error(err)
	}
}

func TestDirectoriesThatARunClosedAreRemoved(t *testing.T) {
	removaltest.Unprivileged(t, func(dir string) {
		home := filepath.Join(dir, "pods", "ns_pod_1", "volumes", "home")
		claim := filepath.Join(dir, "claims", "ns_cache_2")
		if err := errors.Join(removaltest.Close(home), removaltest.Close(claim), Clean(dir)); err != nil {
			t.Error(err)
		}
		for _, closed := range []string{filepath.Dir(home), claim} {
			if _, err := os.Lstat(closed); !os.IsNotExist(err) {
				t.Errorf("%s is still there (%v)", closed, err)
			}
		}
	})
}

func TestOptionsNameAllProblems(t *testing.T) {
	err := Run(t.Context(), Options{Executable: t.TempDir()})
	for _, want := range []string{"node name", "cluster", "directory", "cannot be executed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
