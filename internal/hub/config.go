package hub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/store"
)

// Config is the hub's configuration file.
type Config struct {
	// Names are added to the certificate that the hub makes for itself.
	Names []string
	Syncs []SyncConfig
	// Retention is how long what is over is kept; the zero value of each part
	// stands for its default.
	Retention store.Retention
	// Rates bound what one client may ask, with defaults of the same kind.
	Rates api.Rates
	// Waiting is how many runs may wait, likewise.
	Waiting  store.Waiting
	Projects ProjectsConfig
}

// ProjectsConfig is how the hub looks at projects' repositories. What it cannot
// read, runners find out.
type ProjectsConfig struct {
	// CAFile holds PEM certificates that are trusted beside the system's.
	CAFile string
	// Hosts are patterns, as of path.Match, of the only servers that the hub
	// asks; any where left out.
	Hosts []string
}

func (c ProjectsConfig) check() []error {
	var problems []error
	for _, pattern := range c.Hosts {
		if _, err := path.Match(pattern, ""); err != nil {
			problems = append(problems, fmt.Errorf("projects.hosts: %q is no pattern", pattern))
		}
	}
	return problems
}

// certificates reads CAFile.
func (c ProjectsConfig) certificates() ([]byte, error) {
	if c.CAFile == "" {
		return nil, nil
	}
	data, err := readFile(context.Background(), c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read projects.caFile of the hub's configuration: %w", err)
	}
	return data, nil
}

// SyncConfig is one fleet repository that the hub follows.
type SyncConfig struct {
	Name string
	// URL of the repository: https without user information, or ssh.
	URL string
	GitConfig
	// Verify applies only what somebody known has signed; nil: anything.
	Verify *VerifyConfig
	Ref    fleet.Ref
	// Path of the kustomization in the repository; its root where left out.
	Path string
	// Interval between two looks at the repository; 1m where left out.
	Interval time.Duration
	// Allow bounds what a committer can define.
	Allow hubv1.Ceiling
	// PruneLimit bounds how many pools one commit removes; prunelimit.Default where left out.
	PruneLimit *prunelimit.Limit
	// Status and Webhook tie the sync to the repository's forge; nil: not.
	Status  *StatusConfig
	Webhook *WebhookConfig
}

const (
	defaultInterval = time.Minute
	minInterval     = time.Second
)

func (c *SyncConfig) complete() {
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	c.Path = strings.TrimPrefix(path.Clean("/"+c.Path), "/")
	if c.Path == "" {
		c.Path = "."
	}
	if c.PruneLimit == nil {
		c.PruneLimit = &prunelimit.Default
	}
	c.completeForge()
}

// configFile is Config as it is written.
type configFile struct {
	Names     []string       `yaml:"names"`
	Sync      []syncEntry    `yaml:"sync"`
	Retention retentionEntry `yaml:"retention"`
	Projects  struct {
		CAFile string   `yaml:"caFile"`
		Hosts  []string `yaml:"hosts"`
	} `yaml:"projects"`
	Limits limitsEntry `yaml:"limits"`
}

type syncEntry struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	Ref  struct {
		Branch string `yaml:"branch"`
		Tag    string `yaml:"tag"`
		Semver string `yaml:"semver"`
		Commit string `yaml:"commit"`
	} `yaml:"ref"`
	Verify   *verifyEntry `yaml:"verify"`
	gitEntry `yaml:",inline"`
	Path     string `yaml:"path"`
	Interval string `yaml:"interval"`
	Allow    struct {
		Names      []string `yaml:"names"`
		MaxRunners int32    `yaml:"maxRunners"`
		Labels     []string `yaml:"labels"`
		Audience   []string `yaml:"audience"`
		Owners     []string `yaml:"owners"`
	} `yaml:"allow"`
	PruneLimit pruneEntry    `yaml:"pruneLimit"`
	Status     *statusEntry  `yaml:"status"`
	Webhook    *webhookEntry `yaml:"webhook"`
}

// ParseConfig reads the configuration and names every problem in it. Relative
// paths are taken from the file's directory.
func ParseConfig(file string, data []byte) (Config, error) {
	var in configFile
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	if err := decoder.Decode(new(configFile)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: more than one document: keep one", file)
	}
	out := Config{Names: in.Names, Projects: ProjectsConfig{CAFile: from(filepath.Dir(file), in.Projects.CAFile), Hosts: in.Projects.Hosts}}
	var problems []error
	for _, problem := range out.Projects.check() {
		problems = append(problems, fmt.Errorf("%s: %w", file, problem))
	}
	var err error
	if out.Retention, err = in.Retention.retention(); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", file, err))
	}
	if out.Rates, err = in.Limits.rates(); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", file, err))
	}
	if out.Waiting, err = in.Limits.waiting(); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", file, err))
	}
	for i, entry := range in.Sync {
		sync, err := entry.config(filepath.Dir(file))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: sync[%d]: %w", file, i, err))
		}
		sync.complete()
		out.Syncs = append(out.Syncs, sync)
	}
	for _, problem := range checkSyncs(out.Syncs) {
		problems = append(problems, fmt.Errorf("%s: %w", file, problem))
	}
	return out, errors.Join(problems...)
}

func (e syncEntry) config(dir string) (SyncConfig, error) {
	out := SyncConfig{
		Name: e.Name, URL: e.URL, Ref: fleet.Ref(e.Ref), Path: e.Path,
		GitConfig: e.gitEntry.config(dir), Verify: e.Verify.config(dir), Allow: hubv1.Ceiling(e.Allow),
		Status: e.Status.config(dir), Webhook: e.Webhook.config(dir), PruneLimit: e.PruneLimit.limit(),
	}
	if e.Interval == "" {
		return out, nil
	}
	interval, err := time.ParseDuration(e.Interval)
	if err != nil {
		return out, fmt.Errorf("interval %q is no duration: write 30s or 5m", e.Interval)
	}
	out.Interval = interval
	if interval == 0 {
		return out, errors.New("interval must not be 0: write 30s or 5m")
	}
	return out, nil
}

// pruneEntry is a limit as it is written; what is left out has its default.
type pruneEntry struct {
	Count   *int `yaml:"count"`
	Percent *int `yaml:"percent"`
}

func (e pruneEntry) limit() *prunelimit.Limit {
	out := prunelimit.Default
	if e.Count != nil {
		out.Count = *e.Count
	}
	if e.Percent != nil {
		out.Percent = *e.Percent
	}
	return &out
}

func from(dir, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

var (
	syncName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// checkSyncs names every problem of the syncs.
func checkSyncs(syncs []SyncConfig) []error {
	var problems []error
	seen := map[string]bool{}
	// places: where statuses show → the sync that posts there.
	places := map[string]string{}
	for i, c := range syncs {
		at := fmt.Sprintf("sync[%d] %q: ", i, c.Name)
		say := func(format string, args ...any) { problems = append(problems, fmt.Errorf(at+format, args...)) }
		if !syncName.MatchString(c.Name) {
			say("name must be lowercase letters, digits and dashes, at most 63")
		}
		if seen[c.Name] {
			say("another sync has the name")
		}
		seen[c.Name] = true
		for _, problem := range c.check(c.URL) {
			say("%w", problem)
		}
		for _, problem := range c.Verify.check(c.Ref) {
			say("%w", problem)
		}
		if c.Ref.Semver != "" {
			if err := fleet.CheckRange(c.Ref.Semver); err != nil {
				say("ref.semver: %w: write one such as >=1.0.0 <2.0.0", err)
			}
		}
		if c.Ref.Commit != "" && !commitHash.MatchString(c.Ref.Commit) {
			say("ref.commit must be 40 hexadecimal digits")
		}
		if c.Interval < minInterval {
			say("interval must be at least %s", minInterval)
		}
		if l := c.PruneLimit; l != nil && (l.Count < 0 || l.Percent < 0 || l.Percent > 100) {
			say("pruneLimit must have a count of at least 0 and a percent between 0, which is no bound, and 100")
		}
		for _, faulty := range access.CheckCeiling("allow", c.Allow) {
			say("%s: %s", faulty.Location, faulty.Message)
		}
		for _, problem := range c.checkForge() {
			say("%w", problem)
		}
		if place := c.statusPlace(); place != "" {
			if other, taken := places[place]; taken {
				say("sync %s posts statuses of that name to the same repository: give one of them another status.name", other)
			}
			places[place] = c.Name
		}
	}
	return problems
}
