package processnode_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/internal/processnode"
)

func TestRunnerFindsWhatItsPodPromises(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "runner"}, StringData: map[string]string{"token": "T0KEN", "password": "/workspace"}}
	if _, err := f.client.CoreV1().Secrets(f.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := f.pod("runner", `set -e
		cat "$TOKEN_FILE"; echo; stat -c "mode %a" "$TOKEN_FILE"; echo "password $PASSWORD"; echo "$POD in $NAMESPACE is $UID_"
		echo "in $(pwd) arguments $*"; cat "$WORKSPACE/prepared"; test "$TMPDIR" != /tmp; test -w "$HOME"
		printf 'all done' > "$LAST_WORDS"`)
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	mounts := []corev1.VolumeMount{{Name: "workspace", MountPath: "/workspace"}, {Name: "tmp", MountPath: "/tmp"}, {Name: "secret", MountPath: "/var/run/secrets/x", ReadOnly: true}}
	runner := &pod.Spec.Containers[0]
	runner.WorkingDir, runner.VolumeMounts = "/workspace", mounts
	runner.Env = append(runner.Env, corev1.EnvVar{Name: "TOKEN_FILE", Value: "/var/run/secrets/x/token"},
		corev1.EnvVar{Name: "WORKSPACE", Value: "/workspace"}, corev1.EnvVar{Name: "LAST_WORDS", Value: "/dev/termination-log"},
		corev1.EnvVar{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "runner"}, Key: "password"}}},
		field("POD", "metadata.name"), field("NAMESPACE", "metadata.namespace"), field("UID_", "metadata.uid"))
	prepare := container("prepare", `echo prepared > "$1/prepared"; set`)
	prepare.Args, prepare.VolumeMounts = []string{"/workspace"}, mounts
	prepare.Command = []string{"cloop"}
	pod.Spec.InitContainers = []corev1.Container{prepare}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "workspace", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "runner"}}},
	}
	f.create(pod)
	pod = f.ends("runner")
	if pod.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("status %+v\nprepare says %s\nrunner says %s", pod.Status, f.log(pod, "prepare"), f.log(pod, "runner"))
	}
	if end := terminated(t, pod); end.Message != "all done" || end.Reason != "Completed" || end.ExitCode != 0 {
		t.Errorf("ended %+v", end)
	}
	log := f.log(pod, "runner")
	volumes := filepath.Join(f.podDir(pod), "volumes")
	for _, want := range []string{"T0KEN\n", "mode 600\n", "password /workspace\n", "runner in " + f.namespace + " is " + string(pod.UID),
		"in " + filepath.Join(volumes, "workspace") + " arguments executor runner\n", "prepared\n"} {
		if !strings.Contains(log, want) {
			t.Errorf("log lacks %q:\n%s", want, log)
		}
	}
	if _, err := os.Stat(filepath.Join(volumes, "secret")); !os.IsNotExist(err) {
		t.Errorf("the Secret is still on the disk (%v)", err)
	}
	f.eventually("the volumes are gone", func() bool {
		_, err := os.Stat(volumes)
		return os.IsNotExist(err)
	})
	f.delete("runner", nil)
	f.isGone("runner")
}

func TestExitCodesAreTold(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	// A Pod spells a dollar sign twice.
	for pod, script := range map[string]string{"exits": "exit 3", "killed": "kill -9 $$$$"} {
		want := map[string]int32{"exits": 3, "killed": 137}[pod]
		f.create(f.pod(pod, script))
		if end := terminated(t, f.reaches(pod, corev1.PodFailed)); end.ExitCode != want || end.Reason != "Error" {
			t.Errorf("%s: ended %+v, want %d", pod, end, want)
		}
	}
	failing := f.pod("init", "exit 0")
	failing.Spec.InitContainers = []corev1.Container{container("first", "exit 7"), container("second", "exit 0")}
	f.create(failing)
	pod := f.reaches("init", corev1.PodFailed)
	if len(pod.Status.InitContainerStatuses) != 2 || pod.Status.InitContainerStatuses[0].State.Terminated.ExitCode != 7 ||
		pod.Status.InitContainerStatuses[1].State.Waiting == nil || pod.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("status %+v", pod.Status)
	}
}

// Where one failed, what makes Pods without end, as a ReplicaSet does, would make the
// next one at once, and so on.
func TestOtherPodsWaitAndAreTold(t *testing.T) {
	f := newFixture(t)
	stop := f.startNode()
	unlabelled, always := f.pod("unlabelled", "touch /tmp/never"), f.pod("always", "touch /tmp/never")
	unlabelled.Labels = nil
	always.Spec.RestartPolicy = corev1.RestartPolicyAlways
	told := func(name, says string) {
		t.Helper()
		f.eventually(name+" is told", func() bool { return f.get(name).Status.Reason == processnode.ReasonRefused })
		pod := f.get(name)
		waiting := pod.Status.ContainerStatuses[0].State.Waiting
		if pod.Status.Phase != corev1.PodPending || !strings.Contains(pod.Status.Message, says) || waiting == nil || waiting.Message != pod.Status.Message {
			t.Errorf("%s: status %+v", name, pod.Status)
		}
		events, err := f.client.CoreV1().Events(f.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + processnode.ReasonRefused})
		if err != nil || len(events.Items) != 1 || !strings.Contains(events.Items[0].Message, "delete what makes this Pod") {
			t.Errorf("%s: Events %+v (%v)", name, events, err)
		}
	}
	for _, pod := range []*corev1.Pod{unlabelled, always} {
		f.create(pod)
	}
	told("unlabelled", "label")
	told("always", "restartPolicy Always")
	stop()
	f.startNode()
	// By the time that a later Pod is through, the node has seen them again.
	f.create(f.pod("later", "exit 0"))
	f.reaches("later", corev1.PodSucceeded)
	told("unlabelled", "label")
	f.delete("unlabelled", nil)
	f.isGone("unlabelled")
}

func TestRunnersThatCannotRunFail(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	other := f.pod("other", "touch /tmp/never")
	other.Spec.Containers[0].Command = []string{"sh"}
	f.create(other)
	if pod := f.reaches("other", corev1.PodFailed); pod.Status.Reason != processnode.ReasonRefused || !strings.Contains(pod.Status.Message, "has no images") {
		t.Errorf("reason %s: %s", pod.Status.Reason, pod.Status.Message)
	}
}

func TestDeletedPodGetsItsGracePeriod(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	polite := f.create(f.pod("polite", `trap 'echo saw the signal; exit 0' TERM; echo ready; while :; do sleep 0.05; done`))
	f.says(polite, "ready")
	f.delete("polite", nil)
	f.isGone("polite")
	f.says(polite, "saw the signal")

	stubborn := f.create(f.pod("stubborn", `trap "" TERM; sleep 7101 & (setsid sleep 7101 &) ; echo ready; while :; do sleep 0.05; done`))
	f.says(stubborn, "ready")
	f.eventually("its children run", func() bool { return marked("7101") >= 2 })
	f.delete("stubborn", new(int64(1)))
	f.isGone("stubborn")
	if left := marked("7101"); left != 0 {
		t.Errorf("%d of its processes are left", left)
	}

	forced := f.create(f.pod("forced", `trap "" TERM; echo ready; while :; do sleep 7102; done`))
	f.says(forced, "ready")
	f.delete("forced", new(int64(0)))
	f.eventually("its processes are gone", func() bool { return marked("7102") == 0 })
}

func TestContainerEndsWithItsFirstProcess(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	f.create(f.pod("leaves", `(setsid sleep 7103 &) ; sleep 0.2`))
	f.reaches("leaves", corev1.PodSucceeded)
	if left := marked("7103"); left != 0 {
		t.Errorf("%d of its processes are left", left)
	}
}

func TestPodWaitsForItsSecret(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	pod := f.pod("late", `test "$X" = there`)
	pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "x"}}})
	f.create(pod)
	f.eventually("it says what it lacks", func() bool {
		statuses := f.get("late").Status.ContainerStatuses
		return len(statuses) == 1 && statuses[0].State.Waiting != nil && strings.Contains(statuses[0].State.Waiting.Message, `"late" not found`)
	})
	// One that is deleted while it waits goes too.
	other := pod.DeepCopy()
	other.Name = "given-up"
	f.create(other)
	f.eventually("it waits", func() bool { return len(f.get("given-up").Status.ContainerStatuses) == 1 })
	f.delete("given-up", nil)
	f.isGone("given-up")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}, StringData: map[string]string{"x": "there"}}
	if _, err := f.client.CoreV1().Secrets(f.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.reaches("late", corev1.PodSucceeded)
}

func TestDeadlineEndsAPod(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	pod := f.pod("slow", "exec sleep 7104")
	pod.Spec.ActiveDeadlineSeconds = new(int64(1))
	f.create(pod)
	if pod = f.reaches("slow", corev1.PodFailed); pod.Status.Reason != processnode.ReasonDeadline {
		t.Errorf("reason %s", pod.Status.Reason)
	}
}

func TestClaimKeepsItsDataFromPodToPod(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(processnode.StorageClass), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	claims := f.client.CoreV1().PersistentVolumeClaims(f.namespace)
	if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run := func(name, script, subPath string) {
		pod := f.pod(name, script)
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: subPath}}
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "DATA", Value: "/data"})
		f.create(pod)
		if pod = f.ends(name); pod.Status.Phase != corev1.PodSucceeded {
			t.Fatalf("%s: %+v\n%s", name, pod.Status, f.log(pod, "runner"))
		}
		// A claim is protected as long as a Pod of any phase names it.
		f.delete(name, nil)
		f.isGone(name)
	}
	run("writes", `mkdir $DATA/sub && echo kept > $DATA/sub/file`, "")
	run("reads", `test "$(cat $DATA/file)" = kept`, "sub")
	dirs, err := filepath.Glob(filepath.Join(f.dir, "claims", f.namespace+"_data_*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("directories of the claim: %v (%v)", dirs, err)
	}
	if err := claims.Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.eventually("its data is gone", func() bool {
		_, err := os.Stat(dirs[0])
		return os.IsNotExist(err)
	})
	f.eventually("its volume is gone", func() bool {
		volumes, err := f.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, volume := range volumes.Items {
			if volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == f.namespace {
				return false
			}
		}
		return true
	})
}

func TestKilledNodeLeavesNothingBehind(t *testing.T) {
	f := newFixture(t)
	node := f.startProcess()
	running := f.create(f.pod("running", `echo ready; (setsid sleep 7105 &) ; while :; do sleep 7105; done`))
	f.says(running, "ready")
	f.reaches("running", corev1.PodRunning)
	waiting := f.pod("waiting", "exit 0")
	waiting.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}}}}
	f.create(waiting)
	f.eventually("it waits", func() bool { return len(f.get("waiting").Status.ContainerStatuses) == 1 })
	if err := node.Process.Signal(sigkill); err != nil {
		t.Fatal(err)
	}
	_ = node.Wait()
	if marked("7105") == 0 {
		t.Fatal("nothing outlived the node; the test shows nothing")
	}
	f.startNode()
	pod := f.reaches("running", corev1.PodFailed)
	if pod.Status.Reason != processnode.ReasonRestarted || terminated(t, pod).ExitCode != 137 {
		t.Errorf("status %+v", pod.Status)
	}
	if left := marked("7105"); left != 0 {
		t.Errorf("%d processes are left", left)
	}
	// What had not begun goes on.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
	if _, err := f.client.CoreV1().Secrets(f.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.reaches("waiting", corev1.PodSucceeded)
}

func TestNodeThatWasTakenForLostIsReadyAgain(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	// What the controller manager writes on a node that was silent for too long.
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}`
	if _, err := f.client.CoreV1().Nodes().Patch(t.Context(), f.node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	f.nodeReady(corev1.ConditionTrue)
	if err := f.client.CoreV1().Nodes().Delete(t.Context(), f.node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.nodeReady(corev1.ConditionTrue)
}

func TestStoppedNodeEndsItsPods(t *testing.T) {
	f := newFixture(t)
	stop := f.startNode()
	pod := f.create(f.pod("running", `trap 'echo saw the signal; exit 1' TERM; echo ready; while :; do sleep 0.05; done`))
	f.says(pod, "ready")
	if err := processnode.Run(t.Context(), processnode.Options{NodeName: "second", Dir: f.dir, RESTConfig: f.config, Executable: f.executable}); err == nil ||
		!strings.Contains(err.Error(), "another process node") {
		t.Errorf("a second node in the directory: %v", err)
	}
	stop()
	if pod = f.reaches("running", corev1.PodFailed); pod.Status.Reason != processnode.ReasonStopped {
		t.Errorf("reason %s", pod.Status.Reason)
	}
	f.says(pod, "saw the signal")
	f.nodeReady(corev1.ConditionFalse)
}

func TestPodStartsPromptly(t *testing.T) {
	f := newFixture(t)
	f.startNode()
	f.create(f.pod("warm", "exit 0"))
	f.reaches("warm", corev1.PodSucceeded)
	created := time.Now()
	pod := f.create(f.pod("timed", `date +%s.%N; exec sleep 7106`))
	f.says(pod, "\n")
	started := time.Since(created)
	f.reaches("timed", corev1.PodRunning)
	t.Logf("from the request to the process %s, to Running %s", started.Round(time.Millisecond), time.Since(created).Round(time.Millisecond))
	// It takes some 50 ms; the bound is for a machine that does much else.
	if started > 30*time.Second {
		t.Errorf("took %s", started)
	}
}

// ends waits until a Pod is through, well or not.
func (f *fixture) ends(name string) *corev1.Pod {
	f.Helper()
	var pod *corev1.Pod
	f.eventually(name+" ends", func() bool {
		found, err := f.client.CoreV1().Pods(f.namespace).Get(f.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			f.Fatalf("%s is gone", name)
		}
		pod = found
		return err == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
	})
	return pod
}
