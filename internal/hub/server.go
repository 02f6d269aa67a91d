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
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	// drainTime is how long requests in progress may take when the hub stops.
	drainTime = 5 * time.Second
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
	m := newMetrics()
	data, err := store.Open(ctx, store.Options{
		Dir: o.DataDir, URL: o.DatabaseURL.Reveal(), Member: store.Member{Build: o.Build, Address: o.Addr}, Clock: o.Clock, Limits: o.limits(),
		Observe: func(e store.Event) { m.observe(e); logEvent(o.Log, e) },
		Trouble: func(err error) { logTrouble(o.Log, err) },
		Uptime:  o.uptime(),
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := data.Close(); err != nil {
			o.Log.Error("database is not closed", "error", err)
		}
	}()
	m.registry.MustRegister(poolCollector{data})
	if err := data.EnsureAdmin(ctx, o.deliverAdmin); err != nil {
		return fmt.Errorf("make the first admin token: %w", err)
	}
	return serve(ctx, o, data, m)
}

func serve(ctx context.Context, o Options, data *store.Store, m *metrics) error {
	cert, err := o.certificate()
	if err != nil {
		return err
	}
	syncs, err := newSyncs(ctx, o, data, m)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.Addr, err)
	}
	stopping := make(chan struct{})
	server := &http.Server{
		Handler:           handler(o, data, m, syncs, stopping),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// A runner or controller whose machine is gone holds its watch for no
		// longer than this.
		HTTP2:    &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second, MaxConcurrentStreams: 1000},
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
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()

	pin, addr := Pin(cert.Leaf), listener.Addr().String()
	o.Log.Info("hub serves", "address", addr, "pin", pin, "syncs", len(o.Syncs))
	if o.Ready != nil {
		o.Ready(addr, pin)
	}
	select {
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", addr, err)
	case <-ctx.Done():
	}
	stop()
	close(stopping)
	err = errors.Join(err, shutDown(server))
	background.Wait()
	return err
}

// shutDown lets requests in progress end, for a while.
func shutDown(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return server.Close()
	}
	return nil
}

func handler(o Options, data *store.Store, m *metrics, syncs *syncs, stopping <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", api.New(api.Options{
		Build: o.Build, Store: data, Syncs: syncs, Validator: syncs.validator, Clock: o.Clock, Log: o.Log, HeartbeatInterval: o.HeartbeatInterval, Stopping: stopping,
	}))
	mux.Handle("POST /webhooks/{sync}", newWebhooks(o, syncs, m))
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := data.Ping(r.Context()); err != nil {
			text := "the database does not answer"
			if trouble := store.Trouble(err); trouble != nil {
				text = trouble.Detail
			}
			plain(w, http.StatusServiceUnavailable, text)
			return
		}
		plain(w, http.StatusOK, "ok")
	})
	return mux
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// A prober that went away needs no answer.
	_, _ = w.Write([]byte(text + "\n"))
}

// deliverAdmin hands the first admin token to whoever set the hub up.
func (o *Options) deliverAdmin(token secret.String) error {
	if o.AdminTokenFile == "" {
		_, err := fmt.Printf("The first admin token, shown this once:\n\n  %s\n\n", token.Reveal())
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.AdminTokenFile), 0o700); err != nil {
		return err
	}
	// Replaced at once, so that a reader finds the whole token or none.
	if err := atomicfile.Write(o.AdminTokenFile, []byte(token.Reveal()+"\n"), 0o600); err != nil {
		return err
	}
	o.Log.Info("first admin token is written", "file", o.AdminTokenFile)
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
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another hub uses %s: stop it, or give this one its own data directory", dir), file.Close())
	}
	// The kernel lets go of the lock with the file.
	return func() { _ = file.Close() }, nil
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
