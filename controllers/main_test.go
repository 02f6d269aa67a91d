package controllers

import (
	"testing"

	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// TestMain takes the shared control plane down at the end. As a replica the test
// binary is a controller instead.
func TestMain(m *testing.M) {
	runReplica()
	clustertest.Main(m)
}
