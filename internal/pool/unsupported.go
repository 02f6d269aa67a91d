package pool

import "cloop.dev/cloop/apis/v1alpha1"

// Unsupported says what a pool's spec asks for and this version does not do, one
// sentence each. It is the one place to take a field from once it is built.
func Unsupported(xpool *v1alpha1.ExecutorPool) []string {
	var fields []string
	if p := xpool.Spec.Persistence; p != nil && p.Enabled {
		fields = append(fields, "spec.persistence: no volumes are kept, and every runner starts with nothing")
	}
	return fields
}
