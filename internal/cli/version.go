package cli

import (
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/fleet"
)

// version is set by the linker for a release: -X …/internal/cli.version=1.2.3.
var version string

// build identifies a binary.
type build struct {
	// Version is the release, or "edge-" and the commit for another build.
	Version string `json:"version"`
	// Commit is the full revision, with "+changes" where the tree had some.
	Commit string `json:"commit,omitempty"`
	// Go that it was compiled with.
	Go string `json:"go"`
	// Platform that it runs on, as OS/ARCHITECTURE.
	Platform string `json:"platform"`
}

// buildVersion says what this binary was built from.
func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	changed := false
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				b.Commit = setting.Value
			case "vcs.modified":
				changed = setting.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "edge"
		if b.Commit != "" {
			b.Version += "-" + fleet.Short(b.Commit)
		}
	}
	if changed {
		b.Commit += "+changes"
	}
	return b
}

func (a *app) newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := buildVersion()
			return a.show(b, func(w io.Writer) {
				say(w, "cloop %s (%s, %s)\n", b.Version, b.Go, b.Platform)
			})
		},
	}
}
