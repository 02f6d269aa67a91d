package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	if err := first.keepState("/theirs"); err != nil {
		t.Fatal(err)
	}
	again := &System{Dir: dir}
	if err := again.keepState(""); err != nil || again.state.Kubeconfig != "/theirs" {
		t.Errorf("a second up stands on %q, %v", again.state.Kubeconfig, err)
	}
	if err := again.keepState("/others"); err == nil || !strings.Contains(err.Error(), "take it down first") {
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
