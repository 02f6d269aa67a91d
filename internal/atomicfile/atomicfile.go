// Package atomicfile replaces a whole file at once.
//
// It takes a name, what the file is to hold and its mode. Readers, and whoever
// starts after a crash of the process, find the old content or the new and
// never a part. It never makes directories, and it does not wait for the disk:
// a machine that loses its power may lose the new content.
package atomicfile

import (
	"io/fs"
	"os"
)

// Write replaces the file, or makes it where there is none, with the mode less
// the process's umask. Its directory has to exist; name with ".new" behind it is
// used on the way. Two writers of one file must not run at the same time.
func Write(name string, data []byte, mode fs.FileMode) error {
	temporary := name + ".new"
	if err := os.WriteFile(temporary, data, mode); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}
