package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/fleet"
)

func (a *app) newFleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "The fleet repository: what Git says of every pool, and what is true",
	}
	cmd.AddCommand(
		a.newFleetInitCommand(),
		a.newFleetImportCommand(),
		a.newFleetCheckCommand(),
		a.newFleetDiffCommand(),
		a.newFleetDriftCommand(),
		a.newFleetStatusCommand(),
		a.newFleetStatusCheckCommand(),
		a.newFleetReconcileCommand(),
	)
	return cmd
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
	whole := len(arguments) == 0
	if whole {
		arguments = []string{"."}
	}
	var at location
	for _, argument := range arguments {
		path, err := resolved(argument)
		if err != nil {
			return at, fmt.Errorf("read %s: %w", argument, errors.Unwrap(err))
		}
		if at.root == "" {
			if at.root, err = workTree(path); err != nil {
				return at, err
			}
		}
		relative, ok := fleet.Inside(at.root, path)
		if !ok {
			return at, fmt.Errorf("%s lies outside %s: check one repository at a time", argument, at.root)
		}
		at.paths = append(at.paths, relative)
	}
	if whole || slices.Contains(at.paths, ".") {
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
		if here, err = filepath.EvalSymlinks(here); err == nil {
			if _, ok := fleet.Inside(here, directory); ok {
				return here, nil
			}
		}
	}
	return directory, nil
}

// resolved is a path absolute and without links: Git and kustomize follow them, and
// whoever compares paths must too.
func resolved(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// fromHere spells a path in the repository as seen from the working directory,
// so that it can be clicked; in the repository's own terms where it lies
// elsewhere.
func (l location) fromHere(file string) string {
	here, err := os.Getwd()
	if file == "" || err != nil {
		return file
	}
	if here, err = filepath.EvalSymlinks(here); err != nil {
		return file
	}
	if _, ok := fleet.Inside(l.root, here); !ok {
		return file
	}
	relative, err := filepath.Rel(here, filepath.Join(l.root, filepath.FromSlash(file)))
	if err != nil {
		return file
	}
	return relative
}
