package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/e2e/cluster"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// local is a work tree whose remote is a bare repository on disk.
func local(t *testing.T) *Repository {
	t.Helper()
	bare := filepath.Join(t.TempDir(), "fleet.git")
	if err := createBare(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	if err := createBare(t.Context(), bare); err != nil {
		t.Fatalf("create it again: %v", err)
	}
	work, err := clone(t.Context(), filepath.Join(t.TempDir(), "work"), bare, "")
	if err != nil {
		t.Fatal(err)
	}
	return work
}

func TestTheSeedPassesItsOwnCheck(t *testing.T) {
	work := local(t)
	files, err := seedFiles("fleet", fleetValues{
		HubURL: "https://hub.example.com", HubCAPin: "sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3w=",
		HubCABundle: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", Namespace: "pools",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := work.Write(files); err != nil {
		t.Fatal(err)
	}
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	report, err := fleet.Check(t.Context(), validator, work.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 || report.Pools == 0 {
		t.Errorf("the seed has %d pools and these problems: %v", report.Pools, report.Problems)
	}
}

func TestARepositoryKeepsItsHistoryAtTheRemote(t *testing.T) {
	work := local(t)
	commit := func(content string) string {
		t.Helper()
		if err := work.Write(map[string][]byte{"pools/gpu.yaml": []byte(content)}); err != nil {
			t.Fatal(err)
		}
		revision, err := work.Commit(t.Context(), "Change")
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	first := commit("maxRunners: 1\n")
	if err := work.Replace("pools/gpu.yaml", "maxRunners: 2", "maxRunners: 3"); err == nil {
		t.Error("replaced a text that is not there")
	}
	if err := work.Replace("pools/gpu.yaml", "maxRunners: 1", "maxRunners: 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Commit(t.Context(), "Raise"); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := work.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := clone(t.Context(), filepath.Join(t.TempDir(), "again"), work.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	content, err := again.Read("pools/gpu.yaml")
	if err != nil || string(content) != "maxRunners: 1\n" {
		t.Errorf("after the revert the remote has %q, %v", content, err)
	}
	if head, err := again.Head(t.Context()); err != nil || head == first {
		t.Errorf("the remote's head is %q, %v: want the revert", head, err)
	}
}

// A server that was just started may not answer yet; a push that follows would
// fail for good.
func TestAWorkTreeIsOpenedOnlyOnceTheRemoteAnswers(t *testing.T) {
	work := local(t)
	if err := work.Write(map[string][]byte{"file": []byte("text")}); err != nil {
		t.Fatal(err)
	}
	if _, err := work.Commit(t.Context(), "Begin"); err != nil {
		t.Fatal(err)
	}
	if err := work.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := clone(t.Context(), work.Dir, work.URL, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(work.URL, work.URL+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := clone(t.Context(), work.Dir, work.URL, ""); err == nil {
		t.Error("opened though the remote is not there")
	}
}

func TestAPartThatEndedIsNotWaitedFor(t *testing.T) {
	s := &System{Dir: t.TempDir()}
	s.processes = cluster.Processes{Dir: s.Dir}
	if _, err := s.processes.Start(hubPart, []string{"/bin/sh", "-c", "echo the disk is full >&2; exit 1"}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.processes.Stop(hubPart); err != nil {
			t.Error(err)
		}
	})
	err := s.await(t.Context(), hubPart, func(context.Context, cluster.Process) error { return errors.New("no answer") })
	if !errors.Is(err, errNever) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("waiting for a part that ended says %v", err)
	}
}

func TestANodeIsReadyOnceItSaysSoAgain(t *testing.T) {
	started := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	renewed := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	}
	if err := ready(node, renewed(started.Add(-time.Second)), started); err == nil {
		t.Error("an earlier process's word counts")
	}
	if err := ready(node, &coordinationv1.Lease{}, started); err == nil {
		t.Error("a node that was never heard of is ready")
	}
	if err := ready(node, renewed(started.Truncate(time.Microsecond)), started); err != nil {
		t.Errorf("heard of in the microsecond of the start: %v", err)
	}
	if err := ready(&corev1.Node{}, renewed(started), started); err == nil {
		t.Error("a node without conditions is ready")
	}
}

// A loss of power can leave a file that was being written empty.
func TestASystemWhoseStateIsLostCanBeTakenDown(t *testing.T) {
	own := filepath.Join(t.TempDir(), "own")
	borrowed := filepath.Join(t.TempDir(), "borrowed")
	for _, dir := range []string{filepath.Join(own, "cluster"), borrowed} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{own, borrowed} {
		if err := os.WriteFile(stateFile(dir), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := prepare(Options{Dir: own}, false); err == nil || !strings.Contains(err.Error(), "cloop dev down --dir "+own) {
		t.Errorf("up says %v", err)
	}
	if err := Down(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("down left %s: %v", own, err)
	}
	// What stands in somebody's cluster is not forgotten.
	if err := Down(t.Context(), borrowed); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("down says %v", err)
	}
	if _, err := os.Stat(borrowed); err != nil {
		t.Error(err)
	}
}

func TestUntilEndsAtOnceWhenWaitingCannotHelp(t *testing.T) {
	calls := 0
	err := until(t.Context(), "the impossible", func(context.Context) error {
		calls++
		return never("no such pool")
	})
	if calls != 1 || !errors.Is(err, errNever) || !strings.Contains(err.Error(), "no such pool") {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

func TestUntilSaysWhatItLastSaw(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := until(ctx, "the pool is Ready", func(context.Context) error {
		if calls++; calls == 3 {
			cancel()
		}
		return fmt.Errorf("state %d", calls)
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "the pool is Ready") || !strings.Contains(err.Error(), "state 2") {
		t.Errorf("until says %v", err)
	}
}

func TestDownWithoutASystemRemovesNothing(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "precious")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

func TestDownRemovesWhatUpMadeAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		state string
		stray bool
		stays bool
	}{
		"a directory that up made":              {`{"ports":{}}`, false, false},
		"a directory that was there":            {`{"ports":{},"found":true}`, false, true},
		"somebody's file in one that up made":   {`{"ports":{}}`, true, true},
		"somebody's file in one that was there": {`{"ports":{},"found":true}`, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "system")
			files := map[string]string{stateName: test.state, "pki/ca.key": "", "work/fleet/a": "", "hub.yaml": "", "logs/hub.log": "", "node/volumes/v": ""}
			if test.stray {
				files["precious"], files["notes/today"] = "", ""
			}
			for name, content := range files {
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := Down(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			for _, entry := range entries {
				left = append(left, entry.Name())
			}
			if (err == nil) != test.stays {
				t.Errorf("the directory: %v, stays is to be %t", err, test.stays)
			}
			if want := []string{"notes", "precious"}; test.stray != slices.Equal(left, want) || !test.stray && len(left) > 0 {
				t.Errorf("left is %v", left)
			}
		})
	}
}

func TestUpTakesNoDirectoryOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	if found, err := openDirectory(dir); !found || err != nil {
		t.Errorf("an empty one: %t, %v", found, err)
	}
	if found, err := openDirectory(filepath.Join(dir, "a", "new one")); found || err != nil {
		t.Errorf("a new one: %t, %v", found, err)
	}
	_, err := Up(t.Context(), Options{Dir: dir, Progress: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "a in it is no part of a system: give a directory of its own with --dir") {
		t.Errorf("one with something in it: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", stateName+".new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "a", "new one")); err != nil {
		t.Fatal(err)
	}
	if _, err := openDirectory(filepath.Join(dir, "a")); err != nil {
		t.Errorf("one in which up was killed at once: %v", err)
	}
}

func TestTroubleWithTheDirectorySaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ dir, says string }{
		"below a file":  {filepath.Join(file, "d"), "give a directory that can be written with --dir"},
		"a long name":   {filepath.Join(dir, strings.Repeat("x", 300)), "give a directory that can be written with --dir"},
		"not writable":  {"/proc/cloop", ""},
		"a file itself": {file, "give a directory that can be written with --dir"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Up(t.Context(), Options{Dir: test.dir, Progress: io.Discard}); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("up says %v, want %q", err, test.says)
			}
		})
	}
	full := advise(dir, fmt.Errorf("write: %w", syscall.ENOSPC))
	if !errors.Is(full, syscall.ENOSPC) || !strings.Contains(full.Error(), "MiB left: free some, or give another directory with --dir") {
		t.Errorf("a full disk: %v", full)
	}
	if err := advise(dir, errNever); !errors.Is(err, errNever) || strings.Contains(err.Error(), "--dir") {
		t.Errorf("another error: %v", err)
	}
}

func TestConfigurationsHoldAnyPath(t *testing.T) {
	for _, path := range []string{"/tmp/a: b #c/it's", "/tmp/Ünïcode “dir”", "- x", "/a\\b", "{{.}}"} {
		var back struct{ CAFile string }
		if err := yaml.Unmarshal([]byte("caFile: "+yamlText(path)+"\n"), &back); err != nil || back.CAFile != path {
			t.Errorf("%q comes back as %q, %v", path, back.CAFile, err)
		}
	}
}

func TestASystemIsChangedByOneCommandAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(dir); err == nil || !strings.Contains(err.Error(), "wait for it") {
		t.Errorf("a second lock: %v", err)
	}
	unlock()
	again, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestASystemStaysOnTheClusterItWasBroughtUpOn(t *testing.T) {
	dir := t.TempDir()
	first := &System{Dir: dir}
	if err := first.keepState("/theirs", false); err != nil {
		t.Fatal(err)
	}
	again := &System{Dir: dir}
	if err := again.keepState("", false); err != nil || again.state.Kubeconfig != "/theirs" {
		t.Errorf("a second up stands on %q, %v", again.state.Kubeconfig, err)
	}
	if err := again.keepState("/others", false); err == nil || !strings.Contains(err.Error(), "take it down first") {
		t.Errorf("another cluster: %v", err)
	}
}

// A controller that loses its Lease ends, and in a local system nothing starts
// it again: a machine that slept would wake up without controllers.
func TestControllersOfALocalSystemDoNotDependOnALease(t *testing.T) {
	system := &System{Dir: t.TempDir()}
	for _, part := range []string{executorPart, fleetPart} {
		if arguments := system.arguments(part); slices.Contains(arguments, "--leader-elect") {
			t.Errorf("the %s is started with %q", part, arguments)
		}
	}
}
