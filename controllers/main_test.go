package controllers

import (
	"context"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// TestMain takes the shared control plane down at the end. As a replica the test
// binary is a controller instead. Without a logger controller-runtime prints a
// stack instead, in the middle of whatever test runs by then.
func TestMain(m *testing.M) {
	runReplica()
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(ended{m})
}

// atEnd is done after the last test.
var atEnd []func()

type ended struct{ m *testing.M }

// Run is testing.M's.
func (e ended) Run() int {
	code := e.m.Run()
	for _, do := range atEnd {
		do()
	}
	return code
}

// start runs a manager until stop is called, which may be called again.
func start(t testing.TB, mgr manager.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
