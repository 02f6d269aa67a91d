// Package diff says what a change of a fleet repository does.
//
// In come a work tree with its Git repository, a revision to compare with
// (Compare), and, where somebody has read them, the hub and clusters as they are
// now (Report.AddImpact). Out comes a Report: for each overlay which objects are
// added, removed, renamed or changed, field by field with a class, and what that
// means for runners, runs and volumes that there are. The verdict, every output
// and the exit code come from that one value.
//
// Both revisions are rendered as `fleet check` renders them. The base is read
// from Git's objects into a temporary directory; the work tree and the index are
// only read. What did not change is not rendered: closure.go says how that is
// known. It never writes to a repository, a hub or a cluster, never reaches the
// network, and shows no value of a field that may hold a secret.
package diff
