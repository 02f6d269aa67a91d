package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// login is what `cloop login` keeps, for commands that name no hub.
type login struct {
	URL    string `json:"url"`
	Pin    string `json:"pin,omitempty"`
	CAFile string `json:"caFile,omitempty"`
	Token  string `json:"token"`
}

func loginFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find where logins are kept: %w", err)
	}
	return filepath.Join(dir, "cloop", "login.json"), nil
}

// readLogin returns what was kept; nothing where nobody has logged in.
func readLogin() (*login, error) {
	name, err := loginFile()
	if err != nil {
		return nil, nil //nolint:nilerr // without a home directory nobody can have logged in
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the login: %w", err)
	}
	var kept login
	if json.Unmarshal(data, &kept) != nil || kept.URL == "" {
		// The error would quote the file, which holds a token.
		return nil, fmt.Errorf("%s is no login: run `cloop login` again, or remove it", name)
	}
	return &kept, nil
}

// fromLogin fills in what neither flags nor environment say, where they name no
// other hub; an empty --hub names none.
func (o *options) fromLogin() (*login, error) {
	if o.hubNamed && o.hub == "" {
		return nil, nil
	}
	kept, err := readLogin()
	if err != nil || kept == nil || o.hub != "" && strings.TrimSuffix(o.hub, "/") != strings.TrimSuffix(kept.URL, "/") {
		return nil, err
	}
	if o.hub = kept.URL; o.hubPin == "" && o.hubCAFile == "" {
		o.hubPin, o.hubCAFile = kept.Pin, kept.CAFile
	}
	return kept, nil
}

func (a *app) newLoginCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "login --hub URL",
		Short: "Keep a hub's address, pin and your token for the commands that follow",
		Long: `Keep a hub's address, pin and your token, in a file that only you can read, for
the commands that follow; --hub with another address, and --token-file, go before
it, and an empty --hub has a command of cloop fleet do without. The token comes
from --token-file or the environment, else from standard input. cloop fleet diff
asks a hub only where --hub or the environment names one.`,
		Example: `  cloop login --hub https://cloop.example.com --hub-pin sha256:… --token-file -`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.options.hub == "" {
				return usageError(cmd, errors.New("no hub: name one with --hub URL or "+envHub))
			}
			if a.options.plainHTTP {
				return usageError(cmd, errors.New("a login is kept for an https address only: give --plain-http with each command that needs it"))
			}
			token, err := a.loginToken()
			if err != nil {
				return err
			}
			kept := login{URL: a.options.hub, Pin: a.options.hubPin, Token: token.Reveal()}
			if a.options.hubCAFile != "" {
				if kept.CAFile, err = filepath.Abs(a.options.hubCAFile); err != nil {
					return err
				}
			}
			hub, err := a.connectAs(token)
			if err != nil {
				return err
			}
			self, err := hub.Self(cmd.Context())
			if err != nil {
				return fmt.Errorf("log in at %s: %w", a.options.hub, err)
			}
			file, err := kept.save()
			if err != nil {
				return err
			}
			return a.show(self, func(w io.Writer) { say(w, "Logged in at %s as user:%s; kept in %s.\n", kept.URL, self.User, file) })
		},
	}
}

func (l login) save() (string, error) {
	name, err := loginFile()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(name, append(data, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("keep the login: %w", err)
	}
	return name, nil
}

// loginToken reads the token from where flags or environment say, else from
// standard input.
func (a *app) loginToken() (secret.String, error) {
	if a.options.tokenNamed || os.Getenv(envToken) != "" || os.Getenv(envTokenFile) != "" {
		return a.token(nil)
	}
	terminal, ok := a.stdin.(*os.File)
	if !ok || !isTerminal(terminal) {
		return a.readSecret("the token", "-")
	}
	say(a.stderr, "Token: ")
	defer say(a.stderr, "\n")
	line, err := readUnseen(terminal)
	if err != nil {
		return secret.String{}, fmt.Errorf("read the token: %w", err)
	}
	return oneLineSecret("the token", "what you typed", line)
}

// readUnseen reads a line that the terminal does not show.
func readUnseen(terminal *os.File) ([]byte, error) {
	fd := int(terminal.Fd())
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	quiet := *was
	quiet.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &quiet); err != nil {
		return nil, err
	}
	defer func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }()
	return bufio.NewReader(io.LimitReader(terminal, maxTokenBytes)).ReadBytes('\n')
}

func (a *app) newLogoutCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget what login kept; the token stays live until it is revoked",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			name, err := loginFile()
			if err != nil {
				return err
			}
			if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("forget the login: %w", err)
			}
			say(a.stdout, "Logged out. `cloop hub token revoke` ends a token.\n")
			return nil
		},
	}
	textOnly(cmd)
	return cmd
}

func (a *app) newWhoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who the hub takes you for, and what you may do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, "ask who asks", func(ctx context.Context, hub *hubclient.Client) (hubv1.Identity, error) { return hub.Self(ctx) },
				func(w io.Writer, self hubv1.Identity) {
					row(w, "User:", self.User)
					row(w, "Groups:", dash(strings.Join(self.Groups, ", ")))
					printBindings(w, "Role:", self.Roles)
					row(w, "May, everywhere:", dash(permissionNames(self.Permissions)))
					row(w, "Token:", fmt.Sprintf("%s (%s), %s", self.Token.ID, self.Token.Name, tokenState(time.Now(), self.Token)))
					row(w, "Ceiling:", dash(ceilingText(self.Token.Ceiling)))
				})
		},
	}
}
