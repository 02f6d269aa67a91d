// Command docgen writes the parts of docs/reference that come from Go code: the
// command line, and the reasons and codes with what to do about each.
//
// In: the code it is compiled with, and the source of apis/ below the
// repository's folder (-C, default "."). Out: commands.md and reasons.md,
// always the same for the same code.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"cloop.dev/cloop/internal/cli"
)

func main() {
	root := flag.String("C", ".", "the repository's `folder`")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintf(os.Stderr, "docgen: %v\n", err)
		os.Exit(1)
	}
}

func run(root string) error {
	var commands bytes.Buffer
	cli.WriteReference(&commands)
	reasons, err := reasonsPage(filepath.Join(root, "apis"))
	if err != nil {
		return err
	}
	folder := filepath.Join(root, "docs", "reference")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"commands.md": commands.Bytes(), "reasons.md": reasons} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
