package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"cloop.dev/cloop/controllers"
	"cloop.dev/cloop/schemas"
)

func (a *app) newControllerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "The controllers that run in a cluster",
		Args:  cobra.NoArgs,
	}
	run := a.newControllerRunCommand()
	// `cloop executor controller` alone runs them, as a container's command.
	cmd.RunE = run.RunE
	cmd.Flags().AddFlagSet(run.Flags())
	crd := a.newControllerCRDCommand()
	textOnly(cmd, run, crd)
	cmd.AddCommand(run, crd)
	return cmd
}

func (a *app) newControllerRunCommand() *cobra.Command {
	var (
		o          controllers.Options
		kubeconfig string
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run controllers until they are told to stop",
		Long: `Run controllers of a cluster until they are told to stop: the executor controller
(executorpool), which starts runner Pods for one namespace's pools, or the fleet
controller (poolsync,hubpool), which applies a cluster's half of the fleet
repository and defines the pools of a hub that does not read Git itself.
Each of the two wants a namespace, an account and a Lease of its own.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Kubernetes' libraries log through these two and nothing else.
			log := logr.FromSlogHandler(a.logger().Handler())
			ctrl.SetLogger(log)
			klog.SetLogger(log)
			config, _, err := clusterConfig(kubeconfig, "")
			if err != nil {
				return err
			}
			o.RESTConfig = config
			o.Build = buildVersion().Version
			if o.Instance, err = instance(); err != nil {
				return err
			}
			if o.CacheDir == "" {
				o.CacheDir = filepath.Join(os.TempDir(), "cloop-cache")
			}
			if err := controllers.Run(cmd.Context(), o); err != nil {
				return fmt.Errorf("run the controller: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.Controllers, "controllers", []string{"executorpool"}, "`CONTROLLERS` to run: executorpool, or poolsync, hubpool or both")
	flags.StringVar(&o.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "`NAMESPACE` to look after ($POD_NAMESPACE)")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` with access to the cluster (default: the Pod's own account)")
	flags.StringSliceVar(&o.AllowedHubs, "allowed-hub", nil, "`URL` of a hub that pools may name, several times; none: any https hub")
	flags.StringVar(&o.ClusterName, "cluster-name", "", "`NAME` that hubs know this cluster by, for good (default: the UID of the namespace kube-system)")
	flags.StringVar(&o.RunnerImage, "runner-image", "", "`IMAGE` of runners whose pool names none")
	flags.BoolVar(&o.LeaderElect, "leader-elect", false, "act only while holding the Lease, so that replicas can stand by")
	flags.StringVar(&o.MetricsAddr, "metrics-addr", ":8080", "`HOST:PORT` of /metrics; 0: none")
	flags.StringVar(&o.HealthAddr, "health-addr", ":8081", "`HOST:PORT` of /healthz and /readyz; 0: none")
	flags.StringVar(&o.WebhookAddr, "webhook-addr", "0", "`HOST:PORT` where forges tell a poolsync controller of pushes, as http; 0: nowhere")
	flags.StringVar(&o.EventsAddr, "events-addr", "", "`URL` to post Events to, as Flux's notification-controller takes them; empty: nowhere")
	flags.StringVar(&o.CacheDir, "cache-dir", "", "`DIR` for clones of fleet repositories (default: below the temporary directory)")
	return cmd
}

// instance tells the replicas of a controller apart.
func instance() (string, error) {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this controller: %w: set POD_NAME", err)
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid()), nil
}

func (a *app) newControllerCRDCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "crd",
		Short:   "Print the CustomResourceDefinitions of this build",
		Example: `  cloop executor controller crd | kubectl apply --server-side -f -`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(schemas.CRDYAML())
			return err
		},
	}
}
