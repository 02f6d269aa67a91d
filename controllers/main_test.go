package controllers

import (
	"testing"

	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// TestMain takes the shared control plane down at the end.
func TestMain(m *testing.M) { clustertest.Main(m) }
