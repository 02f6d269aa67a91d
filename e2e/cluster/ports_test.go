package cluster_test

import (
	"slices"
	"testing"

	"cloop.dev/cloop/e2e/cluster"
)

func TestPortsAreDifferentAndBelowTheEphemeralRange(t *testing.T) {
	const firstEphemeral = 32768
	ports, err := cluster.PickPorts(50)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(slices.Compact(slices.Clone(ports))) != 50 || ports[0] < 1024 || ports[49] >= firstEphemeral {
		t.Errorf("the ports are %v", ports)
	}
}
