package fleet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/crypto/ssh"
)

// Signers are those who may sign.
type Signers struct {
	pgp openpgp.EntityList
	ssh []sshSigner
}

// sshSigner is a line of OpenSSH's allowed signers, or a bare public key.
type sshSigner struct {
	// name is whose key it is, as far as the line says.
	name string
	key  ssh.PublicKey
	// namespaces are patterns of what the key may sign for; none: anything.
	namespaces []string
	// after and before bound the times of what the key signs; zero: no bound.
	after, before time.Time
}

const (
	pgpPublicBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpPublicEnd   = "-----END PGP PUBLIC KEY BLOCK-----"
	// maxSigners bounds a file of them, in bytes.
	maxSigners = 4 << 20
)

// keyDSA is the type of keys that are too weak to believe.
const keyDSA = "ssh-dss"

// ParseSigners reads files, by name, of armored PGP public keys and of SSH keys: bare
// ones and lines as of OpenSSH's allowed_signers. An error names the file and the
// line and quotes neither.
func ParseSigners(files map[string][]byte) (*Signers, error) {
	out := &Signers{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := out.parse(files[name]); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(problems) == 0 && len(out.pgp)+len(out.ssh) == 0 {
		return nil, errors.New("nobody is among the signers: write their public keys, armored PGP keys or lines as of OpenSSH's allowed_signers")
	}
	return out, errors.Join(problems...)
}

func (s *Signers) parse(data []byte) error {
	if len(data) > maxSigners {
		return fmt.Errorf("it has more than %d MiB", maxSigners>>20)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxSigners)
	var block strings.Builder
	begun := 0
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if begun > 0 || line == pgpPublicBegin {
			if begun == 0 {
				begun = number
			}
			block.WriteString(line + "\n")
			if line != pgpPublicEnd {
				continue
			}
			if err := s.addPGP(block.String()); err != nil {
				return fmt.Errorf("line %d: %w", begun, err)
			}
			block.Reset()
			begun = 0
			continue
		}
		if err := s.addLine(line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if begun > 0 {
		return fmt.Errorf("line %d: the PGP key has no end", begun)
	}
	return lines.Err()
}

func (s *Signers) addPGP(armored string) error {
	found, err := openpgp.ReadArmoredKeyRing(strings.NewReader(armored))
	if err != nil || len(found) == 0 {
		return errors.New("it is no PGP public key: write it with `gpg --export --armor`")
	}
	s.pgp = append(s.pgp, found...)
	return nil
}

func (s *Signers) addLine(line string) error {
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
		return nil
	case strings.HasPrefix(line, "-----BEGIN") && strings.Contains(line, "PRIVATE"):
		return errors.New("a private key has no place here, and is known to too many now: write public keys")
	}
	name, rest := "", line
	if first, behind, _ := strings.Cut(line, " "); !isKeyType(first) {
		name, rest = strings.Trim(first, `"`), behind
	}
	key, comment, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil || key.Type() == keyDSA || name == "" && len(options) > 0 {
		return errors.New("it is neither an SSH public key nor a line of allowed signers: write NAME, perhaps options, and the key as in `ssh-ed25519 AAAA…`")
	}
	signer := sshSigner{name: name, key: key}
	if name == "" {
		signer.name = comment
	}
	for _, option := range options {
		if err := signer.restrict(option); err != nil {
			return err
		}
	}
	s.ssh = append(s.ssh, signer)
	return nil
}

func isKeyType(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-sha2-") || strings.HasPrefix(word, "sk-")
}

// restrict reads an option. One that is not known may restrict, so it is an error.
func (s *sshSigner) restrict(option string) error {
	name, value, _ := strings.Cut(option, "=")
	value = strings.Trim(value, `"`)
	var err error
	switch strings.ToLower(name) {
	case "namespaces":
		s.namespaces = strings.Split(value, ",")
		for _, pattern := range s.namespaces {
			if _, err := path.Match(pattern, ""); err != nil {
				return fmt.Errorf("namespace %q is no pattern", pattern)
			}
		}
	case "valid-after":
		s.after, err = parseValidity(value)
	case "valid-before":
		s.before, err = parseValidity(value)
	case "cert-authority":
		return errors.New("authorities are not believed: write the keys of those who sign")
	default:
		return fmt.Errorf("option %q is not known", name)
	}
	return err
}

// parseValidity reads a time as OpenSSH writes it, in UTC also where it has no Z.
func parseValidity(text string) (time.Time, error) {
	bare := strings.TrimSuffix(text, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if at, err := time.Parse(layout, bare); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: write YYYYMMDD or YYYYMMDDHHMMSS", text)
}

// refuses says why a key must not sign for Git at a time; empty: it may.
func (s *sshSigner) refuses(at time.Time) string {
	switch {
	case len(s.namespaces) > 0 && !slices.ContainsFunc(s.namespaces, func(pattern string) bool { ok, _ := path.Match(pattern, gitNamespace); return ok }):
		return "may not sign for the namespace " + gitNamespace
	case !s.after.IsZero() && at.Before(s.after):
		return "may sign from " + s.after.Format(time.RFC3339) + " on, and it is dated " + at.UTC().Format(time.RFC3339)
	case !s.before.IsZero() && !at.Before(s.before):
		return "may sign until " + s.before.Format(time.RFC3339) + ", and it is dated " + at.UTC().Format(time.RFC3339)
	}
	return ""
}

func (s *sshSigner) String() string { return named(s.name, describeKey(s.key)) }

func named(name, key string) string {
	if name == "" {
		return key
	}
	return name + " (" + key + ")"
}

func describePGP(entity *openpgp.Entity) string {
	name := ""
	if identity := entity.PrimaryIdentity(); identity != nil {
		name = identity.Name
	}
	return named(name, fmt.Sprintf("PGP %X", entity.PrimaryKey.Fingerprint))
}

// maxNamed bounds how many signers an error names.
const maxNamed = 4

// String names the signers for people.
func (s *Signers) String() string {
	var all []string
	for i := range s.ssh {
		all = append(all, s.ssh[i].String())
	}
	for _, entity := range s.pgp {
		all = append(all, describePGP(entity))
	}
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
