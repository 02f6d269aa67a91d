package cli

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/scaffold"
)

func (a *app) newFleetImportCommand() *cobra.Command {
	var (
		where              surfaceFlags
		repository, branch string
		observe            bool
	)
	cmd := &cobra.Command{
		Use:   "import [DIR] [--hub URL] [--cluster CONTEXT…]",
		Short: "Write a fleet repository of the pools that there are",
		Long: `Write a fleet repository that says of the hub's pools and of the clusters'
ExecutorPools what they are now, so that hub and clusters can follow it without any
of them changing. Hub and clusters see only reads.

What a server fills in by default is left out, and so are labels and annotations of
whoever applied a pool so far; who that is, is told: two must not keep one pool. A
field that holds what looks like a credential is an error, and nothing is written.

With --observe hub and clusters compare what is imported with what there is, and
apply nothing of it, until its annotation cloop.dev/observe is taken out: of one
pool after the other, once cloop fleet drift shows nothing that is not wanted.

Nothing is overwritten: where one of the files is there, nothing is written.`,
		Example: `  cloop fleet import fleet --hub https://cloop.example.com:8443 --cluster eu --cluster us
  cloop fleet import fleet --cluster eu --observe`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			reached, err := a.look(where)
			if err != nil {
				return err
			}
			mark, shown := func(*unstructured.Unstructured) {}, newRepository{}
			if observe {
				mark = toObserve
				shown.Notes = append(shown.Notes, "every pool is only compared: see with `cloop fleet drift` what Git would change, and then take the annotation "+v1alpha1.AnnotationObserve+" out, of one pool after the other")
			}
			return a.importFleet(cmd.Context(), importing{dir, mark, shown}, reached, scaffold.Options{Repository: sshOf(repository), Branch: branch})
		},
	}
	cmd.Flags().StringVar(&repository, "repository", "", "https or ssh `URL` that hub and clusters will fetch from (default: the remote origin of DIR, by https, or an example)")
	cmd.Flags().StringVar(&branch, "branch", "", "`BRANCH` that they will follow (default: the one checked out in DIR, or main)")
	cmd.Flags().BoolVar(&observe, "observe", false, "have what is imported compared alone, by the annotation "+v1alpha1.AnnotationObserve)
	where.register(cmd)
	return cmd
}

// toObserve has a document compared alone.
func toObserve(document *unstructured.Unstructured) {
	annotations := document.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationObserve] = "true"
	document.SetAnnotations(annotations)
}

// importing is where a repository is imported to, and how.
type importing struct {
	dir string
	// mark is called for each document.
	mark func(*unstructured.Unstructured)
	// shown is what is known of the repository already.
	shown newRepository
}

func (a *app) importFleet(ctx context.Context, to importing, from surfaces, o scaffold.Options) error {
	dir, shown := to.dir, to.shown
	var secrets []string
	pools := 0
	o.Contents = &scaffold.Contents{Clusters: map[string]map[string][]byte{}}
	take := func(in fleet.Imported, file func(*unstructured.Unstructured) string) (map[string][]byte, error) {
		shown.Notes = append(shown.Notes, in.Notes...)
		secrets = append(secrets, in.Secrets...)
		pools += len(in.Documents)
		files := map[string][]byte{}
		for _, document := range in.Documents {
			to.mark(document)
			content, err := yaml.Marshal(document.Object)
			if err != nil {
				return nil, fmt.Errorf("write %s %s: %w", document.GetKind(), document.GetName(), err)
			}
			files[file(document)] = content
		}
		return files, nil
	}
	if from.hub != nil {
		live, err := from.hub.ListPools(ctx)
		if err != nil {
			return fmt.Errorf("list the hub's pools: %w", err)
		}
		half, err := take(fleet.ImportHub(live), documentFile)
		if err != nil {
			return err
		}
		if len(half) > 0 {
			o.Contents.Hub = half
		} else {
			shown.Notes = append(shown.Notes, "the hub has no pool, so there is no hub/")
		}
	}
	for _, cluster := range from.clusters {
		live := &unstructured.UnstructuredList{}
		live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
		if err := cluster.client.List(ctx, live, client.InNamespace(cluster.namespace)); err != nil {
			return fmt.Errorf("list the ExecutorPools of cluster %s: %w", cluster.name, err)
		}
		folder := folderOf(cluster.name)
		if o.Contents.Clusters[folder] != nil {
			return &No{Message: fmt.Sprintf("two clusters would have the folder clusters/%s, the second is %s; nothing was written: rename one of the contexts, or import them one by one", folder, cluster.name)}
		}
		if folder != cluster.name {
			shown.Notes = append(shown.Notes, fmt.Sprintf("clusters/%s is of cluster %s", folder, cluster.name))
		}
		files, err := take(fleet.ImportCluster(cluster.name, live.Items), func(document *unstructured.Unstructured) string {
			return path.Join(document.GetNamespace(), documentFile(document))
		})
		if err != nil {
			return err
		}
		if len(files) == 0 {
			shown.Notes = append(shown.Notes, fmt.Sprintf("cluster %s has no ExecutorPool, so there is no clusters/%s", cluster.name, folder))
			continue
		}
		o.Contents.Clusters[folder] = files
		o.Clusters = append(o.Clusters, folder)
	}
	switch {
	case len(secrets) > 0:
		return &No{Message: fmt.Sprintf("what looks like a credential is in %s, and Git must not have it; nothing was written: take it out of the pool, into a Secret, and import again:\n  %s",
			count.Of(len(secrets), "field"), strings.Join(count.First(secrets, maxSecrets), "\n  "))}
	case pools == 0:
		return &No{Message: "there is no pool to import; nothing was written: `cloop fleet init` writes a repository to begin with"}
	}
	shown.Next = append(shown.Next, fmt.Sprintf("cloop fleet check %s, and correct what it finds: what is there may break a rule", shellQuote(dir)))
	return a.writeRepository(ctx, dir, o, shown)
}

// maxSecrets bounds how many fields an error names.
const maxSecrets = 20

// documentFile is the file of a document. The name of one is no file that kustomize
// takes for its own: no name of an object has an underscore.
func documentFile(document *unstructured.Unstructured) string {
	name := document.GetName()
	if name == "kustomization" {
		name += "_"
	}
	return name + ".yaml"
}

var notInFolder = regexp.MustCompile(`[^a-z0-9]+`)

// folderOf is the name of a cluster's folder: its context's, as far as that is one.
func folderOf(cluster string) string {
	folder := strings.Trim(notInFolder.ReplaceAllString(strings.ToLower(cluster), "-"), "-")
	folder = strings.Trim(folder[:min(len(folder), 63)], "-")
	switch folder {
	case "":
		return "cluster"
	case "hub":
		// The hub's half is called so.
		return "cluster-hub"
	}
	return folder
}
