package cli

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
)

// credentialPlace is where a controller credential goes: a Secret in the
// cluster and, on the way there, a file or the printed command.
type credentialPlace struct {
	namespace string
	secret    string
	// file gets the credential instead of the terminal.
	file string
}

func (p *credentialPlace) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.namespace, "namespace", "", "`NAMESPACE` of the controller (default cloop-POOL)")
	flags.StringVar(&p.secret, "secret", "", "`NAME` of the Secret with the credential (default POOL-pool-credential)")
	flags.StringVar(&p.file, "credential-file", "", "write the credential to this new `FILE` instead of showing it")
}

func (p *credentialPlace) complete(pool string) {
	if p.namespace == "" {
		p.namespace = "cloop-" + pool
	}
	if p.secret == "" {
		p.secret = pool + "-pool-credential"
	}
}

// reserve makes the file before the credential is minted: one that cannot be
// written is better found while nothing is lost.
func (p *credentialPlace) reserve() error {
	if p.file == "" {
		return nil
	}
	file, err := os.OpenFile(p.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make the credential's file: %w", err)
	}
	return file.Close()
}

// release takes back what reserve made, after a mint that failed.
func (p *credentialPlace) release() {
	if p.file != "" {
		_ = os.Remove(p.file)
	}
}

// keptCredential is a credential that is stored or about to be shown.
type keptCredential struct {
	// credential has no secret any more where a file holds it.
	credential hubv1.Credential
	commands   []string
	note       string
}

// credentialText is what a credential may be made of. It goes into commands that
// people paste into their shell: text of another kind could end the command and
// begin the next.
var credentialText = regexp.MustCompile(`^[A-Za-z0-9_.~+/=-]+$`)

// keep stores a fresh credential and prepares the commands that bring it into
// the cluster. The commands carry it on standard input, so that no process
// list and no last-applied annotation holds it.
func (p *credentialPlace) keep(credential hubv1.Credential) (keptCredential, error) {
	kept := keptCredential{credential: credential}
	if !credentialText.MatchString(credential.Secret) {
		p.release()
		return kept, fmt.Errorf("the hub's answer has no credential that could be one, so it is not shown: make sure that --hub names the right hub, then mint another with `cloop executor pool rotate-credential`")
	}
	if p.file == "" {
		kept.commands = []string{p.namespaceCommand(), p.secretFromInput(credential.Secret)}
		kept.note = "The credential in the second command is shown once and cannot be recovered."
		return kept, nil
	}
	if err := os.WriteFile(p.file, []byte(credential.Secret), 0o600); err != nil {
		return kept, fmt.Errorf("write the credential, which is lost now (mint another with `cloop executor pool rotate-credential`): %w", err)
	}
	kept.credential.Secret = ""
	kept.commands = []string{p.namespaceCommand(), p.secretFromFile()}
	kept.note = "The credential is in " + p.file + " and cannot be recovered from the hub. Delete the file afterwards."
	return kept, nil
}

func (k keptCredential) print(w io.Writer) {
	say(w, "Run these where kubectl reaches the cluster; both may be repeated.\n%s\n", k.note)
	for _, command := range k.commands {
		say(w, "\n%s\n", verbatim(command))
	}
}

// namespaceCommand applies server-side with the label in the manifest: where
// another tool labels the namespace differently it conflicts instead of
// relabelling.
func (p *credentialPlace) namespaceCommand() string {
	return fmt.Sprintf(`kubectl apply --server-side -f - <<'EOF'
apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels:
    pod-security.kubernetes.io/enforce: restricted
EOF`, p.namespace)
}

func (p *credentialPlace) secretFromInput(secret string) string {
	return fmt.Sprintf(`kubectl apply --server-side --force-conflicts -f - <<'EOF'
apiVersion: v1
kind: Secret
metadata:
  name: %s
  namespace: %s
stringData:
  credential: %s
EOF`, p.secret, p.namespace, secret)
}

func (p *credentialPlace) secretFromFile() string {
	return fmt.Sprintf(`kubectl -n %s create secret generic %s --from-file=credential=%s --dry-run=client -o yaml |
  kubectl apply --server-side --force-conflicts -f -`, p.namespace, p.secret, shellQuote(p.file))
}

// shellQuote quotes a word for a POSIX shell where it needs that.
func shellQuote(word string) string {
	plain := strings.TrimFunc(word, func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=+,@%", r)
	}) == ""
	if plain && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (a *app) newPoolRotateCommand() *cobra.Command {
	var place credentialPlace
	cmd := &cobra.Command{
		Use:   "rotate-credential POOL",
		Short: "Mint another credential for a pool's controller",
		Long: `Mint another credential for a pool's controller and print the command that puts
it into the controller's Secret. The credential is shown once. Older ones keep
working.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			place.complete(args[0])
			if err := place.reserve(); err != nil {
				return err
			}
			credential, err := hub.CreateCredential(cmd.Context(), args[0])
			if err != nil {
				place.release()
				return fmt.Errorf("mint a credential for pool %s: %w", args[0], err)
			}
			kept, err := place.keep(credential)
			if err != nil {
				return err
			}
			shown := struct {
				Credential hubv1.Credential `json:"credential"`
				Install    []string         `json:"install"`
			}{kept.credential, kept.commands[1:]}
			return a.show(shown, func(w io.Writer) {
				say(w, "Minted credential %s of pool %s.\n", credential.ID, args[0])
				say(w, "%s\n\n%s\n", strings.ReplaceAll(kept.note, "second command", "command"), verbatim(kept.commands[1]))
			})
		},
	}
	place.register(cmd)
	return cmd
}
