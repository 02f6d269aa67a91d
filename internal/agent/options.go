package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Variables that the controller sets in a runner Pod.
const (
	EnvHubURL         = "CLOOP_HUB_URL"
	EnvHubCAPin       = "CLOOP_HUB_CA_PIN"
	EnvHubCAFile      = "CLOOP_HUB_CA_FILE"
	EnvGitCAFile      = "CLOOP_GIT_CA_FILE"
	EnvTokenFile      = "CLOOP_RUNNER_TOKEN_FILE" //nolint:gosec // the name of a variable
	EnvName           = "CLOOP_RUNNER_NAME"
	EnvHome           = "CLOOP_RUNNER_HOME"
	EnvWorkspace      = "CLOOP_RUNNER_WORKSPACE"
	EnvTmp            = "CLOOP_RUNNER_TMP"
	EnvTerminationLog = "CLOOP_TERMINATION_LOG"
)

// Options of a runner. The first group comes from the Pod's environment.
type Options struct {
	// HubURL is where the hub is, https.
	HubURL string
	// HubCAPin holds the connection to one key of the hub; may be empty.
	HubCAPin string
	// HubCAFile holds PEM certificates that are trusted for the hub, and for Git
	// where GitCAFile is empty, in addition to the system's; may be empty.
	HubCAFile string
	// GitCAFile is the same for the project's Git server; may be empty.
	GitCAFile string
	// TokenFile holds the token that enrolls this runner once.
	TokenFile string
	// Name of the runner's Pod.
	Name string
	// Home is the command's HOME.
	Home string
	// Workspace is where the project is checked out, in a directory of its own.
	Workspace string
	// Tmp is the command's TMPDIR. The agent's own scratch is there too.
	Tmp string
	// TerminationLog is where Kubernetes reads the report; empty: no report.
	TerminationLog string

	// Environ is what the command inherits, without CLOOP_ variables; the
	// process's own environment where left out.
	Environ []string
	// Build is the version that the hub is told.
	Build string
	Clock clock.WithTicker
	Log   *slog.Logger

	// TokenLife is how long to try to reach the hub before the token has surely
	// expired; 15 minutes where left out.
	TokenLife time.Duration
	// InterruptGrace is how long a command may take to end after SIGINT, and
	// TerminateGrace after the SIGTERM that follows; 10 s and 5 s where left
	// out, which together fit the 30 s that Kubernetes gives a Pod.
	InterruptGrace, TerminateGrace time.Duration
	// DrainGrace is how long output is waited for after the command has ended,
	// when something that it left behind still holds the pipe; 2 s where left
	// out.
	DrainGrace time.Duration
	// SpoolBytes bounds the log that waits for the hub; a command that is
	// further ahead is held up. 64 MiB where left out.
	SpoolBytes int64
}

// OptionsFromEnv reads the options that a runner Pod's environment holds. The
// error names every problem at once.
func OptionsFromEnv(getenv func(string) string) (Options, error) {
	var problems []error
	problem := func(name, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s %s", name, fmt.Sprintf(format, args...)))
	}
	path := func(name string, required bool) string {
		value := getenv(name)
		switch {
		case value == "" && required:
			problem(name, "is not set")
		case value != "" && !filepath.IsAbs(value):
			problem(name, "is not an absolute path: %q", value)
		}
		return value
	}
	o := Options{
		HubURL:         getenv(EnvHubURL),
		HubCAPin:       getenv(EnvHubCAPin),
		HubCAFile:      path(EnvHubCAFile, false),
		GitCAFile:      path(EnvGitCAFile, false),
		TokenFile:      path(EnvTokenFile, true),
		Name:           getenv(EnvName),
		Home:           path(EnvHome, true),
		Workspace:      path(EnvWorkspace, true),
		Tmp:            path(EnvTmp, true),
		TerminationLog: path(EnvTerminationLog, false),
	}
	if o.Name == "" {
		problem(EnvName, "is not set")
	}
	if o.HubURL == "" {
		problem(EnvHubURL, "is not set")
	} else if hub, err := url.Parse(o.HubURL); err != nil || hub.Scheme != "https" || hub.Host == "" || hub.User != nil {
		// The value is not quoted: it may hold a password.
		problem(EnvHubURL, "is not a URL of the form https://HOST[:PORT]")
	}
	if o.HubCAPin != "" && !strings.HasPrefix(o.HubCAPin, "sha256:") {
		problem(EnvHubCAPin, "does not begin with sha256: (cloop hub pin prints it)")
	}
	if len(problems) > 0 {
		return Options{}, fmt.Errorf("the environment is not a runner's; the executor controller sets it: %w", errors.Join(problems...))
	}
	return o, nil
}

// Defaults of Options.
const (
	defaultTokenLife      = 15 * time.Minute
	defaultInterruptGrace = 10 * time.Second
	defaultTerminateGrace = 5 * time.Second
	defaultDrainGrace     = 2 * time.Second
	defaultSpoolBytes     = 64 << 20
)

func (o Options) withDefaults() Options {
	duration := func(value *time.Duration, otherwise time.Duration) {
		if *value <= 0 {
			*value = otherwise
		}
	}
	duration(&o.TokenLife, defaultTokenLife)
	duration(&o.InterruptGrace, defaultInterruptGrace)
	duration(&o.TerminateGrace, defaultTerminateGrace)
	duration(&o.DrainGrace, defaultDrainGrace)
	if o.SpoolBytes <= 0 {
		o.SpoolBytes = defaultSpoolBytes
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}
