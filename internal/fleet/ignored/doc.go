// Package ignored says what Flux's source-controller leaves out of the artifact that it
// makes of a Git repository, which is all that Flux's other controllers see of it.
//
// In come the texts of the repository's .sourceignore files and of a source's
// spec.ignore; out goes, for a path, the pattern that leaves it out. It reads no file,
// and how long it takes is bounded.
//
// What counts is what source-controller does, which is not quite what one may expect of
// its documentation (docs/spec/v1/gitrepositories.md, "Excluding files"):
//
//   - It loads every .sourceignore of the work tree, each for its own directory and what
//     lies below, and appends spec.ignore (LoadIgnorePatterns and ReadPatterns of
//     github.com/fluxcd/pkg/sourceignore; reconcileArtifact of source-controller's
//     internal/controller/gitrepository_controller.go). The last pattern that matches
//     decides, so spec.ignore has the last word.
//   - The default exclusions count only where that is no pattern at all. As soon as there
//     is one, anywhere, only those of Git's own files are left (SourceIgnoreFilter of
//     github.com/fluxcd/pkg/artifact/storage). So a .sourceignore replaces the defaults
//     as spec.ignore does, though the documentation says that of spec.ignore only; an
//     empty spec.ignore replaces nothing.
//   - Each file is matched by itself, by the directories that it lies in too. A later
//     pattern takes a file in again also where its directory is left out, unlike Git.
package ignored
