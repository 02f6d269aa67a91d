package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/install"
)

// created is what `pool create` shows as JSON or YAML.
type created struct {
	hubv1.CreatePoolResponse
	// Install are the commands that install the controller: the namespace, the
	// Secret, and the Helm release. None for a hub that no controller would connect
	// to; Note says then what to do.
	Install []string `json:"install"`
	// Checkout is the command that takes the Helm release's place as long as the hub
	// serves no chart: a kustomization, in a checkout of cloop.
	Checkout string `json:"checkout,omitempty"`
	// Note says what to do where there are no commands.
	Note string `json:"note,omitempty"`
	// pinned says that the hub is trusted by its pin alone, of which Helm knows
	// nothing.
	pinned bool
}

// persistenceFlags ask for a volume per project.
type persistenceFlags struct {
	enabled                           bool
	size, storageClass, reclaimPolicy string
}

func (f *persistenceFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.enabled, "persistence", false, "keep a volume per project, with its checkout and caches")
	flags.StringVar(&f.size, "size", "", "`SIZE` of each volume, such as 50Gi")
	flags.StringVar(&f.storageClass, "storage-class", "", "`NAME` of the volumes' storage class (default the cluster's)")
	flags.StringVar(&f.reclaimPolicy, "reclaim-policy", "", "Delete or Retain: what becomes of volumes that the pool no longer `NEEDS` (default Delete)")
}

// hints are what the hub keeps of it; nil for a pool without volumes.
func (f *persistenceFlags) hints(cmd *cobra.Command) (*hubv1.PersistenceHints, error) {
	if !f.enabled {
		for _, flag := range []string{"size", "storage-class", "reclaim-policy"} {
			if cmd.Flags().Changed(flag) {
				return nil, usageError(cmd, fmt.Errorf("--%s is of the volumes, which --persistence asks for", flag))
			}
		}
		return nil, nil
	}
	if f.size == "" {
		return nil, usageError(cmd, errors.New("--size is missing: say how large each volume is, such as --size 50Gi"))
	}
	return &hubv1.PersistenceHints{Size: f.size, StorageClassName: f.storageClass, ReclaimPolicy: f.reclaimPolicy}, nil
}

// newPool is what `pool create` is asked for.
type newPool struct {
	definition  poolFlags
	minRunners  int32
	persistence persistenceFlags
	place       credentialPlace
}

func (a *app) newPoolCreateCommand() *cobra.Command {
	var o newPool
	cmd := &cobra.Command{
		Use:   "create NAME --max-runners N",
		Short: "Make a pool and its controller's first credential",
		Long: `Make a pool at the hub and its controller's first credential, and print the
commands that install the controller with it. The credential is shown once: the
hub keeps only its hash. The hub also keeps what the commands were made with,
for those that it prints later.`,
		Example: `  cloop executor pool create gpu --max-runners 4 --label gpu=true --audience group:ml-team
  cloop executor pool create gpu --max-runners 4 --persistence --size 50Gi --storage-class fast-ssd
  cloop executor pool create gpu --max-runners 4 --credential-file gpu.credential`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(cmd, args[0])
			if err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			return a.createPool(cmd, hub, request, &o.place)
		},
	}
	o.definition.register(cmd)
	cmd.Flags().Int32Var(&o.minRunners, "min-runners", 0, "runners `N` that the cluster keeps started beyond the demand")
	o.persistence.register(cmd)
	o.place.register(cmd)
	return cmd
}

// request is the pool that the flags describe.
func (o *newPool) request(cmd *cobra.Command, name string) (hubv1.CreatePoolRequest, error) {
	var none hubv1.CreatePoolRequest
	if !cmd.Flags().Changed("max-runners") {
		return none, usageError(cmd, errors.New("--max-runners is missing"))
	}
	for flag, value := range map[string]int32{"max-runners": o.definition.maxRunners, "min-runners": o.minRunners} {
		if err := notNegative(cmd, flag, value); err != nil {
			return none, err
		}
	}
	capabilities, err := o.definition.declared(cmd)
	if err != nil {
		return none, err
	}
	volumes, err := o.persistence.hints(cmd)
	if err != nil {
		return none, err
	}
	request := hubv1.CreatePoolRequest{
		Name: name,
		PoolDefinition: hubv1.PoolDefinition{
			MaxRunners: o.definition.maxRunners, Labels: o.definition.labels, Audience: o.definition.audience,
			Owner: o.definition.owner, Harness: o.definition.harness, Capabilities: capabilities,
		},
	}
	hints := hubv1.InstallHints{Namespace: o.place.Namespace, Release: o.place.Release, MinRunners: o.minRunners, Persistence: volumes}
	if hints != (hubv1.InstallHints{}) {
		request.Install = &hints
	}
	return request, nil
}

// createPool makes the pool and shows how its controller is installed.
func (a *app) createPool(cmd *cobra.Command, hub *hubclient.Client, request hubv1.CreatePoolRequest, place *credentialPlace) error {
	// Before anything is made: what cannot be printed afterwards would be lost.
	if err := place.at(request.Name, request.Install); err != nil {
		return err
	}
	seen, err := a.hubSeen(cmd, hub)
	if err != nil {
		place.release()
		return err
	}
	response, err := hub.CreatePool(cmd.Context(), request)
	if err != nil {
		place.release()
		if errors.Is(err, hubclient.ErrOutcomeUnknown) {
			err = &withAdvice{fmt.Errorf("%w: should the pool be there all the same, its credential is lost, and `cloop executor pool rotate-credential %s` mints another", err, shellQuote(request.Name))}
		}
		return fmt.Errorf("create pool %s: %w", request.Name, err)
	}
	kept, err := place.keep(response.Credential)
	if err != nil {
		return err
	}
	response.Credential = kept.shown
	out := created{CreatePoolResponse: response, Install: []string{}}
	if err := seen.Check(request.Name); err != nil {
		out.Note = err.Error()
	} else if err := a.installation(&out, request, place.Place, seen, kept.where); err != nil {
		return err
	}
	return a.show(out, func(w io.Writer) { out.print(w, kept) })
}

// installation fills in the commands.
func (a *app) installation(out *created, request hubv1.CreatePoolRequest, place install.Place, hub install.Hub, credential install.Credential) error {
	pool := install.Pool{MaxRunners: request.MaxRunners}
	if request.Install != nil {
		pool.Hints = *request.Install
	}
	out.Install = []string{place.NamespaceCommand(), place.SecretCommand(credential), place.InstallCommand(hub, pool)}
	out.pinned = hub.Pin != "" && hub.CAFile == ""
	if hub.Info.Chart != "" {
		return nil
	}
	bundle, err := a.caBundle()
	if err != nil {
		return err
	}
	out.Checkout, err = place.KustomizeCommand(hub, pool, string(bundle))
	return err
}

func (c *created) print(w io.Writer, kept keptCredential) {
	say(w, "Created pool %s.\n\n", c.Pool.Name)
	if len(c.Install) == 0 {
		say(w, "%s\n", kept.note("next line"))
		if kept.where.File == "" {
			say(w, "%s\n", kept.where.Text)
		}
		say(w, "\n%s\n", c.Note)
	} else {
		say(w, "Run these where kubectl and helm reach the cluster. The first two may be repeated; helm install\nrefuses to overwrite a release.\n%s\n", kept.note("second command"))
		last := len(c.Install) - 1
		for _, command := range c.Install[:last] {
			say(w, "\n%s\n", verbatim(command))
		}
		if c.Checkout != "" {
			say(w, "\nThis hub serves no chart yet, and no image is published: in place of helm, run this in a checkout of\ncloop, with an image of your own for the controller and the runners.\n\n%s\n\nOnce the hub serves its chart, helm does that:\n", verbatim(c.Checkout))
		}
		say(w, "\n%s\n", verbatim(c.Install[last]))
		if c.pinned {
			say(w, "\nHelm knows no pins: where it does not trust the hub's certificate, add --ca-file with the certificate's file.\n")
		}
	}
	say(w, "\nBind projects to pool:%s\n", c.Pool.ID)
}

// hubSeen is the hub as this command reaches it. An older hub does not say what
// it is.
func (a *app) hubSeen(cmd *cobra.Command, hub *hubclient.Client) (install.Hub, error) {
	info, err := hub.Hub(cmd.Context())
	if isNotFound(err) {
		err = nil
	}
	if err != nil {
		return install.Hub{}, fmt.Errorf("ask the hub for its build: %w", err)
	}
	return install.Hub{URL: hub.URL(), Pin: a.options.hubPin, CAFile: a.options.hubCAFile, Info: info}, nil
}

func isNotFound(err error) bool {
	var p *hubv1.Problem
	return errors.As(err, &p) && p.Code == hubv1.CodeNotFound
}
