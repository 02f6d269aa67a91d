package dev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// made are the entries of a system's directory that are Up's. The state comes
// last, because it is what says that the directory is Up's at all.
var made = []string{
	"run", "logs", "pki", "git", "hub", "hub.yaml", "hub.yaml.new", "cluster", "kubeconfig", "cache", "node", "work",
	stateName + ".new", stateName,
}

const stateName = "system.json"

// openDirectory makes the directory of a system, or takes one that is empty or a
// system's already: in any other, Down could not tell what is whose. found says
// that it was there.
func openDirectory(dir string) (found bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, os.MkdirAll(dir, 0o700)
	case err != nil:
		return false, err
	}
	if _, err := os.Lstat(stateFile(dir)); err == nil {
		return true, nil
	}
	for _, entry := range entries {
		// A crash before the first state leaves its beginning.
		if entry.Name() != stateName+".new" {
			return true, fmt.Errorf("%s is not empty, and %s in it is no part of a system: give a directory of its own with --dir", dir, entry.Name())
		}
	}
	return true, nil
}

// removeMade removes what Up made in a directory, and the directory where Up
// made that too and nothing else is in it.
func removeMade(dir string, found bool) error {
	for _, name := range made {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if found {
		return nil
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EEXIST) {
		return err
	}
	return nil
}

// scarce is how little room makes a system fail: its databases alone take more.
const scarce = 64 << 20

// advise adds to an error what the person can do about the directory, where that
// is what is wrong.
func advise(dir string, err error) error {
	is := func(kinds ...error) bool {
		return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
	}
	left, known := room(dir)
	switch {
	case err == nil:
		return nil
	case is(syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: give a directory that can be written with --dir", err)
	case is(syscall.ENOSPC, syscall.EDQUOT), known && left < scarce:
		return fmt.Errorf("%w: the file system of %s has %d MiB left: free some, or give another directory with --dir", err, dir, left>>20)
	}
	return err
}

// room is what the file system of a directory, or of the closest one above it
// that is there, has left, in bytes.
func room(dir string) (left int64, known bool) {
	for {
		var stat unix.Statfs_t
		err := unix.Statfs(dir, &stat)
		if err == nil {
			return int64(stat.Bavail) * stat.Bsize, true
		}
		parent := filepath.Dir(dir)
		if parent == dir || !errors.Is(err, fs.ErrNotExist) {
			return 0, false
		}
		dir = parent
	}
}

// yamlText is a text as YAML has it, whatever is in it.
func yamlText(text string) string {
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}
