package sandbox

import (
	"fmt"
	"maps"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
)

// Unmet names each requirement that the pool does not meet, with what the pool
// declares instead, in a fixed order. What a pool says nothing of it does not
// have, and does not lack either: a requirement is met by the same word alone.
func Unmet(asked hubv1.Requirements, pool hubv1.Declared) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(asked.Capabilities)) {
		want := asked.Capabilities[name]
		switch have, declared := pool.Capabilities[name]; {
		case !declared:
			out = append(out, fmt.Sprintf("capability %s: %t, of which pool %s declares nothing", name, want, pool.Pool))
		case have != want:
			out = append(out, fmt.Sprintf("capability %s: %t, which pool %s declares to be %t", name, want, pool.Pool, have))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Labels)) {
		want := asked.Labels[name]
		switch have, declared := pool.Labels[name]; {
		case !declared:
			out = append(out, fmt.Sprintf("label %s=%s, which pool %s does not have", name, want, pool.Pool))
		case have != want:
			out = append(out, fmt.Sprintf("label %s=%s, which on pool %s is %s", name, want, pool.Pool, have))
		}
	}
	return out
}
