package cli

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newHubCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "hub", Short: "The hub: it knows pools, projects and runs"}
	serve := a.newHubServeCommand()
	textOnly(serve)
	reset := a.newHubResetAdminCommand()
	textOnly(reset)
	cmd.AddCommand(
		serve, a.newHubPinCommand(), a.newHubDoctorCommand(), reset,
		a.newHubSyncCommand(), a.newUserCommand(), a.newGroupCommand(), a.newRoleCommand(), a.newTokenCommand(), a.newWhoamiCommand(), a.newAuditCommand(),
	)
	return cmd
}

func (a *app) newHubServeCommand() *cobra.Command {
	var o hub.Options
	var database, databaseFile string
	cmd := &cobra.Command{
		Use:   "serve --data-dir DIR",
		Short: "Serve the hub over HTTPS until it is told to stop",
		Long: `Serve the hub over HTTPS until it is told to stop. It keeps everything in one
SQLite database in the data directory, or in a PostgreSQL database, which several
hubs can share: give its URL to each. Its log, one JSON object a line on standard
error, tells the pin of its key.

The configuration file names the fleet repositories that the hub follows:

  sync:
    - name: fleet
      url: https://git.example.com/platform/fleet.git
      ref: {branch: main}
      path: ./hub
      interval: 1m
      username: hub                 # with passwordFile, for a private one
      passwordFile: /etc/cloop/git-password
      caFile: /etc/cloop/git-ca.pem
      # bearerFile in place of the two. A url of ssh, such as ssh://git@HOST/PATH, has
      # identityFile (passphraseFile) and knownHostsFile
      verify: {mode: HEAD, signersFile: /etc/cloop/signers}   # only what they signed
      allow:                        # what its committers can define
        names: ["ml-*"]
        maxRunners: 50
        labels: ["gpu=*"]
        audience: ["group:ml-*"]
        owners: ["group:ml-*"]
      pruneLimit: {count: 5, percent: 20}   # more pools do not go with one commit (default)

how it looks at the repositories of projects, which it asks what a run needs
of its runner; what it cannot read, the runner finds out:

  projects:
    caFile: /etc/cloop/git-ca.pem   # trusted beside the system's
    hosts: ["*.example.com"]        # the only servers to ask (default: any)

and how long the hub keeps what is over, here with the defaults; forever keeps
it. Nothing that is not over is ever removed:

  retention:
    logs: 30d                       # of a run, after its end
    runs: 90d                       # after their end, but always
    runsPerProject: 100             # the newest ones of each project
    runners: 7d                     # after they were retired
    tokens: 90d                     # of users, after they ended; removed users
    audit: 365d                     # of runs and runners; the rest is kept

and how often the hub serves one client, here with the defaults:

  limits:
    users: {perSecond: 200, burst: 2000}      # of one token
    machines: {perSecond: 1000, burst: 5000}  # of one controller or runner
    failures: {perSecond: 1, burst: 60}       # of one address, not accepted
    watches: 1000                             # open at a time with one credential
    waiting: {perUser: 1000, perProject: 2000, perPool: 10000}   # runs in the queue
    answers: {perUser: 8, all: 64}            # to people, under way at a time`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log, o.Build = a.logger(), buildVersion().Version
			var err error
			if o.DatabaseURL, err = a.databaseURL(database, databaseFile); err != nil {
				return usageError(cmd, err)
			}
			if err := hub.Run(cmd.Context(), o); err != nil {
				return fmt.Errorf("serve the hub: %w", err)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Addr, "addr", ":8443", "`HOST:PORT` to listen on")
	flags.StringVar(&o.DataDir, "data-dir", "", "`DIR` with the database, certificates and clones")
	flags.StringVar(&database, "database-url", "", "`URL` of a PostgreSQL database, without a password: postgres://USER@HOST:5432/DATABASE (default: SQLite in the data directory)")
	flags.StringVar(&databaseFile, "database-url-file", "", "`FILE` with the URL of a PostgreSQL database ($"+envDatabaseURL+" holds the URL itself)")
	flags.StringVar(&o.ConfigFile, "config", "", "YAML `FILE` with the fleet repositories to follow and what to keep")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "PEM `FILE` with the certificate, read again when it changes (default: one of its own, kept in the data directory)")
	flags.StringVar(&o.TLSKey, "tls-key", "", "PEM `FILE` with the certificate's key")
	flags.StringSliceVar(&o.Names, "name", nil, "`HOST` that clients reach the hub by, for its own certificate; several times")
	flags.StringVar(&o.AdminTokenFile, "admin-token-file", "", "`FILE` for the first admin token (default: shown once on standard output)")
	flags.DurationVar(&o.DrainDelay, "drain-delay", 0, "how long the hub, told to stop, goes on while /readyz says that it stops, for load balancers to see it")
	flags.DurationVar(&o.DrainTime, "drain-time", 5*time.Second, "how long requests in progress may take after that")
	limits := store.Limits{}.Defaults()
	for _, setting := range []struct {
		name  string
		value *time.Duration
		other time.Duration
		usage string
	}{
		{"heartbeat-interval", &o.HeartbeatInterval, 10 * time.Second, "how often a runner reports"},
		{"lease", &o.Lease, limits.Lease, "how long a silent runner is trusted"},
		{"margin", &o.Margin, limits.Margin, "how long before its lease ends a runner kills its run, and how long after it the hub acts"},
		{"token-ttl", &o.TokenTTL, limits.TokenTTL, "how long a runner token can be redeemed"},
		{"start-timeout", &o.StartTimeout, limits.StartTimeout, "how long a runner may take to start a run that it was handed"},
		{"cancel-timeout", &o.CancelTimeout, limits.CancelTimeout, "how long a runner may take to stop a run"},
		{"idle-retire", &o.IdleRetire, limits.IdleRetire, "how long a runner waits for a run before the hub retires it"},
	} {
		flags.DurationVar(setting.value, setting.name, setting.other, setting.usage)
	}
	return cmd
}

func (a *app) newHubResetAdminCommand() *cobra.Command {
	var o hub.Options
	var databaseFile string
	cmd := &cobra.Command{
		Use: "reset-admin --data-dir DIR",
		Example: `  cloop hub reset-admin --data-dir /var/lib/cloop --admin-token-file /etc/cloop/admin-token
  cloop hub reset-admin --data-dir /var/lib/cloop --database-url-file /etc/cloop/database-url`,
		Short: "Replace the tokens of user admin, at the hub's machine while the hub is stopped",
		Long: `Replace the tokens of user admin by a new one and give the user the role admin
back: for whoever has lost every token that may do so. The hub must be stopped,
with PostgreSQL every hub that uses the database, and the audit trail says that
it was done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Log = a.logger()
			var err error
			if o.DatabaseURL, err = a.databaseURL("", databaseFile); err != nil {
				return err
			}
			if err := hub.ResetAdmin(cmd.Context(), o); err != nil {
				return fmt.Errorf("reset the admin token: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&o.DataDir, "data-dir", "", "`DIR` of the hub")
	cmd.Flags().StringVar(&databaseFile, "database-url-file", "", "`FILE` with the URL of the hub's PostgreSQL database ($"+envDatabaseURL+" holds the URL itself)")
	cmd.Flags().StringVar(&o.AdminTokenFile, "admin-token-file", "", "`FILE` for the new token (default: shown once on standard output)")
	return cmd
}

func (a *app) newHubPinCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "pin [URL] [--cert FILE…]",
		Short: "Print the pin of the key that a hub shows",
		Long: `Connect to a hub, by its URL or --hub, and print the pin of the key that it
shows. Nothing vouches for the key: compare the pin with what the hub logged at
its start before you rely on it.

With --cert print the pins of certificates in files instead, for instance of the
one that the hub is to show next: controllers need it before the hub shows it.`,
		Example: `  cloop hub pin https://cloop.example.com
  cloop hub pin --cert /etc/cloop/tls.crt`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(files) > 0 {
				if len(args) > 0 || cmd.Flags().Changed("hub") {
					return usageError(cmd, errors.New("a hub and files: ask for one of them"))
				}
				return a.pinFiles(files)
			}
			url := a.options.hub
			if len(args) == 1 {
				if cmd.Flags().Changed("hub") && url != args[0] {
					return usageError(cmd, errors.New("two hubs: give the URL as the argument or with --hub"))
				}
				url = args[0]
			}
			if url == "" {
				return usageError(cmd, errors.New("no hub: give its URL"))
			}
			pin, err := hubclient.FetchPin(cmd.Context(), url)
			if err != nil {
				return fmt.Errorf("read the key of %s: %w", url, err)
			}
			return a.show(hubKey{url, pin}, func(w io.Writer) { say(w, "%s\n", pin) })
		},
	}
	cmd.Flags().StringSliceVar(&files, "cert", nil, "PEM `FILE` with a certificate, several times")
	return cmd
}

// hubKey is the key that a hub shows.
type hubKey struct {
	// URL of the hub.
	URL string `json:"url"`
	// Pin of its key, for --hub-pin.
	Pin string `json:"pin"`
}

// fileKeys are the keys of certificates.
type fileKeys struct {
	Items []filePin `json:"items"`
}

// filePin is the pin of a certificate in a file.
type filePin struct {
	// File with the certificate, and Pin of its key.
	File string `json:"file"`
	Pin  string `json:"pin"`
}

// pinFiles shows the pin of each file's first certificate, which is the one that
// a server shows as its own.
func (a *app) pinFiles(files []string) error {
	var shown fileKeys
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
		block, _ := pem.Decode(data)
		if block == nil || block.Type != "CERTIFICATE" {
			return fmt.Errorf("read the certificate: %s begins with no PEM certificate", file)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("read the certificate in %s: %w", file, err)
		}
		shown.Items = append(shown.Items, filePin{file, hubclient.Pin(certificate)})
	}
	return a.show(shown, func(w io.Writer) {
		for _, item := range shown.Items {
			say(w, "%s\n", item.Pin)
		}
	})
}
