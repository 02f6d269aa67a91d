// Package flux runs Flux's source-controller and kustomize-controller against a
// cluster, so that cloop is measured against them and tried beneath them. They are
// built from the module tools/flux, by benchmarks and by `make flux`, and kept in the
// user's cache; no other test needs them.
package flux

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"cloop.dev/cloop/internal/gobuild"
)

// Env names a directory with finished programs, source-controller and
// kustomize-controller.
const Env = "CLOOP_FLUX"

// Names of the programs.
const (
	Source    = "source-controller"
	Kustomize = "kustomize-controller"
)

// Flux is its two controllers.
type Flux struct {
	// Dir has the programs, each under its name.
	Dir string
	// Version of both, with its v.
	Version string
	// module is the directory of tools/flux.
	module string
}

// Version is what tools/flux requires; both controllers must have it.
var versionLine = regexp.MustCompile(`(?m)^\s*github\.com/fluxcd/(?:source|kustomize)-controller (v\S+)`)

// Find finds the programs of a repository: those in the directory that CLOOP_FLUX
// names, and else in the user's cache, where they are built if they are missing (some
// fifteen minutes on two cores, told to progress).
func Find(ctx context.Context, repository string, progress io.Writer) (*Flux, error) {
	f := &Flux{module: filepath.Join(repository, "tools", "flux")}
	digest := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(f.module, name))
		if err != nil {
			return nil, fmt.Errorf("read the module that builds Flux: %w", err)
		}
		digest.Write(data)
		if name == "go.mod" {
			found := versionLine.FindAllStringSubmatch(string(data), -1)
			if len(found) != 2 || found[0][1] != found[1][1] {
				return nil, fmt.Errorf("%s requires %d controllers, not two of one version", filepath.Join(f.module, name), len(found))
			}
			f.Version = found[0][1]
		}
	}
	if f.Dir = os.Getenv(Env); f.Dir != "" {
		return f, errors.Join(gobuild.Executable(f.program(Source)), gobuild.Executable(f.program(Kustomize)))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("no cache directory for Flux's programs (set HOME, or %s): %w", Env, err)
	}
	f.Dir = filepath.Join(cache, "cloop", "flux", f.Version+"-"+hex.EncodeToString(digest.Sum(nil))[:12])
	for _, name := range []string{Source, Kustomize} {
		program := gobuild.Program{
			Name: "Flux's " + name + " " + f.Version, Dir: f.module, Package: "github.com/fluxcd/" + name,
			Takes: "about ten minutes", LinkerFlags: "-s -w",
		}
		if err := program.Build(ctx, f.program(name), progress); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *Flux) program(name string) string { return filepath.Join(f.Dir, name) }

// Definitions are the files with the CustomResourceDefinitions of the two controllers.
func (f *Flux) Definitions(ctx context.Context) ([]string, error) {
	var files []string
	for _, name := range []string{Source, Kustomize} {
		command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fluxcd/"+name)
		command.Dir = f.module
		command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		output, err := command.Output()
		if err != nil {
			return nil, fmt.Errorf("find the module of %s: %w", name, err)
		}
		found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(output)), "config", "crd", "bases", "*.yaml"))
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("the module of %s has no definitions: %w", name, err)
		}
		files = append(files, found...)
	}
	return files, nil
}
