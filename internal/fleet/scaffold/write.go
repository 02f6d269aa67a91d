package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// OccupiedError names files that are there already.
type OccupiedError struct {
	Paths []string
	// NoDirectories says that the paths are of directories, and what is there is none.
	NoDirectories bool
}

// Error names the first few.
func (e *OccupiedError) Error() string {
	shown := e.Paths[:min(len(e.Paths), 5)]
	text := strings.Join(shown, ", ")
	if more := len(e.Paths) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	are, them := "are", "them"
	if len(e.Paths) == 1 {
		are, them = "is", "it"
	}
	if e.NoDirectories {
		return fmt.Sprintf("%s %s there and no directory, which a fleet repository needs there; nothing was written: rename %s, or name another directory", text, are, them)
	}
	return fmt.Sprintf("%s %s there already; nothing was written: name an empty directory, or move %s away", text, are, them)
}

// Files whose name nothing depends on, or that can name another.
const (
	Guide      = "README.md"
	GitLabJobs = ".gitlab-ci.yml"
	gitHubJobs = ".github/workflows/fleet.yaml"
)

// besides says under which name one of these is written where there is one already.
var besides = map[string]string{
	Guide:      "FLEET.md",
	GitLabJobs: ".gitlab/cloop.yml",
	gitHubJobs: ".github/workflows/cloop-fleet.yaml",
}

// Write writes the files into a directory, which it makes where there is none, and
// returns which it wrote, in order, and which were there and stay as they were: name →
// where ours is. It writes all or, with an error, nothing.
func Write(dir string, files map[string][]byte) (written []string, beside map[string]string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make the repository's directory: %w", err)
	}
	// No link that lies in it may lead out of it.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open the repository's directory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, beside = stepAside(root, files)
	names := slices.Sorted(maps.Keys(files))
	if obstacles := obstacles(root, names); len(obstacles) > 0 {
		return nil, nil, &OccupiedError{Paths: obstacles, NoDirectories: true}
	}
	var occupied []string
	for _, name := range names {
		switch _, err := root.Lstat(filepath.FromSlash(name)); {
		case errors.Is(err, fs.ErrNotExist):
			written = append(written, name)
		default:
			occupied = append(occupied, name)
		}
	}
	if len(occupied) > 0 {
		return nil, nil, &OccupiedError{Paths: occupied}
	}
	var made []string
	for _, name := range written {
		created, err := write(root, name, files[name])
		made = append(made, created...)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("write %s: %w", name, err), undo(root, made))
		}
	}
	return written, beside, nil
}

// stepAside gives those of the files another name whose place is taken and who need
// not have it.
func stepAside(root *os.Root, files map[string][]byte) (placed map[string][]byte, beside map[string]string) {
	placed, beside = maps.Clone(files), map[string]string{}
	for name, other := range besides {
		info, err := root.Lstat(filepath.FromSlash(name))
		if content, ours := files[name]; ours && err == nil && !info.IsDir() {
			delete(placed, name)
			placed[other], beside[name] = content, other
		}
	}
	return placed, beside
}

// obstacles are what is there and no directory where one of the files needs one.
func obstacles(root *os.Root, names []string) (found []string) {
	for _, name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			// A link may lead to a directory.
			if info, err := root.Stat(filepath.FromSlash(dir)); err == nil && !info.IsDir() {
				found = append(found, dir)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// write makes one file and the directories above it, and returns what it made.
func write(root *os.Root, name string, content []byte) (made []string, err error) {
	for at, rest := "", path.Dir(name); rest != "." && rest != ""; {
		first, more, _ := strings.Cut(rest, "/")
		at, rest = path.Join(at, first), more
		switch err := root.Mkdir(filepath.FromSlash(at), 0o755); {
		case err == nil:
			made = append(made, at)
		case !errors.Is(err, fs.ErrExist):
			return made, err
		}
	}
	mode := fs.FileMode(0o644)
	if bytes.HasPrefix(content, []byte("#!")) {
		mode = 0o755
	}
	file, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return made, err
	}
	made = append(made, name)
	_, err = file.Write(content)
	return made, errors.Join(err, file.Close())
}

// undo removes what was made, the last first.
func undo(root *os.Root, made []string) error {
	var failed []error
	for _, name := range slices.Backward(made) {
		if err := root.Remove(filepath.FromSlash(name)); err != nil {
			failed = append(failed, fmt.Errorf("remove it again: %w", err))
		}
	}
	return errors.Join(failed...)
}
