package hub

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/forge"
)

// StatusConfig has the hub post what becomes of each commit to the forge that
// has the repository.
type StatusConfig struct {
	// Forge is the kind of forge; left out, the repository's host tells.
	Forge forge.Kind
	// API is the address of the forge's API; left out, it is where that forge
	// has it on the repository's host.
	API string
	// TokenFile holds the forge's token. It is read again for each status.
	TokenFile string
	// CAFile holds PEM certificates that replace the system's; the sync's own
	// where left out.
	CAFile string
	// Name follows cloop/ in the status's context; "hub" where left out.
	Name string
	// Link is where people read more; the folder at that commit where left out.
	Link string
}

// WebhookConfig has the hub take the forge's push events for a sync at
// /webhooks/ and the sync's name.
type WebhookConfig struct {
	// Forge is the kind of forge; left out, the repository's host tells.
	Forge forge.Kind
	// SecretFile holds the secret that the forge signs with. It is read again
	// for each event.
	SecretFile string
}

const defaultStatusName = "hub"

// completeForge fills in what the rest of the sync tells.
func (c *SyncConfig) completeForge() {
	if s := c.Status; s != nil {
		if s.CAFile == "" {
			s.CAFile = c.CAFile
		}
		if s.Name == "" {
			s.Name = defaultStatusName
		}
	}
	if w := c.Webhook; w != nil && w.Forge == "" {
		if c.Status != nil {
			w.Forge = c.Status.Forge
		}
		if repository, err := forge.Locate(c.URL, w.Forge, ""); err == nil {
			w.Forge = repository.Kind
		}
	}
}

type statusEntry struct {
	Forge     string `yaml:"forge"`
	API       string `yaml:"api"`
	TokenFile string `yaml:"tokenFile"`
	CAFile    string `yaml:"caFile"`
	Name      string `yaml:"name"`
	Link      string `yaml:"link"`
}

func (e *statusEntry) config(dir string) *StatusConfig {
	if e == nil {
		return nil
	}
	return &StatusConfig{
		Forge: forge.Kind(e.Forge), API: e.API, TokenFile: from(dir, e.TokenFile), CAFile: from(dir, e.CAFile), Name: e.Name, Link: e.Link,
	}
}

type webhookEntry struct {
	Forge      string `yaml:"forge"`
	SecretFile string `yaml:"secretFile"`
}

func (e *webhookEntry) config(dir string) *WebhookConfig {
	if e == nil {
		return nil
	}
	return &WebhookConfig{Forge: forge.Kind(e.Forge), SecretFile: from(dir, e.SecretFile)}
}

// checkForge names every problem of a sync's status and webhook.
func (c SyncConfig) checkForge() (problems []error) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if s := c.Status; s != nil {
		if _, err := forge.Locate(c.URL, s.Forge, s.API); errors.Is(err, forge.ErrUnknownForge) {
			say("status.forge is missing: %w", err)
		} else if err != nil {
			say("status: %w", err)
		}
		if s.TokenFile == "" {
			say("status needs tokenFile")
		}
		if !syncName.MatchString(s.Name) {
			say("status.name must be lowercase letters, digits and dashes, at most 63")
		}
		if link, err := url.Parse(s.Link); s.Link != "" && (err != nil || link.Host == "" || link.Scheme != "https" && link.Scheme != "http") {
			say("status.link must be an http or https URL")
		}
	}
	if w := c.Webhook; w != nil {
		if !slices.Contains(forge.Kinds(), string(w.Forge)) {
			say("webhook.forge must be one of %s, where the host of url does not say", strings.Join(forge.Kinds(), ", "))
		}
		if w.SecretFile == "" {
			say("webhook needs secretFile")
		}
	}
	return problems
}

// statusPlace is where a sync's statuses show; empty where it posts none. Two
// syncs must not write to one place.
func (c SyncConfig) statusPlace() string {
	if c.Status == nil {
		return ""
	}
	repository, err := forge.Locate(c.URL, c.Status.Forge, c.Status.API)
	if err != nil {
		return ""
	}
	return strings.ToLower(repository.API + "/" + repository.Path + " " + c.Status.Name)
}
