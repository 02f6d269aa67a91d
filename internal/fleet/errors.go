package fleet

import (
	"errors"
	"fmt"
	"strings"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

// What errors of this package are, for errors.Is. Whoever gets one changes
// nothing: what could not be read says nothing about what ought to be.
var (
	// ErrSource is anything about reaching or reading a repository.
	ErrSource = errors.New("the repository cannot be read")
	// ErrPathNotFound is a path that the repository does not have.
	ErrPathNotFound = errors.New("path not found")
	// ErrUnverified is a revision that nobody known has signed as was asked for.
	ErrUnverified = errors.New("the revision is not verified")
	// ErrBuild is a path that cannot be rendered.
	ErrBuild = errors.New("build failed")
	// ErrUnrendered is a path of which what somebody else makes of it is not known.
	ErrUnrendered = errors.New("the path has no kustomization, and what is made of it is not known here: add a kustomization.yaml that lists its files")
)

var errTooLarge = errors.New("the repository is too large")

// fault is an error of a kind, with what was being done to what and what to do; the
// cause may say the last by itself.
type fault struct {
	kind   error
	doing  string
	cause  error
	remedy string
}

// maxCause bounds how much of a cause is shown, in bytes: a server may answer
// with a whole page.
const maxCause = 2048

func (f *fault) Error() string {
	// It may quote a server or a committer, and ends up on terminals.
	cause := printable.Line(secret.Redact(strings.Join(strings.Fields(f.cause.Error()), " ")))
	cause = strings.TrimRight(printable.Clip(cause, maxCause), ": ")
	if f.remedy == "" {
		return secret.Redact(f.doing) + ": " + cause
	}
	return fmt.Sprintf("%s: %s: %s", secret.Redact(f.doing), cause, f.remedy)
}

// Advises says whether the error's own words end with what to do.
func (f *fault) Advises() bool { return f.remedy != "" }

func (f *fault) Unwrap() []error { return []error{f.kind, f.cause} }

func sourceError(doing, url string, cause error, remedy string) error {
	return &fault{kind: ErrSource, doing: doing + " " + url, cause: cause, remedy: remedy}
}

func pathError(path string, cause error) error {
	return &fault{kind: ErrPathNotFound, doing: "build " + path, cause: cause,
		remedy: "correct the path, or commit an overlay there"}
}

func bareError(path string) error {
	return &fault{kind: ErrPathNotFound, doing: "check " + path, cause: errors.New("it is a bare repository, without files"),
		remedy: "clone it and check the clone"}
}

func buildError(path string, cause error) error {
	return &fault{kind: ErrBuild, doing: "build " + path, cause: cause,
		remedy: "run `cloop fleet check` on the repository and commit a fix"}
}
