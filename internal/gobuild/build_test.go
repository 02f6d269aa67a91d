package gobuild

import (
	"os"
	"strings"
	"testing"
)

func TestCounterTellsPackagesFromProblems(t *testing.T) {
	counter := newCounter(3, os.Stderr)
	said := counter.follow(strings.NewReader("k8s.io/api/core/v1\nnet/http\n# k8s.io/api/core/v1\nx.go:3:1: undefined: y\n"))
	counter.stop()
	if counter.done != 2 || !strings.Contains(said, "undefined: y") {
		t.Errorf("counted %d, said %q", counter.done, said)
	}
}
