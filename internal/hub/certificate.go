package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/doctor"
)

// reloadEvery is how often the certificate's files are looked at. They are read,
// not watched: a Secret that is mounted changes by a link to a link, and other
// tools replace or rewrite files, each of which a watch sees in its own way.
const reloadEvery = 10 * time.Second

// certificates gives the certificate that new connections are shown. Open
// connections keep theirs.
type certificates struct {
	// cert and key are files to read again; empty where the hub made its own.
	cert, key string
	// about is the file that people are told of.
	about string
	clock clock.WithTicker
	log   *slog.Logger

	current atomic.Pointer[tls.Certificate]

	mu sync.Mutex // guards what follows
	// tried is what the files held when they were tried last.
	tried keyPair
	// failure is why they could not be used then; empty where they could.
	failure string
}

// keyPair is what two files hold.
type keyPair struct{ cert, key []byte }

// newCertificates loads the configured certificate, or makes and keeps one.
func newCertificates(o Options) (*certificates, error) {
	c := &certificates{cert: o.TLSCert, key: o.TLSKey, about: o.TLSCert, clock: o.Clock, log: o.Log}
	if c.cert == "" {
		own, err := o.ownCertificate()
		if err != nil {
			return nil, err
		}
		c.about = filepath.Join(o.DataDir, tlsDir, "hub.crt")
		c.start(own)
		return c, nil
	}
	files, err := c.read(context.Background())
	if err != nil {
		return nil, fmt.Errorf("load the TLS certificate: %w", err)
	}
	loaded, err := tls.X509KeyPair(files.cert, files.key)
	if err != nil {
		return nil, fmt.Errorf("load the TLS certificate %s with the key %s: %w", c.cert, c.key, err)
	}
	c.tried = files
	c.start(loaded)
	return c, nil
}

// start shows the first certificate.
func (c *certificates) start(first tls.Certificate) {
	c.current.Store(&first)
	if err := invalid(c.clock.Now(), first.Leaf, c.about); err != nil {
		kind, _ := doctor.Of(hubv1.FindingTLSExpiry)
		c.log.Warn("clients that check the hub's certificate refuse it", "error", err, "remedy", kind.Remedy)
	}
}

// get is for tls.Config.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// pin is that of the key that new connections see.
func (c *certificates) pin() string { return Pin(c.current.Load().Leaf) }

// run reloads the files when they have changed, until the context ends.
func (c *certificates) run(ctx context.Context) {
	if c.cert == "" {
		return
	}
	ticker := c.clock.NewTicker(reloadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C():
			c.reload(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// reload takes what the files hold now, if that is new and can be used. What
// cannot be used is said once, and tried again when it changes.
func (c *certificates) reload(ctx context.Context) {
	files, err := c.read(ctx) // before the lock: whoever asks how it is does not wait for a file
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && bytes.Equal(files.cert, c.tried.cert) && bytes.Equal(files.key, c.tried.key) {
		return
	}
	c.tried = files // empty where they could not be read: then they are new once they can
	if err == nil {
		err = c.use(files)
	}
	if errors.As(err, new(*timeError)) {
		c.tried = keyPair{} // the time comes, or the old one is over too
	}
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != c.failure {
		c.log.Error("the new certificate cannot be used, the hub goes on with the old one", "error", err, "file", c.cert, "until", c.current.Load().Leaf.NotAfter)
	}
	c.failure = failure
}

// timeError is a certificate that is not valid at the time.
type timeError struct{ text string }

func (e *timeError) Error() string { return e.text }

// invalid says why a certificate is not valid now; nil where it is.
func invalid(now time.Time, leaf *x509.Certificate, file string) error {
	switch {
	case now.After(leaf.NotAfter):
		return &timeError{"the certificate in " + file + " is over since " + leaf.NotAfter.UTC().Format(time.RFC3339)}
	case now.Before(leaf.NotBefore):
		return &timeError{"the certificate in " + file + " is valid only from " + leaf.NotBefore.UTC().Format(time.RFC3339)}
	}
	return nil
}

// use takes a new certificate, unless it is broken, or is not valid at the time
// while the old one is.
func (c *certificates) use(files keyPair) error {
	loaded, err := tls.X509KeyPair(files.cert, files.key)
	if err != nil {
		return fmt.Errorf("the files %s and %s cannot be used: %w", c.cert, c.key, err)
	}
	now := c.clock.Now()
	if err := invalid(now, loaded.Leaf, c.cert); err != nil && invalid(now, c.current.Load().Leaf, c.about) == nil {
		return err
	}
	if slices.EqualFunc(loaded.Certificate, c.current.Load().Certificate, bytes.Equal) {
		return nil // the old one is back
	}
	c.current.Store(&loaded)
	c.log.Info("certificate is renewed", "file", c.cert, "pin", c.pin(), "until", loaded.Leaf.NotAfter)
	return nil
}

func (c *certificates) read(ctx context.Context) (keyPair, error) {
	cert, err := readFile(ctx, c.cert)
	if err != nil {
		return keyPair{}, fmt.Errorf("read the certificate: %w", err)
	}
	key, err := readFile(ctx, c.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("read the certificate's key: %w", err)
	}
	return keyPair{cert, key}, nil
}

// state is what the doctor is told.
func (c *certificates) state() doctor.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	leaf := c.current.Load().Leaf
	return doctor.Certificate{File: c.about, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, ReloadError: c.failure}
}
