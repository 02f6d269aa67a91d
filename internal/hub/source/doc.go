// Package source looks at the repositories of projects for the hub: which
// commit a ref stands for now, and what .cloop/sandbox.yaml asks of runners at
// that commit.
//
// In goes a project's remote and a ref; out comes a store.Source, or the refusal
// of a ref that is not there or a file that is not valid. A remote that cannot
// be read is neither: the hub may be kept from it where runners are not, so the
// requirements are unknown, which is never taken for none. Looks are bounded in
// size, time and number, and what was read of a commit is kept in memory,
// because it cannot change. This package holds no credential and must not be
// called inside a transaction.
package source
