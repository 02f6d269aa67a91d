package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// Environment variables that stand in for global flags. A flag that is given
// wins, also an empty one: that is how one command does without what the
// environment says.
const (
	envHub       = "CLOOP_HUB"
	envHubCAFile = "CLOOP_HUB_CA_FILE"
	envHubPin    = "CLOOP_HUB_PIN"
	// envToken holds the token itself, for CI systems that inject secrets so.
	envToken     = "CLOOP_TOKEN"
	envTokenFile = "CLOOP_TOKEN_FILE"
)

// maxTokenBytes is far above any token; a file beyond it is not one.
const maxTokenBytes = 64 << 10

// fromEnvironment fills in what no flag says. The token is left where it is:
// most commands need none.
func (o *options) fromEnvironment(flags *pflag.FlagSet) {
	for _, setting := range []struct {
		flag, env string
		value     *string
	}{
		{"hub", envHub, &o.hub}, {"hub-ca-file", envHubCAFile, &o.hubCAFile}, {"hub-pin", envHubPin, &o.hubPin},
	} {
		if !flags.Changed(setting.flag) {
			*setting.value = os.Getenv(setting.env)
		}
	}
	o.hubNamed, o.tokenNamed = flags.Changed("hub"), flags.Changed("token-file")
}

// connect makes the client of the hub that flags, environment or login name.
func (a *app) connect() (*hubclient.Client, error) {
	kept, err := a.options.fromLogin()
	if err != nil {
		return nil, err
	}
	if a.options.hub == "" {
		return nil, errors.New("no hub: name one with --hub URL or " + envHub + ", or log in with `cloop login`")
	}
	token, err := a.token(kept)
	if err != nil {
		return nil, err
	}
	return a.connectAs(token)
}

// connectAs makes the client of the hub that the options name.
func (a *app) connectAs(token secret.String) (*hubclient.Client, error) {
	o := hubclient.Options{
		URL: a.options.hub, PlainHTTP: a.options.plainHTTP, Pin: a.options.hubPin, Token: token,
		UserAgent: "cloop/" + buildVersion().Version, Retry: hubRetry(),
	}
	var err error
	if o.CABundle, err = a.caBundle(); err != nil {
		return nil, err
	}
	return hubclient.New(o)
}

// hubRetry is for a connection that breaks now and then, and for a hub that is
// being started again: it is over before a person wonders.
func hubRetry() hubclient.Retry {
	return hubclient.Retry{Tries: 4, First: 250 * time.Millisecond, Last: 2 * time.Second}
}

// caBundle reads the certificates that alone are trusted for the hub; nil: the
// system's are.
func (a *app) caBundle() ([]byte, error) {
	if a.options.hubCAFile == "" {
		return nil, nil
	}
	bundle, err := os.ReadFile(a.options.hubCAFile)
	if err != nil {
		return nil, fmt.Errorf("read the hub's certificates: %w", err)
	}
	return bundle, nil
}

// token reads the token from where it may stand: never an argument. The one of a
// login is the last resort.
func (a *app) token(kept *login) (secret.String, error) {
	name := a.options.tokenFile
	if !a.options.tokenNamed {
		token := os.Getenv(envToken)
		name = os.Getenv(envTokenFile)
		switch {
		case token != "" && name != "":
			// Either may be a leftover, and the wrong one acts as somebody else.
			return secret.String{}, fmt.Errorf("%s and %s are both set: unset one of them, or name the file with --token-file", envToken, envTokenFile)
		case token != "":
			return oneLineSecret("the token", envToken, []byte(token))
		}
	}
	if name == "" && kept != nil && !a.options.tokenNamed {
		return oneLineSecret("the token", "the login", []byte(kept.Token))
	}
	if name == "" {
		return secret.String{}, errors.New("no token for the hub: name a file with --token-file, or set " + envToken + " or " + envTokenFile)
	}
	return a.readSecret("the token", name)
}

// readSecret reads a secret from a file, or from standard input where the name
// is "-".
func (a *app) readSecret(what, name string) (secret.String, error) {
	source := a.stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return secret.String{}, fmt.Errorf("read %s: %w", what, err)
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	content, err := io.ReadAll(io.LimitReader(source, maxTokenBytes))
	if err != nil {
		return secret.String{}, fmt.Errorf("read %s from %s: %w", what, name, err)
	}
	return oneLineSecret(what, name, content)
}

// oneLineSecret refuses what no server takes in a header, without showing it.
func oneLineSecret(what, source string, content []byte) (secret.String, error) {
	content = bytes.TrimSpace(content)
	switch {
	case len(content) == 0:
		return secret.String{}, fmt.Errorf("read %s: %s is empty", what, source)
	case bytes.ContainsAny(content, "\r\n"):
		return secret.String{}, fmt.Errorf("read %s: %s has several lines: leave only the one with the token", what, source)
	case bytes.ContainsFunc(content, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return secret.String{}, fmt.Errorf("read %s: %s has a control character in it: write the token alone", what, source)
	}
	return secret.New(string(content)), nil
}
