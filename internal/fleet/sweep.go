package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"cloop.dev/cloop/internal/filelock"
)

// repositoryDir is what OpenGit calls the directory of a repository.
var repositoryDir = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Sweep removes the directories below dir that a Git was once opened in and that are
// none of keep, by their names. What somebody else put there stays, and so does what
// a Git of any process uses. It returns what it removed.
func Sweep(dir string, keep []string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for clones that nobody needs: %w", err)
	}
	var problems []error
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if slices.Contains(keep, entry.Name()) || !entry.IsDir() || !holdsRepositories(name) {
			continue
		}
		gone, err := removeUnused(name)
		problems = append(problems, err)
		if gone {
			removed = append(removed, name)
		}
	}
	return removed, errors.Join(problems...)
}

// holdsRepositories says whether a directory has directories of OpenGit's and nothing
// else.
func holdsRepositories(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() || !repositoryDir.MatchString(e.Name()) })
}

// removeOthers removes the directories of other repositories beside one: dir is one
// user's, who reads one repository now and has no use for what he read before.
func removeOthers(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == name || !entry.IsDir() || !repositoryDir.MatchString(entry.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func removeUnused(dir string) (gone bool, err error) {
	file, err := os.Open(dir)
	if err != nil {
		return false, fmt.Errorf("remove a clone that nobody needs: %w", err)
	}
	release, err := filelock.Try(file)
	if errors.Is(err, filelock.ErrHeld) {
		return false, nil
	}
	if err == nil {
		defer release()
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return false, fmt.Errorf("remove a clone that nobody needs: %w", err)
	}
	return true, nil
}

// use keeps Sweep from a directory until the file is closed, which is at the latest
// when nobody refers to it any more.
func use(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := filelock.Share(file); err != nil && !errors.Is(err, filelock.ErrHeld) {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// isFull says whether a disk, or somebody's share of it, has no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// unstored is a failure to write below the directory.
func (g *Git) unstored(doing string, err error) error {
	remedy := "make " + g.dir + " writable"
	if isFull(err) {
		remedy = "make room where " + g.dir + " is; it goes on by itself then"
	}
	return sourceError(doing, g.url, err, remedy)
}
