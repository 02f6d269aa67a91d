//go:build race

package store_test

import "flag"

// The race detector makes SQLite in Go about ten times slower, and the order of
// transactions is the same with and without it: fewer orders are tried with it.
func init() {
	_ = flag.Set("rapid.checks", "20")
	crashAfter = 30
}
