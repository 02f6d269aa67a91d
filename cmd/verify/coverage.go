package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// coverageFile maps each behaviour that the specification states to the test
// that shows it.
const coverageFile = "docs/spec-coverage.tsv"

// later marks a behaviour that is not built yet, and says why.
const later = "later: "

// coverageHeader names the columns. The last holds tests as
// "path/of/package.TestName", several separated by a space, or later and a
// reason.
const coverageHeader = "id\tsection\tbehaviour\tshown by"

func coverage(root string) ([]string, error) {
	lines, err := readLines(root, coverageFile)
	if err != nil {
		return nil, err
	}
	tests, err := findTests(root)
	if err != nil {
		return nil, err
	}
	claims, err := readLines(root, threatModel)
	if err != nil {
		return nil, err
	}
	return append(checkCoverage(lines, tests), checkClaims(claims, tests)...), nil
}

// threatModel claims what nobody can do; each row of its tables names the tests
// that show it, as coverageFile does.
const threatModel = "docs/threat-model.md"

// shownBy matches a test that a claim names.
var shownBy = regexp.MustCompile("`([a-z0-9/_]+\\.(?:Test|Fuzz)\\w+)`")

func checkClaims(lines []string, tests map[string]bool) []string {
	var problems []string
	for i, line := range lines {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") || strings.HasSuffix(line, "| shown by |") {
			continue
		}
		named := shownBy.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			problems = append(problems, fmt.Sprintf("%s:%d: a claim without a test", threatModel, i+1))
		}
		for _, name := range named {
			if !tests[name[1]] {
				problems = append(problems, fmt.Sprintf("%s:%d: there is no test %s", threatModel, i+1, name[1]))
			}
		}
	}
	return problems
}

func checkCoverage(lines []string, tests map[string]bool) []string {
	var problems []string
	report := func(line int, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s:%d: %s", coverageFile, line+1, fmt.Sprintf(format, args...)))
	}
	if lines[0] != coverageHeader {
		report(0, "the columns are not %q", coverageHeader)
	}
	seen := map[string]bool{}
	for i, line := range lines[1:] {
		number := i + 1
		columns := strings.Split(line, "\t")
		if len(columns) != strings.Count(coverageHeader, "\t")+1 {
			report(number, "%d columns", len(columns))
			continue
		}
		id, shown := columns[0], columns[3]
		if seen[id] {
			report(number, "%s is there twice", id)
		}
		seen[id] = true
		if reason, ok := strings.CutPrefix(shown, later); ok {
			if strings.TrimSpace(reason) == "" {
				report(number, "%s is for later without a reason", id)
			}
			continue
		}
		if shown == "" {
			report(number, "%s names no test and no reason", id)
		}
		for _, test := range strings.Fields(shown) {
			if !tests[test] {
				report(number, "%s names %s, which does not exist", id, test)
			}
		}
	}
	return problems
}

// findTests lists the tests of the tree as "path/of/package.TestName".
func findTests(root string) (map[string]bool, error) {
	names, err := treeFiles(root)
	if err != nil {
		return nil, err
	}
	tests := map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv == nil && isTest(function.Name.Name) {
				tests[path.Dir(filepath.ToSlash(name))+"."+function.Name.Name] = true
			}
		}
	}
	return tests, nil
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example", "Benchmark"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}
