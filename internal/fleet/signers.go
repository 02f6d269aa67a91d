package fleet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// Signers are those who may sign.
type Signers struct {
	pgp openpgp.EntityList
	ssh []sshSigner
}

const (
	pgpPublicBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpPublicEnd   = "-----END PGP PUBLIC KEY BLOCK-----"
	// maxSigners bounds a file of them, in bytes.
	maxSigners = 4 << 20
)

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
	signer, err := parseAllowed(line)
	if err != nil {
		return err
	}
	s.ssh = append(s.ssh, signer)
	return nil
}

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
