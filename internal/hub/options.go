package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

// Options of a hub. The zero value of a time stands for its default.
type Options struct {
	// Addr to listen on; ":8443" where left out.
	Addr string
	// DataDir holds the database, the certificates and the clones. One hub at a
	// time uses it.
	DataDir string
	// DatabaseURL, if set, is of a PostgreSQL database that takes the place of the
	// one in DataDir. Other hubs may use it at the same time, each with a DataDir
	// of its own.
	DatabaseURL secret.String
	// TLSCert and TLSKey are PEM files. Left out, the hub makes a certificate
	// authority and a certificate for itself and keeps them in DataDir/tls.
	TLSCert, TLSKey string
	// Names are host names and addresses that clients use, for the certificate
	// that the hub makes, beside localhost and the machine's own name.
	Names []string
	// ConfigFile is YAML; see Config.
	ConfigFile string
	// AdminTokenFile takes the first admin token, with mode 0600. Left out, the
	// token is printed once on standard output.
	AdminTokenFile string
	// Build is the hub's release, or "edge" and what it was built from; "edge"
	// where left out.
	Build string
	Clock clock.WithTicker
	Log   *slog.Logger
	// Syncs are followed beside those of ConfigFile.
	Syncs []SyncConfig
	// HeartbeatInterval is how often runners report; 10 s where left out.
	HeartbeatInterval time.Duration
	// Lease, Margin, TokenTTL, StartTimeout, CancelTimeout and IdleRetire are
	// explained and defaulted by store.Limits.
	Lease, Margin, TokenTTL, StartTimeout, CancelTimeout, IdleRetire time.Duration
	// DrainDelay is how long the hub, told to stop, goes on as before but says that
	// it is not ready; not at all where left out.
	DrainDelay time.Duration
	// DrainTime is how long requests in progress may take after that; 5 s where
	// left out.
	DrainTime time.Duration
	// Retention is explained and defaulted by store.Retention. Left out, it is
	// that of ConfigFile.
	Retention store.Retention
	// Rates bound what one client may ask; explained and defaulted by api.Rates.
	// Left out, they are those of ConfigFile.
	Rates api.Rates
	// Waiting is how many runs may wait; explained and defaulted by store.Waiting.
	// Left out, it is that of ConfigFile.
	Waiting store.Waiting
	// Projects is how the hub looks at projects' repositories. Left out, it is that
	// of ConfigFile.
	Projects ProjectsConfig
	// Room says how much room the disk of a directory has; the system's own answer
	// where left out.
	Room func(dir string) doctor.Disk
	// Ready, if set, is called once when the hub listens, with its address and
	// the pin of its key.
	Ready func(addr, pin string)
}

const (
	defaultAddr      = ":8443"
	defaultHeartbeat = 10 * time.Second
	defaultDrain     = 5 * time.Second
)

// complete fills in defaults and names every problem.
func (o *Options) complete() error {
	if o.Addr == "" {
		o.Addr = defaultAddr
	}
	if o.Build == "" {
		o.Build = "edge"
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Room == nil {
		o.Room = diskOf
	}
	if o.HeartbeatInterval <= 0 {
		o.HeartbeatInterval = defaultHeartbeat
	}
	if o.DrainTime <= 0 {
		o.DrainTime = defaultDrain
	}
	var problems []error
	if o.DrainDelay < 0 {
		problems = append(problems, errors.New("the drain delay is negative: say how long the hub goes on after it was told to stop"))
	}
	if o.DataDir == "" {
		problems = append(problems, errors.New("no data directory: say where the hub keeps its database"))
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		problems = append(problems, errors.New("a TLS certificate needs its key and a key its certificate: give both or neither"))
	}
	if limits := o.limits().Defaults(); o.HeartbeatInterval*2 >= limits.Lease-limits.Margin {
		problems = append(problems, fmt.Errorf("the lease of %s less its margin of %s is not longer than two heartbeats of %s: a single lost heartbeat would lose runs",
			limits.Lease, limits.Margin, o.HeartbeatInterval))
	}
	if o.ConfigFile != "" {
		data, err := os.ReadFile(o.ConfigFile)
		if err != nil {
			problems = append(problems, fmt.Errorf("read the hub's configuration: %w", err))
		} else if config, err := ParseConfig(o.ConfigFile, data); err != nil {
			problems = append(problems, err)
		} else {
			o.Syncs = append(config.Syncs, o.Syncs...)
			o.Names = append(config.Names, o.Names...)
			if o.Retention == (store.Retention{}) {
				o.Retention = config.Retention
			}
			if o.Projects.CAFile == "" && len(o.Projects.Hosts) == 0 {
				o.Projects = config.Projects
			}
			if o.Rates == (api.Rates{}) {
				o.Rates = config.Rates
			}
			if o.Waiting == (store.Waiting{}) {
				o.Waiting = config.Waiting
			}
		}
	}
	for i := range o.Syncs {
		o.Syncs[i].complete()
	}
	problems = append(problems, checkSyncs(o.Syncs)...)
	return errors.Join(problems...)
}

func (o *Options) limits() store.Limits {
	return store.Limits{
		TokenTTL: o.TokenTTL, Lease: o.Lease, Margin: o.Margin, StartTimeout: o.StartTimeout,
		CancelTimeout: o.CancelTimeout, IdleRetire: o.IdleRetire, Waiting: o.Waiting, Retention: o.Retention,
	}
}
