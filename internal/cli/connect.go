package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// Environment variables that stand in for global flags.
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

// connect makes the client of the hub that flags and environment name.
func (a *app) connect() (*hubclient.Client, error) {
	o := hubclient.Options{
		URL:       flagOrEnv(a.options.hub, envHub),
		Pin:       flagOrEnv(a.options.hubPin, envHubPin),
		UserAgent: "cloop/" + buildVersion().Version,
	}
	if o.URL == "" {
		return nil, errors.New("no hub: name one with --hub URL or " + envHub)
	}
	if name := flagOrEnv(a.options.hubCAFile, envHubCAFile); name != "" {
		bundle, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the hub's certificates: %w", err)
		}
		o.CABundle = bundle
	}
	var err error
	if o.Token, err = a.token(); err != nil {
		return nil, err
	}
	return hubclient.New(o)
}

// token reads the token from where it may stand: never an argument.
func (a *app) token() (secret.String, error) {
	name := a.options.tokenFile
	if name == "" {
		if token := os.Getenv(envToken); token != "" {
			return secret.New(token), nil
		}
		name = os.Getenv(envTokenFile)
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
	content = bytes.TrimSpace(content)
	if len(content) == 0 {
		return secret.String{}, fmt.Errorf("read %s: %s is empty", what, name)
	}
	return secret.New(string(content)), nil
}

func flagOrEnv(flag, env string) string {
	if flag != "" {
		return flag
	}
	return os.Getenv(env)
}
