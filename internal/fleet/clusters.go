package fleet

import (
	"path"
	"slices"

	"cloop.dev/cloop/apis/v1alpha1"
)

// clusterOf is equal for files that are for one cluster though nothing of the
// repository applies them: those of a directory at or below clusters/NAME; known is
// false for others. Those may be collections for several, even one file.
func clusterOf(file string) (cluster string, known bool) {
	dir := path.Dir(file)
	return dir, ClusterOf(dir) != ""
}

// ClusterOf is the NAME of clusters/NAME in which a path lies, or which it is; empty of
// others.
func ClusterOf(name string) string {
	for at := name; at != "."; at = path.Dir(at) {
		if path.Base(path.Dir(at)) == "clusters" {
			return at
		}
	}
	return ""
}

// clustersOf are those that each applier comes to: where it is defined in a cluster's
// directory, that one, and otherwise those of what applies the place where it is.
func clustersOf(appliers []applier) [][]string {
	all := make([][]string, len(appliers))
	paths := pathsOf(appliers)
	for i := range appliers {
		if cluster := ClusterOf(appliers[i].in); cluster != "" {
			all[i] = []string{cluster}
		}
	}
	for changed := true; changed; {
		changed = false
		for i := range appliers {
			if ClusterOf(appliers[i].in) != "" {
				continue
			}
			for _, j := range paths.applying(appliers, appliers[i].in) {
				for _, cluster := range all[j] {
					if at, known := slices.BinarySearch(all[i], cluster); !known {
						all[i], changed = slices.Insert(all[i], at, cluster), true
					}
				}
			}
		}
	}
	return all
}

// byCluster divides what nothing of the repository applies.
func byCluster(syncs []*facts) (divided [][]*facts) {
	index := map[string]int{}
	for _, f := range syncs {
		cluster, known := clusterOf(f.file)
		if !known {
			continue
		}
		at, met := index[cluster]
		if !met {
			at = len(divided)
			index[cluster], divided = at, append(divided, nil)
		}
		divided[at] = append(divided[at], f)
	}
	return divided
}

// looseSyncs are the PoolSyncs and Kustomizations of Flux in files that nothing applies,
// as clusters/NAME has them where Flux was set up by something else than files of the
// repository.
func (c *checker) looseSyncs() (loose []*facts) {
	if c.appliers == nil {
		return nil
	}
	type definition struct {
		file string
		line int
	}
	known := map[definition]bool{}
	for _, objects := range c.applied {
		for _, f := range objects {
			known[definition{f.file, f.line}] = true
		}
	}
	for i := range *c.appliers {
		a := &(*c.appliers)[i]
		if a.facts == nil || a.facts.sync.suspended || a.in != a.facts.file || known[definition{a.facts.file, a.facts.line}] {
			continue
		}
		a.facts.subject = noSubject
		loose = append(loose, a.facts)
	}
	return loose
}

// syncFacts are the facts of a PoolSync, or of a Kustomization of Flux.
func (o *renderedObject) syncFacts() *facts {
	f := &facts{identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line,
		ours: isKind(o.Object, v1alpha1.PoolSyncKind), sync: syncOf(o.Object)}
	f.keep(o, "metadata.name", "spec.path")
	return f
}
