package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/filelock"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/source"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// maxStreams bounds the requests and watches of one connection at a time, and
	// so what one client's connection can hold of the hub; a client that needs
	// more opens another, as Go's does by itself.
	maxStreams = 1000
)

// Run serves until the context ends. It returns nil when it was told to stop.
func Run(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	unlock, err := lock(o.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	used := o.used()
	m := newMetrics()
	data, err := store.Open(ctx, store.Options{
		Compare: fleet.HubDrift,
		Dir:     o.DataDir, URL: o.DatabaseURL.Reveal(), Member: store.Member{Build: o.Build, Address: o.Addr}, Clock: o.Clock, Limits: o.limits(),
		Observe: func(e store.Event) { m.observe(e); logEvent(o.Log, e) },
		Trouble: func(err error) { logTrouble(o.Log, err) },
		Uptime:  o.uptime(), Refused: m.mintRefused, Committed: m.committed,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := data.Close(); err != nil {
			o.Log.Error("database is not closed", "error", err)
		}
	}()
	if used {
		if err := o.refuseBlank(ctx, data); err != nil {
			return err
		}
	}
	if err := data.EnsureAdmin(ctx, o.deliverAdmin); err != nil {
		return errors.Join(fmt.Errorf("make the first admin token: %w", err), data.Abandon(ctx))
	}
	return serve(ctx, o, data, m)
}

// parts are what serves.
type parts struct {
	Options
	store   *store.Store
	metrics *metrics
	syncs   *syncs
	sources *source.Reader
	certs   *certificates
	ready   *readiness
	// began is when the hub started.
	began time.Time
	// stopping is closed when streams are to end.
	stopping chan struct{}
}

// ResetAdmin replaces the admin token of a hub that does not run: for whoever
// holds its machine and has lost every token. It delivers the new one as the
// first one was.
func ResetAdmin(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	if _, err := os.Stat(o.databaseFile()); o.DatabaseURL.Empty() && err != nil {
		return fmt.Errorf("find the hub's database, give the hub's own --data-dir, or --database-url-file where it uses PostgreSQL: %w", err)
	}
	unlock, err := lock(o.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	data, err := store.Open(ctx, store.Options{
		Dir: o.DataDir, URL: o.DatabaseURL.Reveal(), Clock: o.Clock, Observe: func(e store.Event) { logEvent(o.Log, e) },
	})
	if err != nil {
		return err
	}
	if err = alone(ctx, data); err == nil {
		err = data.ResetAdmin(ctx, o.deliverAdmin)
	}
	return errors.Join(err, data.Close())
}

// alone refuses to go on while hubs use the database: they would go on serving the
// tokens that they know, and nobody could tell who made the new one.
func alone(ctx context.Context, data *store.Store) error {
	members, err := data.ListMembers(ctx)
	if err != nil {
		return err
	}
	var others []string
	for _, m := range members {
		if m.ID != data.MemberID() {
			others = append(others, m.Address)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("hubs use the database (%s): stop them first; one that was killed counts for 15 s", strings.Join(others, ", "))
	}
	return nil
}

func serve(ctx context.Context, o Options, data *store.Store, m *metrics) error {
	certs, err := newCertificates(o)
	if err != nil {
		return err
	}
	syncs, err := newSyncs(ctx, o, data, m)
	if err != nil {
		return err
	}
	sources, err := newSources(o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.Addr, err)
	}
	p := &parts{
		Options: o, store: data, metrics: m, syncs: syncs, sources: sources, certs: certs, ready: &readiness{store: data},
		began: o.Clock.Now(), stopping: make(chan struct{}),
	}
	if o.DatabaseURL.Empty() {
		p.ready.disk = func() doctor.Disk { return o.Room(o.DataDir) }
	}
	m.registry.MustRegister(collector{examine: p.examine, ready: p.ready.check})
	secured := &tls.Config{GetCertificate: certs.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	server := &http.Server{
		Handler:           observed(m, o.Clock, p.handler()),
		TLSConfig:         secured.Clone(), // which says that it serves HTTP/2
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// A runner or controller that hangs holds its watch for no longer than this.
		// Where its machine is gone the system sees it sooner.
		HTTP2:    &http.HTTP2Config{SendPingTimeout: time.Minute, PingTimeout: 10 * time.Second, MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var background sync.WaitGroup
	background.Go(func() { timers(ctx, data, o.Clock, o.Log) })
	background.Go(func() {
		data.Alone(ctx, "prune", func(ctx context.Context) { prune(ctx, data, o.Clock, o.Log) })
	})
	background.Go(func() { syncs.run(ctx) })
	background.Go(func() { tidy(ctx, o.Clock, &m.open, debug.FreeOSMemory) })
	background.Go(func() { certs.run(ctx) })
	served := make(chan error, 1)
	go func() { served <- server.Serve(greet(listener, secured, headerTimeout)) }()

	addr := listener.Addr().String()
	o.Log.Info("hub serves", "address", addr, "pin", certs.pin(), "syncs", len(o.Syncs))
	if o.Ready != nil {
		o.Ready(addr, certs.pin())
	}
	select {
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", addr, err)
	case <-ctx.Done():
	}
	stop()
	err = errors.Join(err, p.shutDown(server))
	background.Wait()
	return err
}

// shutDown says first that the hub is not ready, so that whoever spreads
// requests over hubs sends no more; ends the streams, which tell their readers
// to come back; and lets requests in progress end, for a while.
func (p *parts) shutDown(server *http.Server) error {
	over := p.Clock.After(p.DrainDelay)
	p.ready.stopping.Store(true)
	p.Log.Info("hub stops", "delay", p.DrainDelay, "drain", p.DrainTime)
	if p.DrainDelay > 0 {
		<-over
	}
	close(p.stopping)
	ctx, cancel := context.WithTimeout(context.Background(), p.DrainTime)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return server.Close()
	}
	return nil
}

func (p *parts) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api.New(api.Options{
		Build: p.Build, Store: p.store, Sources: p.sources, Examine: p.examine, Validator: p.syncs.validator, Clock: p.Clock, Log: p.Log,
		HeartbeatInterval: p.HeartbeatInterval, Rates: p.Rates, Limited: p.metrics.limited, Stopping: p.stopping,
	}))
	mux.Handle("POST /webhooks/{sync}", newWebhooks(p.Options, p.syncs, p.metrics))
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.Handle("GET /readyz", p.ready)
	for path, takes := range map[string]string{"/webhooks/{sync}": "POST", "/metrics": "GET, HEAD", "/healthz": "GET, HEAD", "/readyz": "GET, HEAD"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", takes)
			refuse(w, problem.New(hubv1.CodeMethodNotAllowed, "%s takes %s and nothing else", path, takes)) // the request's own path may hold a credential
		})
	}
	return mux
}

// used says whether a hub has served with a database in the data directory. It makes
// its certificates after the first user.
func (o *Options) used() bool {
	if !o.DatabaseURL.Empty() {
		return false
	}
	for _, name := range []string{o.databaseFile(), CAFile(o.DataDir)} {
		if _, err := os.Stat(name); err != nil {
			return false
		}
	}
	return true
}

func (o *Options) databaseFile() string { return filepath.Join(o.DataDir, "hub.db") }

// refuseBlank refuses a database in which nothing is, although a hub was used: its
// clients would be refused one by one, and nobody would know why.
func (o *Options) refuseBlank(ctx context.Context, data *store.Store) error {
	blank, err := data.Blank(ctx)
	if err != nil || !blank {
		return err
	}
	file := o.databaseFile()
	return fmt.Errorf("%[1]s is a new hub's, but %[2]s is of one that was used: if its database, or the journal %[1]s-wal, was moved, put it back with the files beside it; to begin with a new hub instead, without pools, users and runs, move %[1]s to another directory", file, CAFile(o.DataDir))
}

// deliverAdmin hands the first admin token to whoever set the hub up.
func (o *Options) deliverAdmin(token secret.String) error {
	if o.AdminTokenFile == "" {
		_, err := fmt.Printf("The admin token, shown this once:\n\n  %s\n\n", token.Reveal())
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.AdminTokenFile), 0o700); err != nil {
		return err
	}
	// Replaced at once, so that a reader finds the whole token or none.
	if err := atomicfile.Write(o.AdminTokenFile, []byte(token.Reveal()+"\n"), 0o600); err != nil {
		return err
	}
	o.Log.Info("admin token is written", "file", o.AdminTokenFile)
	return nil
}

// lock keeps a second hub off the data directory: with a database in it, it would
// hand runs to runners that listen to the first; in any case both would use the
// same clones.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the hub's data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator's own directory
	if err != nil {
		return nil, fmt.Errorf("lock the hub's data directory, which must be writable: %w", err)
	}
	unlock, err = filelock.Try(file)
	if errors.Is(err, filelock.ErrHeld) {
		err = fmt.Errorf("a hub uses %s: stop it first; a second hub needs a data directory of its own", dir)
	}
	return unlock, err
}

// logEvent writes one line per transition.
func logEvent(log *slog.Logger, e store.Event) {
	attributes := []any{"object", e.Object, "actor", e.Actor}
	if e.Pool != "" {
		attributes = append(attributes, "pool", e.Pool)
	}
	if e.State != "" {
		attributes = append(attributes, "state", e.State)
	}
	if e.Detail != "" {
		attributes = append(attributes, "detail", e.Detail)
	}
	if e.Took > 0 {
		attributes = append(attributes, "took", e.Took.Round(time.Millisecond/10))
	}
	log.Info(e.Action, attributes...)
}

func logTrouble(log *slog.Logger, err error) {
	if err != nil {
		log.Error("changes cannot be written to the database; it is tried again with each", "error", err)
		return
	}
	log.Info("changes are written to the database again")
}

// uptime is how long the machine has been up; nil with a clock of a test, which
// has nothing to do with it.
func (o *Options) uptime() func() time.Duration {
	if _, real := o.Clock.(clock.RealClock); !real {
		return nil
	}
	return func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			panic(fmt.Sprintf("read the clock since boot: %v", err)) // Linux has it since 2.6.39
		}
		return time.Duration(now.Nano())
	}
}
