// Package clustertest gives tests a real Kubernetes API: one control plane for
// each test binary, started by the first test that asks for it.
//
// A package that uses it needs
//
//	func TestMain(m *testing.M) { clustertest.Main(m) }
//
// which takes the control plane down at the end. A watchdog does so too when
// the test binary is killed or panics. Tests share the control plane, so each
// works in a Namespace of its own and must not count objects across them.
package clustertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/e2e/watchdog"
)

// startTimeout allows for the first build of Kubernetes on a slow machine, and
// downTimeout for a machine that is busy with other tests.
const (
	startTimeout = 40 * time.Minute
	downTimeout  = time.Minute
)

// shared is the test binary's control plane.
var shared struct {
	sync.Mutex // guards what follows
	underMain  bool
	dir        string
	cluster    *cluster.Cluster
	options    cluster.Options
	err        error
	watchdog   *watchdog.Watchdog
}

// Option changes what Start starts.
type Option func(*cluster.Options)

// WithScheduler adds kube-scheduler, for tests that have a node.
func WithScheduler() Option {
	return func(o *cluster.Options) { o.Parts = cluster.Full }
}

// WithAuditLog has the API server write a line of JSON for each request into
// AuditLog(t).
func WithAuditLog() Option {
	return func(o *cluster.Options) { o.AuditLog = filepath.Join(o.Dir, "audit.log") }
}

// Main runs a package's tests, a *testing.M or what wraps one, and takes the
// control plane down. It does not return.
func Main(m interface{ Run() int }) {
	watchdog.Run(remove)
	shared.Lock()
	shared.underMain = true
	shared.Unlock()
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "take the control plane down:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Start returns the test binary's control plane: etcd, API server and
// controller manager, and what the options add. A later call may add parts,
// which restarts those that it changes, so tests that run in parallel ask for
// the same. With -short the test is skipped.
func Start(t testing.TB, options ...Option) *cluster.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane; not with -short")
	}
	shared.Lock()
	defer shared.Unlock()
	if !shared.underMain {
		t.Fatal("clustertest needs `func TestMain(m *testing.M) { clustertest.Main(m) }` in this package")
	}
	if shared.err != nil {
		t.Fatalf("the control plane did not start for an earlier test: %v", shared.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := start(ctx, options); err != nil {
		shared.err = err
		t.Fatalf("start a control plane: %v", err)
	}
	return shared.cluster
}

// AuditLog is the file of WithAuditLog.
func AuditLog(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.options.AuditLog == "" {
		t.Fatal("no audit log: start the control plane with clustertest.WithAuditLog()")
	}
	return shared.options.AuditLog
}

func start(ctx context.Context, options []Option) error {
	wanted := shared.options
	if shared.cluster == nil {
		binaries, err := cluster.FindBinaries(ctx, os.Stderr)
		if err != nil {
			return err
		}
		if shared.dir, err = os.MkdirTemp("", "cloop-cluster-"); err != nil {
			return err
		}
		// Down removes only the cluster's own entries of this directory.
		wanted = cluster.Options{Dir: filepath.Join(shared.dir, "cluster"), Binaries: binaries, Parts: cluster.WithoutScheduler}
		if shared.watchdog, err = watchdog.Start(shared.dir); err != nil {
			return err
		}
	}
	for _, option := range options {
		option(&wanted)
	}
	if shared.cluster != nil && wanted.Parts == shared.options.Parts && wanted.AuditLog == shared.options.AuditLog {
		return nil
	}
	started, err := cluster.Up(ctx, wanted)
	if err != nil {
		return err
	}
	shared.cluster, shared.options = started, wanted
	return nil
}

// remove takes the control plane of a directory down.
func remove(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), downTimeout)
	defer cancel()
	if err := cluster.Down(ctx, filepath.Join(dir, "cluster")); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// stop takes the control plane down by letting the watchdog go.
func stop() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.watchdog == nil {
		if shared.dir != "" {
			return os.RemoveAll(shared.dir)
		}
		return nil
	}
	return shared.watchdog.Release()
}
