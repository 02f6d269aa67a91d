package hub

import (
	"fmt"
	"path/filepath"

	"cloop.dev/cloop/internal/hub/source"
)

// newSources makes what looks at projects' repositories.
func newSources(o Options) (*source.Reader, error) {
	certificates, err := o.Projects.certificates()
	if err != nil {
		return nil, err
	}
	reader, err := source.New(source.Options{
		Dir: filepath.Join(o.DataDir, "git", ".projects"), Certificates: certificates, Hosts: o.Projects.Hosts, Clock: o.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("look at projects' repositories: %w", err)
	}
	return reader, nil
}
