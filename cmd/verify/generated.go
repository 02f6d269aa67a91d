package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// generated copies what is in Git's eyes part of the tree, generates there, and
// names each file that differs from the tree's own.
func generated(root string) ([]string, error) {
	names, err := treeFiles(root)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "cloop-verify-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	before := map[string][]byte{}
	for _, name := range names {
		if before[name], err = copyFile(root, scratch, name); err != nil {
			return nil, err
		}
	}
	command := exec.Command("make", "--no-print-directory", "generate")
	command.Dir = scratch
	if printed, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make generate: %w\n%s", err, printed)
	}
	after, err := readTree(scratch)
	if err != nil {
		return nil, err
	}
	return differences(before, after), nil
}

// treeFiles lists tracked files and new ones that Git does not ignore.
func treeFiles(root string) ([]string, error) {
	command := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	command.Dir = root
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	names := strings.Split(strings.TrimRight(string(output), "\x00"), "\x00")
	return slices.DeleteFunc(names, func(name string) bool {
		// A tracked file that is deleted is listed all the same.
		info, err := os.Lstat(filepath.Join(root, name))
		return err != nil || !info.Mode().IsRegular()
	}), nil
}

func copyFile(from, to, name string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(from, name))
	if err != nil {
		return nil, err
	}
	target := filepath.Join(to, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return nil, err
	}
	return content, os.WriteFile(target, content, info.Mode().Perm())
}

func readTree(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	return files, err
}

func differences(before, after map[string][]byte) []string {
	var problems []string
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, existed := before[name]
		is, exists := after[name]
		switch {
		case !exists:
			problems = append(problems, name+": make generate removes it: run make generate and commit")
		case !existed:
			problems = append(problems, name+": make generate makes it: run make generate and commit")
		case !bytes.Equal(was, is):
			problems = append(problems, fmt.Sprintf("%s:%d: not what make generate writes: run make generate and commit", name, firstDifference(was, is)))
		}
	}
	return problems
}

// firstDifference is the line, from 1, on which two texts part.
func firstDifference(a, b []byte) int {
	line := 1
	for i := 0; i < min(len(a), len(b)) && a[i] == b[i]; i++ {
		if a[i] == '\n' {
			line++
		}
	}
	return line
}

// readLines reads a text file of the tree.
func readLines(root, name string) ([]string, error) {
	content, err := os.ReadFile(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing", name)
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(content), "\n"), "\n"), nil
}
