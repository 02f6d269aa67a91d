package install

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"cloop.dev/cloop/apis/hubv1"
)

// maxRelease is Helm's bound on the name of a release, in characters.
const maxRelease = 53

// Place is where a pool's controller is, or is to be.
type Place struct {
	// Pool is the pool's name; the others follow from it where they are empty.
	Pool string
	// Namespace of the controller; "cloop-" and the pool's name.
	Namespace string
	// Release is the Helm release; the pool's name.
	Release string
	// Secret has the credential, under the key "credential"; the pool's name and
	// "-pool-credential".
	Secret string
}

// At is the place of a pool where what is given goes before what was said when
// the pool was made, and that before the default.
func At(pool string, given Place, hints *hubv1.InstallHints) Place {
	if hints == nil {
		hints = &hubv1.InstallHints{}
	}
	return Place{
		Pool:      pool,
		Namespace: firstOf(given.Namespace, hints.Namespace, "cloop-"+pool),
		Release:   firstOf(given.Release, hints.Release, pool),
		Secret:    firstOf(given.Secret, pool+"-pool-credential"),
	}
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// Check says what keeps the names from being used, and which flag gives another.
func (p Place) Check() error {
	var problems []error
	if len(validation.IsDNS1123Label(p.Pool)) > 0 {
		problems = append(problems, fmt.Errorf("the pool's name %q is none: lowercase letters, digits and dashes, at most 63", p.Pool))
	}
	if len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		problems = append(problems, fmt.Errorf("%q is no namespace: give one with --namespace, of lowercase letters, digits and dashes, at most 63", p.Namespace))
	}
	if len(validation.IsDNS1123Label(p.Release)) > 0 || len(p.Release) > maxRelease {
		problems = append(problems, fmt.Errorf("%q is no name for a Helm release: give one with --release, of lowercase letters, digits and dashes, at most %d", p.Release, maxRelease))
	}
	if len(validation.IsDNS1123Subdomain(p.Secret)) > 0 {
		problems = append(problems, fmt.Errorf("%q is no name for a Secret: give one with --secret, of lowercase letters, digits, dashes and dots", p.Secret))
	}
	return errors.Join(problems...)
}

// Credential is what a controller proves itself with: the text, or the file that
// has it.
type Credential struct{ Text, File string }

// credentialText is what a credential may be made of; text of another kind could
// end the command that it stands in and begin the next.
var credentialText = regexp.MustCompile(`^[A-Za-z0-9_.~+/=-]+$`)

// Usable says whether a text may stand in a command as a credential.
func Usable(text string) bool { return credentialText.MatchString(text) }

// NamespaceCommand makes the namespace, held to the restricted Pod Security
// profile. The label is in the manifest: where another tool labels the namespace
// differently the command conflicts instead of relabelling it.
func (p Place) NamespaceCommand() string {
	return apply("", `apiVersion: v1
kind: Namespace
metadata:
  name: `+p.Namespace+`
  labels:
    pod-security.kubernetes.io/enforce: restricted`)
}

// SecretCommand stores the credential in the Secret. Applied server-side, it is
// in no last-applied annotation; read from standard input or a file, in no
// process list; and whoever had the field before, this one has it now.
func (p Place) SecretCommand(c Credential) string {
	if c.File != "" {
		return fmt.Sprintf(`kubectl -n %s create secret generic %s --from-file=credential=%s --dry-run=client -o yaml |
  kubectl apply --server-side --force-conflicts -f -`, p.Namespace, p.Secret, Quote(c.File))
	}
	return apply(" --force-conflicts", `apiVersion: v1
kind: Secret
metadata:
  name: `+p.Secret+`
  namespace: `+p.Namespace+`
stringData:
  credential: `+c.Text)
}

// apply is the command that applies a manifest. The word that ends it is quoted,
// so that a shell changes nothing in between.
func apply(flags, manifest string) string {
	return "kubectl apply --server-side" + flags + " -f - <<'EOF'\n" + manifest + "\nEOF"
}

// Quote quotes a word for a POSIX shell where it needs that.
func Quote(word string) string {
	plain := strings.TrimFunc(word, func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=+,@%", r)
	}) == ""
	if plain && word != "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
