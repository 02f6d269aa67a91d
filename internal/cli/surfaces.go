package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/internal/hubclient"
)

// surfaceFlags say which surfaces beside Git a fleet command looks at. The hub
// is one of them when flags, environment or login name it.
type surfaceFlags struct {
	kubeconfig string
	contexts   []string
	namespace  string
}

func (f *surfaceFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.contexts, "cluster", nil, "kubeconfig `CONTEXT` of a cluster, several times (default: the current one)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with access to the clusters (default: $KUBECONFIG or ~/.kube/config)")
	flags.StringVar(&f.namespace, "namespace", "", "only this `NAMESPACE` of each cluster (default: all)")
}

// surfaces are connected clients.
type surfaces struct {
	// hub is nil where none is named.
	hub      *hubclient.Client
	clusters []reachedCluster
}

type reachedCluster struct {
	name string
	// unnamed says that there is no context, and name is an address.
	unnamed   bool
	namespace string
	client    client.WithWatch
}

// reach prepares the clients of what the flags name: the current context where
// they name no cluster, and no cluster where there is no context either.
func (a *app) reach(f surfaceFlags) (surfaces, error) {
	var (
		found surfaces
		err   error
	)
	if _, err := a.options.fromLogin(); err != nil {
		return found, err
	}
	if a.options.hub != "" {
		if found.hub, err = a.connect(); err != nil {
			return found, err
		}
	}
	contexts := f.contexts
	if len(contexts) == 0 {
		contexts = []string{""}
	}
	for _, context := range contexts {
		config, name, err := clusterConfig(f.kubeconfig, context)
		if context == "" && f.kubeconfig == "" && errors.Is(err, errNoCluster) {
			continue
		}
		if err != nil {
			return found, err
		}
		kinds, err := clusterClient(config)
		if err != nil {
			return found, err
		}
		found.clusters = append(found.clusters, reachedCluster{name: name, unnamed: name == config.Host, namespace: f.namespace, client: kinds})
	}
	if found.hub == nil && len(found.clusters) == 0 {
		return found, errors.New("nothing to look at: name a hub with --hub, or log in at one with `cloop login`, a cluster with --cluster, or both")
	}
	return found, nil
}

// look is reach for a command whose answer is taken for the whole system's: it says
// where no hub is asked, unless an empty --hub says so.
func (a *app) look(f surfaceFlags) (surfaces, error) {
	found, err := a.reach(f)
	if err == nil && found.hub == nil && !a.options.hubNamed {
		a.remark("note: no hub was asked: name one with --hub or %s, or log in with `cloop login`; --hub= says that there is none", envHub)
	}
	return found, err
}
