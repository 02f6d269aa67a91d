package removal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// All removes a directory with all that is in it, also where a run has taken the
// right to that from its own directories, as Go does with those of its module
// cache. A directory that is not there is no error.
func All(dir string) error {
	first := os.RemoveAll(dir)
	if !errors.Is(first, fs.ErrPermission) {
		return first
	}
	// A directory is opened before it is read: WalkDir calls first.
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(name, 0o700) //nolint:gosec // a directory that is to go
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}
