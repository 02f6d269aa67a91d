package hub

import (
	"fmt"
	"path/filepath"

	"cloop.dev/cloop/internal/hub/source"
)

// projectsDir is where, beside the clones of syncs, files of projects are fetched.
const projectsDir = ".projects"

// newSources makes what looks at projects' repositories.
func newSources(o Options) (*source.Reader, error) {
	certificates, err := o.Projects.certificates()
	if err != nil {
		return nil, err
	}
	reader, err := source.New(source.Options{
		Dir: filepath.Join(cloneDir(o), projectsDir), Certificates: certificates, Hosts: o.Projects.Hosts, Clock: o.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("look at projects' repositories: %w", err)
	}
	return reader, nil
}
