package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/install"
)

// credentialPlace is where a controller credential goes: a Secret in the
// cluster and, on the way there, a file or the printed command.
type credentialPlace struct {
	install.Place
	// file gets the credential instead of the terminal.
	file string
}

func (p *credentialPlace) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.Namespace, "namespace", "", "`NAMESPACE` of the controller (default what the pool was made with, else cloop-POOL)")
	flags.StringVar(&p.Release, "release", "", "`NAME` of the controller's Helm release (default what the pool was made with, else POOL)")
	flags.StringVar(&p.Secret, "secret", "", "`NAME` of the Secret with the credential (default POOL-pool-credential)")
	flags.StringVar(&p.file, "credential-file", "", "write the credential to this new `FILE` instead of showing it")
}

// at fills in what no flag says, and makes the file before the credential is
// minted: one that cannot be written is better found while nothing is lost.
func (p *credentialPlace) at(pool string, hints *hubv1.InstallHints) error {
	p.Place = install.At(pool, p.Place, hints)
	if err := p.Check(); err != nil {
		return err
	}
	return reserve("the credential's file", p.file)
}

// reserve makes a file for what is shown once, unless its name is empty.
func reserve(what, name string) error {
	if name == "" {
		return nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", what, err)
	}
	return file.Close()
}

// release takes back the file that at made, after a mint that failed.
func (p *credentialPlace) release() { release(p.file) }

// release takes back what reserve made.
func release(name string) {
	if name != "" {
		_ = os.Remove(name)
	}
}

// keptCredential is a credential that is stored or about to be shown.
type keptCredential struct {
	// shown has no secret any more where a file holds it.
	shown hubv1.Credential
	where install.Credential
}

// keep stores a fresh credential in its file, if it has one.
func (p *credentialPlace) keep(credential hubv1.Credential) (keptCredential, error) {
	kept := keptCredential{shown: credential, where: install.Credential{Text: credential.Secret, File: p.file}}
	if !install.Usable(credential.Secret) {
		p.release()
		return kept, errors.New("the hub's answer has no credential that could be one, so it is not shown: make sure that --hub names the right hub, then mint another with `cloop executor pool rotate-credential`")
	}
	if p.file == "" {
		return kept, nil
	}
	if err := os.WriteFile(p.file, []byte(credential.Secret), 0o600); err != nil {
		return kept, fmt.Errorf("write the credential, which is lost now (mint another with `cloop executor pool rotate-credential`): %w", err)
	}
	kept.shown.Secret, kept.where.Text = "", ""
	return kept, nil
}

// note says where the credential is; command names the command that may show it.
func (k keptCredential) note(command string) string {
	if k.where.File == "" {
		return "The credential in the " + command + " is shown once and cannot be recovered."
	}
	return "The credential is in " + k.where.File + " and cannot be recovered from the hub. Delete the file afterwards."
}

func (a *app) newPoolRotateCommand() *cobra.Command {
	var (
		place         credentialPlace
		finish, force bool
	)
	cmd := &cobra.Command{
		Use:   "rotate-credential POOL",
		Short: "Mint another credential for a pool's controller, or revoke the older ones",
		Long: `Mint another credential for a pool's controller and print the command that puts
it into the controller's Secret. The credential is shown once. Older ones keep
working until --finish, which revokes all but the newest: once the newest was
used more recently than each of them, and no busy runner was started with one.
The hub says what is missing. --force skips both checks; runs on the runners of
the older credentials are then STOPPED.`,
		Example: `  cloop executor pool rotate-credential gpu
  cloop executor pool rotate-credential gpu --finish`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if force && !finish {
				return usageError(cmd, errors.New("--force is for --finish alone"))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			if finish {
				for _, flag := range []string{"namespace", "release", "secret", "credential-file"} {
					if cmd.Flags().Changed(flag) {
						return usageError(cmd, fmt.Errorf("--%s goes with a new credential, and --finish mints none", flag))
					}
				}
				return a.finishRotation(cmd, hub, args[0], force)
			}
			return a.rotate(cmd, hub, args[0], &place)
		},
	}
	place.register(cmd)
	cmd.Flags().BoolVar(&finish, "finish", false, "revoke every credential but the newest")
	cmd.Flags().BoolVar(&force, "force", false, "with --finish: whatever still needs them; stops runs")
	return cmd
}

// rotated is what a rotation shows that begins.
type rotated struct {
	// Credential is the new one, shown this once.
	Credential hubv1.Credential `json:"credential"`
	// Install has the command that stores the credential in the cluster.
	Install []string `json:"install"`
}

// rotate mints a credential and prints how to store it.
func (a *app) rotate(cmd *cobra.Command, hub *hubclient.Client, ref string, place *credentialPlace) error {
	pool, err := hub.GetPool(cmd.Context(), ref)
	if err != nil {
		return fmt.Errorf("mint a credential for pool %s: %w", ref, err)
	}
	if err := place.at(pool.Name, pool.Install); err != nil {
		return err
	}
	credential, err := hub.CreateCredential(cmd.Context(), pool.ID)
	if err != nil {
		place.release()
		if errors.Is(err, hubclient.ErrOutcomeUnknown) {
			err = &withAdvice{fmt.Errorf("%w: should the credential be there all the same, its secret is lost: repeat the command, and revoke the one that nobody uses (`cloop executor pool credentials %s` shows it)", err, shellQuote(pool.Name))}
		}
		return fmt.Errorf("mint a credential for pool %s: %w", ref, err)
	}
	kept, err := place.keep(credential)
	if err != nil {
		return err
	}
	command := place.SecretCommand(kept.where)
	shown := rotated{kept.shown, []string{command}}
	return a.show(shown, func(w io.Writer) {
		say(w, "Minted credential %s of pool %s.\n", credential.ID, pool.Name)
		say(w, "%s\n\n%s\n\n", kept.note("command"), verbatim(command))
		say(w, "The controller reads the Secret again within five minutes, and at once when its credential is refused.\n")
		say(w, "Then revoke the older ones: cloop executor pool rotate-credential %s --finish\n", pool.Name)
	})
}

func (a *app) finishRotation(cmd *cobra.Command, hub *hubclient.Client, pool string, force bool) error {
	done, err := hub.FinishRotation(cmd.Context(), pool, hubv1.FinishRotationRequest{Force: force})
	if err != nil {
		return fmt.Errorf("finish the rotation of pool %s: %w", pool, err)
	}
	return a.show(done, func(w io.Writer) {
		if len(done.Revoked) == 0 {
			say(w, "Nothing to finish: credential %s is the only one of pool %s.\n", done.Kept.ID, pool)
			return
		}
		say(w, "Revoked %s of pool %s; %s stays.\n", count.Of(len(done.Revoked), "older credential"), pool, done.Kept.ID)
		for _, c := range done.Revoked {
			say(w, "%s: %s\n", c.ID, retiredWith(c.Runners))
		}
	})
}

// retiredWith says what went with a credential.
func retiredWith(runners hubv1.RunnerCounts) string {
	all := runners.Starting + runners.Idle + runners.Busy + runners.Retiring
	if all == 0 {
		return "no runner went with it"
	}
	text := count.Of(all, "runner") + " of it retired"
	if runners.Busy > 0 {
		text += ", and " + count.Of(runners.Busy, "run") + " stopped"
	}
	return text
}

func (a *app) newPoolCredentialsCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "credentials POOL",
		Short: "List the credentials of a pool's controllers, the newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			list, err := hub.ListCredentials(cmd.Context(), args[0], all)
			if err != nil {
				return fmt.Errorf("list the credentials of pool %s: %w", args[0], err)
			}
			return a.show(hubv1.CredentialList{Items: listed(list)}, func(w io.Writer) { printCredentials(w, list) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "revoked credentials too")
	return cmd
}

func printCredentials(w io.Writer, list []hubv1.Credential) {
	row(w, "CREDENTIAL", "STATE", "CREATED", "USED", "STARTING", "IDLE", "BUSY", "CONTROLLERS")
	now := time.Now()
	for _, c := range list {
		state, used := "live", "never"
		if c.RevokedAt != nil {
			state = "revoked " + age(now, *c.RevokedAt) + " ago"
		}
		if c.UsedAt != nil {
			used = age(now, *c.UsedAt) + " ago"
		}
		var controllers []string
		for _, contact := range c.Controllers {
			if contact.Connected {
				used = "now"
			}
			controllers = append(controllers, contact.Instance)
		}
		row(w, c.ID, state, age(now, c.CreatedAt)+" ago", used, c.Runners.Starting, c.Runners.Idle, c.Runners.Busy, dash(strings.Join(controllers, ",")))
	}
}

func (a *app) newPoolRevokeCredentialCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke-credential POOL CREDENTIAL",
		Short: "Revoke one credential at once: this stops the runs of its runners",
		Long: `Revoke one credential of a pool's controllers at once, such as one that leaked.
Its controller is refused, its runners are retired, their tokens are refused and
runs in progress on them are STOPPED. To replace a credential without stopping
a run, rotate it: cloop executor pool rotate-credential.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			revoked, err := hub.RevokeCredential(cmd.Context(), args[0], args[1])
			if err != nil {
				return fmt.Errorf("revoke credential %s of pool %s: %w", args[1], args[0], err)
			}
			return a.show(revoked, func(w io.Writer) {
				say(w, "Revoked credential %s of pool %s: its controller and its runners are refused, and their runs are stopped.\n", revoked.ID, args[0])
			})
		},
	}
}

// shellQuote quotes a word for a POSIX shell where it needs that.
func shellQuote(word string) string { return install.Quote(word) }
