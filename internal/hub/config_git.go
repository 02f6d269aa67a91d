package hub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// GitConfig is how a sync reaches its repository. Its files are read again when the
// hub looks at the repository.
type GitConfig struct {
	// Username and PasswordFile are for basic authentication, BearerFile holds a
	// bearer token in place of both.
	Username, PasswordFile, BearerFile string
	// CAFile holds PEM certificates that replace the system's.
	CAFile string
	// IdentityFile holds the private key for ssh, PassphraseFile what it is
	// encrypted with, and KnownHostsFile the keys that the server may have.
	IdentityFile, PassphraseFile, KnownHostsFile string
}

// gitEntry is GitConfig as it is written.
type gitEntry struct {
	Username       string `yaml:"username"`
	PasswordFile   string `yaml:"passwordFile"`
	BearerFile     string `yaml:"bearerFile"`
	CAFile         string `yaml:"caFile"`
	IdentityFile   string `yaml:"identityFile"`
	PassphraseFile string `yaml:"passphraseFile"`
	KnownHostsFile string `yaml:"knownHostsFile"`
}

func (e gitEntry) config(dir string) GitConfig {
	return GitConfig{
		Username: e.Username, PasswordFile: from(dir, e.PasswordFile), BearerFile: from(dir, e.BearerFile), CAFile: from(dir, e.CAFile),
		IdentityFile: from(dir, e.IdentityFile), PassphraseFile: from(dir, e.PassphraseFile), KnownHostsFile: from(dir, e.KnownHostsFile),
	}
}

// check names every problem of how the repository at a URL is reached.
func (c GitConfig) check(url string) (problems []error) {
	say := func(text string) { problems = append(problems, errors.New(text)) }
	if err := fleet.CheckURL(url); err != nil {
		problems = append(problems, fmt.Errorf("url: %w: write https://HOST/PATH without user information, or ssh://git@HOST/PATH", err))
	}
	if c.Username != "" && c.PasswordFile == "" {
		say("username needs passwordFile")
	}
	if c.BearerFile != "" && c.PasswordFile != "" {
		say("bearerFile and passwordFile are two credentials: keep one")
	}
	if c.PassphraseFile != "" && c.IdentityFile == "" {
		say("passphraseFile needs identityFile")
	}
	switch ssh := c.IdentityFile != "" || c.KnownHostsFile != ""; {
	case fleet.IsSSH(url) && (c.IdentityFile == "" || c.KnownHostsFile == ""):
		say("an ssh url needs identityFile and knownHostsFile")
	case !fleet.IsSSH(url) && ssh:
		say("identityFile and knownHostsFile are for an ssh url")
	}
	return problems
}

// auth reads the files. Errors are fleet.ErrSource.
func (c GitConfig) auth() (fleet.Auth, error) {
	auth := fleet.Auth{Username: c.Username}
	var problems []error
	read := func(file, what string) []byte {
		if file == "" {
			return nil
		}
		data, err := readFile(context.Background(), file)
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: read the %s: %w", fleet.ErrSource, what, err))
		}
		return data
	}
	line := func(file, what string) secret.String {
		return secret.New(secret.Line(read(file, what)))
	}
	auth.CABundle = read(c.CAFile, "CA file")
	auth.Password = line(c.PasswordFile, "password file")
	auth.Bearer = line(c.BearerFile, "file of the bearer token")
	auth.Identity = secret.New(string(read(c.IdentityFile, "file of the private key")))
	auth.Passphrase = line(c.PassphraseFile, "file of the private key's passphrase")
	auth.KnownHosts = read(c.KnownHostsFile, "file of known hosts")
	return auth, errors.Join(problems...)
}

// VerifyConfig says what must be signed, and by whom.
type VerifyConfig struct {
	// Mode is as of a PoolSync: HEAD, which is the commit and the default, Tag, or
	// TagAndHEAD.
	Mode string
	// SignersFile holds the public keys of those who may sign: armored PGP keys, SSH
	// keys and lines as of OpenSSH's allowed_signers. It is read at each look.
	SignersFile string
}

type verifyEntry struct {
	Mode        string `yaml:"mode"`
	SignersFile string `yaml:"signersFile"`
}

func (e *verifyEntry) config(dir string) *VerifyConfig {
	if e == nil {
		return nil
	}
	return &VerifyConfig{Mode: e.Mode, SignersFile: from(dir, e.SignersFile)}
}

// check names every problem of what is verified of a ref.
func (c *VerifyConfig) check(ref fleet.Ref) (problems []error) {
	if c == nil {
		return nil
	}
	if c.SignersFile == "" {
		problems = append(problems, errors.New("verify needs signersFile"))
	}
	switch c.Mode {
	case "", v1alpha1.VerifyHead:
	case v1alpha1.VerifyTag, v1alpha1.VerifyTagAndHead:
		if ref.Commit != "" || ref.Tag == "" && ref.Semver == "" {
			problems = append(problems, fmt.Errorf("verify.mode %s needs ref.tag or ref.semver", c.Mode))
		}
	default:
		problems = append(problems, fmt.Errorf("verify.mode must be %s, %s or %s", v1alpha1.VerifyHead, v1alpha1.VerifyTag, v1alpha1.VerifyTagAndHead))
	}
	return problems
}

// verify says who signed a revision; empty where nobody has to.
func (c SyncConfig) verify(ctx context.Context, git *fleet.Git, revision fleet.Revision, now time.Time) (by string, err error) {
	if c.Verify == nil {
		return "", nil
	}
	data, err := readFile(ctx, c.Verify.SignersFile)
	if err != nil {
		return "", fmt.Errorf("%w: read the file of signers: %w", fleet.ErrSource, err)
	}
	signers, err := fleet.ParseSigners(map[string][]byte{filepath.Base(c.Verify.SignersFile): data})
	if err != nil {
		return "", fmt.Errorf("%w: read verify.signersFile of the hub's configuration: %w", fleet.ErrSource, err)
	}
	return git.Verify(ctx, revision, fleet.VerifyMode(c.Verify.Mode, signers, now))
}
