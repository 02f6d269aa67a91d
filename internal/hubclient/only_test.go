package hubclient_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// bases are the parts of the hub's API.
var bases = []string{"/api/v1/", "/pool/v1/", "/runner/v1/"}

// What asks the hub by hand escapes differently, follows redirects with a
// credential, or takes any answer for the hub's: this package is the API's only
// client.
func TestNobodyElseWritesAddressesOfTheHub(t *testing.T) {
	const root = "../.."
	allowed := map[string]string{
		"internal/hub/api": "it serves them",
		"internal/forge":   "Gitea's API begins like ours",
	}
	looked := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if entry.IsDir() {
			if allowed[filepath.ToSlash(name)] != "" || name == "internal/hubclient" || strings.HasPrefix(entry.Name(), ".") && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		looked++
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if text, is := node.(*ast.BasicLit); is && text.Kind == token.STRING {
				for _, base := range bases {
					if strings.Contains(text.Value, base) {
						t.Errorf("%s: %s is an address of the hub's API: use package hubclient", files.Position(text.Pos()), text.Value)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil || looked < 100 {
		t.Fatalf("%d files were looked at: %v", looked, err)
	}
}
