package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// link is a Markdown link or image whose target is not a URL.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// code is text that Markdown takes as it stands, such as a pattern.
var code = regexp.MustCompile("`[^`]*`")

// links finds relative links in Markdown documents that lead nowhere.
func links(root string) ([]string, error) {
	names, err := treeFiles(root)
	if err != nil {
		return nil, err
	}
	var problems []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		lines, err := readLines(root, name)
		if err != nil {
			return nil, err
		}
		for i, line := range lines {
			for _, target := range deadLinks(root, name, line) {
				problems = append(problems, fmt.Sprintf("%s:%d: the link to %s leads nowhere", name, i+1, target))
			}
		}
	}
	return problems, nil
}

func deadLinks(root, name, line string) []string {
	var dead []string
	for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(line, ""), -1) {
		target := found[1]
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") || strings.HasPrefix(target, "#") {
			continue
		}
		file, _, _ := strings.Cut(target, "#")
		if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), file)); err != nil {
			dead = append(dead, target)
		}
	}
	return dead
}
