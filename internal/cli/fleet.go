package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

func (a *app) newFleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "The fleet repository: what Git says of every pool, and what is true",
	}
	cmd.AddCommand(
		a.newFleetCheckCommand(),
		a.newFleetDriftCommand(),
		a.newFleetStatusCommand(),
		a.newFleetReconcileCommand(),
	)
	return cmd
}

func (a *app) newFleetCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [PATH…]",
		Short: "Check a fleet repository, offline",
		Long: `Build every kustomization that no other refers to, or the PATHs, and check each
document as the API server would, and all of them together. Nothing is reached
over the network and no credential is needed. Every problem is reported at the
line of the source file that it comes from.

Exit code 0: nothing is wrong; 1: something is; 2: it could not be checked,
also where a PATH has no document or nothing is of cloop.dev. A repository
without a pool, such as one of PoolSyncs alone, is checked like any other and
the summary says that there is none.`,
		Example: `  cloop fleet check
  cloop fleet check clusters/eu -o text,json=report.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := locate(args)
			if err != nil {
				return err
			}
			validator, err := schemas.NewValidator()
			if err != nil {
				return fmt.Errorf("load the schemas: %w", err)
			}
			report, err := fleet.Check(cmd.Context(), validator, at.root, at.paths...)
			if err != nil {
				return fmt.Errorf("check %s: %w", at.root, err)
			}
			unchecked := at.unchecked(report)
			if err := a.show(checked{OK: !report.Failed() && unchecked == nil, Report: report}, func(w io.Writer) { printReport(w, at, report) }); err != nil {
				return err
			}
			if report.Failed() {
				return &No{}
			}
			return unchecked
		},
	}
}

// unchecked is the error of a check that had nothing to look at, so that a
// misspelt path in a pipeline does not pass for a sound repository.
func (l location) unchecked(report *fleet.Report) error {
	switch unfound := report.Unfound(); {
	case len(unfound) > 0:
		return fmt.Errorf("nothing to check in %s: there is no kustomization and no YAML document; name a directory or file that has some", l.shown(unfound))
	case report.Judged == 0:
		looked := make([]string, 0, len(report.Roots))
		for _, root := range report.Roots {
			looked = append(looked, root.Path)
		}
		return fmt.Errorf("nothing was checked: no document in %s is of %s; name the directory that has the pools", l.shown(looked), v1alpha1.Group)
	}
	return nil
}

// shown lists paths of the repository, the first few where there are many.
func (l location) shown(paths []string) string {
	const most = 5
	var shown []string
	for _, path := range paths[:min(len(paths), most)] {
		shown = append(shown, l.fromHere(path))
	}
	if more := len(paths) - most; more > 0 {
		shown = append(shown, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// checked is what `fleet check` shows as JSON or YAML.
type checked struct {
	OK bool `json:"ok"`
	*fleet.Report
}

func printReport(w io.Writer, at location, report *fleet.Report) {
	failures := 0
	for _, problem := range report.Problems {
		if problem.Severity == schemas.SeverityError {
			failures++
		}
		problem.File = at.fromHere(problem.File)
		text := problem.String()
		if problem.Severity == schemas.SeverityWarning {
			text = "warning: " + text
		}
		fmt.Fprintf(w, "%s [%s]\n", text, problem.Rule)
	}
	counted := fmt.Sprintf("%s, %s, %s", count(len(report.Roots), "root"), count(report.Documents, "document"), count(report.Pools, "pool"))
	switch {
	case len(report.Problems) > 0:
	case at.unchecked(report) != nil:
		fmt.Fprintln(w, counted)
		return
	case report.Pools == 0:
		fmt.Fprintf(w, "%s: all is well, but none of them is a pool\n", counted)
		return
	default:
		fmt.Fprintf(w, "%s: all is well\n", counted)
		return
	}
	fmt.Fprintf(w, "%s: %s, %s\n", counted, count(failures, "error"), count(len(report.Problems)-failures, "warning"))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// location is a repository on disk and paths in it.
type location struct {
	// root is absolute: the work tree that holds the paths, or the closest
	// thing to one.
	root string
	// paths are slash-separated and relative to root; none means all of it.
	paths []string
}

// locate finds the repository that arguments lie in: an overlay refers to
// files beside itself, so the whole work tree must be readable.
func locate(arguments []string) (location, error) {
	if len(arguments) == 0 {
		arguments = []string{"."}
	}
	var at location
	for _, argument := range arguments {
		path, err := filepath.Abs(argument)
		if err != nil {
			return at, err
		}
		// Git and kustomize resolve links; comparing must too.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return at, fmt.Errorf("read %s: %w", argument, errors.Unwrap(err))
		}
		if at.root == "" {
			if at.root, err = workTree(path); err != nil {
				return at, err
			}
		}
		relative, err := filepath.Rel(at.root, path)
		if err != nil || !filepath.IsLocal(relative) {
			return at, fmt.Errorf("%s lies outside %s: check one repository at a time", argument, at.root)
		}
		at.paths = append(at.paths, filepath.ToSlash(relative))
	}
	if slices.Contains(at.paths, ".") {
		at.paths = nil
	}
	return at, nil
}

// workTree is the closest directory at or above a path with a .git, or, where
// there is none, the working directory if it holds the path, or the path's own
// directory.
func workTree(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	directory := path
	if !info.IsDir() {
		directory = filepath.Dir(path)
	}
	for parent := directory; ; parent = filepath.Dir(parent) {
		_, err := os.Lstat(filepath.Join(parent, ".git"))
		if err == nil {
			return parent, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if parent == filepath.Dir(parent) {
			break
		}
	}
	if here, err := os.Getwd(); err == nil {
		if here, err = filepath.EvalSymlinks(here); err == nil && within(here, directory) {
			return here, nil
		}
	}
	return directory, nil
}

func within(directory, path string) bool {
	return path == directory || strings.HasPrefix(path, directory+string(filepath.Separator))
}

// fromHere spells a path in the repository as seen from the working directory,
// so that it can be clicked; in the repository's own terms where it lies
// elsewhere.
func (l location) fromHere(file string) string {
	here, err := os.Getwd()
	if file == "" || err != nil {
		return file
	}
	if here, err = filepath.EvalSymlinks(here); err != nil || !within(l.root, here) {
		return file
	}
	relative, err := filepath.Rel(here, filepath.Join(l.root, filepath.FromSlash(file)))
	if err != nil {
		return file
	}
	return relative
}
