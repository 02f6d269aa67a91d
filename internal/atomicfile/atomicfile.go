// Package atomicfile replaces a whole file at once.
//
// It takes a name, what the file is to hold and its mode. Readers, and whoever
// starts after a crash of the process, find the old content or the new and
// never a part. Write waits for the disk, so that this holds for a crash of the
// machine too; WriteUnsynced does not. Neither makes directories.
package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// Write replaces the file, or makes it where there is none, with the mode less
// the process's umask. Its directory has to exist; name with ".new" behind it is
// used on the way. Two writers of one file must not run at the same time. A
// machine that loses its power right after may have the old content.
func Write(name string, data []byte, mode fs.FileMode) error {
	return write(name, data, mode, (*os.File).Sync)
}

// WriteUnsynced is Write for what is written often and means nothing once the
// machine was down: a machine that loses its power may have neither content,
// but an empty file or zeros. Its readers have to allow for that.
func WriteUnsynced(name string, data []byte, mode fs.FileMode) error {
	return write(name, data, mode, func(*os.File) error { return nil })
}

func write(name string, data []byte, mode fs.FileMode, settle func(*os.File) error) error {
	temporary := name + ".new"
	err := fill(temporary, data, mode, settle)
	if err == nil {
		err = os.Rename(temporary, name)
	}
	if err != nil {
		// On a full disk what was written only takes room.
		if left := os.Remove(temporary); left != nil && !errors.Is(left, fs.ErrNotExist) {
			err = errors.Join(err, left)
		}
	}
	return err
}

func fill(name string, data []byte, mode fs.FileMode, settle func(*os.File) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err = file.Write(data); err == nil {
		err = settle(file)
	}
	return errors.Join(err, file.Close())
}
