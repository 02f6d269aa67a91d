// Command verify checks that what is derived in this repository is current, and
// that its documents tell the truth where a program can know:
//
//   - generated: `make generate` in a copy of the tree changes nothing;
//   - coverage: docs/spec-coverage.tsv is well formed, and every test that it or
//     docs/threat-model.md names exists;
//   - links: every relative link in a Markdown document leads to a file.
//
// It runs in the repository's root, prints every problem, and never writes
// there. Without arguments it checks everything.
package main

import (
	"fmt"
	"os"
	"slices"
)

// check finds problems in the tree at root, one line each.
type check struct {
	name string
	run  func(root string) (problems []string, err error)
}

var checks = []check{
	{"generated", generated},
	{"coverage", coverage},
	{"links", links},
}

func main() {
	wanted := os.Args[1:]
	for _, name := range wanted {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			fmt.Fprintf(os.Stderr, "verify: there is no check %q\n", name)
			os.Exit(2)
		}
	}
	found := 0
	for _, c := range checks {
		if len(wanted) > 0 && !slices.Contains(wanted, c.name) {
			continue
		}
		problems, err := c.run(".")
		if err != nil {
			fmt.Fprintf(os.Stderr, "verify %s: %v\n", c.name, err)
			os.Exit(2)
		}
		for _, problem := range problems {
			fmt.Println(problem)
		}
		found += len(problems)
	}
	if found > 0 {
		os.Exit(1)
	}
}
