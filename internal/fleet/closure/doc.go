// Package closure finds what an overlay of a fleet repository is made of, without
// rendering it: every path that what is rendered may depend on.
//
// In come the tree of a commit or of a directory, and the overlay's path; out go the
// paths, and a digest that is equal for commits that render the same. It reads
// nothing but kustomizations and what configures them, follows no link out of the
// repository, and is bounded in what it reads; beyond that it says that it does not
// know.
package closure
