package hub_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pki"
)

// secretMount is a directory as a kubelet mounts a Secret: files are links into
// a directory that is itself a link, which is swapped.
type secretMount struct {
	t   *testing.T
	dir string
}

func (m secretMount) put(version string, pair pki.Pair) {
	m.t.Helper()
	dir := filepath.Join(m.dir, ".."+version)
	check(m.t, os.MkdirAll(dir, 0o700))
	check(m.t, os.WriteFile(filepath.Join(dir, "tls.crt"), pair.Certificate, 0o600))
	check(m.t, os.WriteFile(filepath.Join(dir, "tls.key"), pair.Key, 0o600))
	next := filepath.Join(m.dir, "..next")
	check(m.t, os.Symlink(".."+version, next))
	check(m.t, os.Rename(next, filepath.Join(m.dir, "..data")))
	for _, name := range []string{"tls.crt", "tls.key"} {
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err != nil {
			check(m.t, os.Symlink(filepath.Join("..data", name), filepath.Join(m.dir, name)))
		}
	}
}

func pairFor(t *testing.T, now time.Time) (pki.Pair, string) {
	t.Helper()
	ca, err := pki.NewCA("test", now)
	check(t, err)
	pair, err := ca.Server(now, "127.0.0.1")
	check(t, err)
	block, _ := pem.Decode(pair.Certificate)
	leaf, err := x509.ParseCertificate(block.Bytes)
	check(t, err)
	return pair, hub.Pin(leaf)
}

// tick moves the clock until something is so; each look takes a connection.
func (r *running) tick(what string, is func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); !is(); r.clock.Step(10 * time.Second) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not so in %s: %s", patience, what)
		}
	}
}

func (r *running) reloadFails(want bool) func() bool {
	value := map[bool]string{true: "1", false: "0"}[want]
	return func() bool {
		return strings.Contains(r.page("/metrics"), "\ncloop_hub_certificate_reload_failing "+value+"\n")
	}
}

func (r *running) shows(pin string) func() bool {
	return func() bool {
		fetched, err := hubclient.FetchPin(r.ctx(), "https://"+r.addr)
		check(r.t, err)
		return fetched == pin
	}
}

func TestANewCertificateIsTakenAndOpenConnectionsStay(t *testing.T) {
	mount := secretMount{t, t.TempDir()}
	first, firstPin := pairFor(t, time.Now())
	mount.put("1", first)
	r := serve(t, func(o *hub.Options) {
		o.TLSCert, o.TLSKey = filepath.Join(mount.dir, "tls.crt"), filepath.Join(mount.dir, "tls.key")
	})
	if r.pin != firstPin {
		t.Fatalf("it shows %s, the file has %s", r.pin, firstPin)
	}
	pool, _ := r.pool("gpu", 1)
	next, stop := pullPool(r.admin.WatchPool(r.ctx(), pool.ID))
	defer stop()
	next()

	second, secondPin := pairFor(t, time.Now())
	mount.put("2", second)
	r.tick("the new certificate is shown", r.shows(secondPin))
	if !strings.Contains(r.log.String(), "certificate is renewed") {
		t.Error("nothing is logged")
	}
	// The client that knows the old key goes on with the connection that it has.
	must(t)(r.admin.Cordon(r.ctx(), pool.ID, "while the key changes"))
	for pool := next(); pool.Cordon == nil; pool = next() { //nolint:revive // it waits
	}
	if _, err := r.client("").ListPools(r.ctx()); err == nil || !strings.Contains(err.Error(), "does not match the pin") {
		t.Errorf("a new connection with the old pin: %v", err)
	}
}

func TestABrokenCertificateChangesNothingAndIsSaidOnce(t *testing.T) {
	mount := secretMount{t, t.TempDir()}
	good, pin := pairFor(t, time.Now())
	mount.put("1", good)
	r := serve(t, func(o *hub.Options) {
		o.TLSCert, o.TLSKey = filepath.Join(mount.dir, "tls.crt"), filepath.Join(mount.dir, "tls.key")
	})
	other, _ := pairFor(t, time.Now())
	old, _ := pairFor(t, time.Now().Add(-11*365*24*time.Hour))
	early, _ := pairFor(t, time.Now().Add(48*time.Hour))
	for i, broken := range []pki.Pair{
		{Certificate: []byte("no PEM"), Key: good.Key},
		{Certificate: good.Certificate, Key: other.Key},
		old,
		early,
	} {
		mount.put("broken"+string(rune('a'+i)), broken)
		r.tick("it is known", r.reloadFails(true))
		for range 5 {
			r.clock.Step(10 * time.Second)
			if !r.shows(pin)() {
				t.Fatal("the broken certificate is shown")
			}
		}
		if n := strings.Count(r.log.String(), "the new certificate cannot be used"); n != i+1 {
			t.Errorf("%d broken certificates are logged %d times", i+1, n)
		}
		d, err := r.admin.Doctor(r.ctx())
		check(t, err)
		if f := findingOf(d, hubv1.FindingTLSReload); f == nil || f.Severity != hubv1.SeverityWarn || !strings.Contains(f.Found, mount.dir) {
			t.Errorf("the doctor finds %+v", d.Findings)
		}
		mount.put("good"+string(rune('a'+i)), good)
		r.tick("it is well again", r.reloadFails(false))
	}
	check(t, os.Remove(filepath.Join(mount.dir, "tls.key")))
	r.tick("a file that is gone is known", r.reloadFails(true))
}

func TestACertificateIsTakenOnceItIsValid(t *testing.T) {
	mount := secretMount{t, t.TempDir()}
	first, pin := pairFor(t, time.Now())
	mount.put("1", first)
	r := serve(t, func(o *hub.Options) {
		o.TLSCert, o.TLSKey = filepath.Join(mount.dir, "tls.crt"), filepath.Join(mount.dir, "tls.key")
	})
	second, secondPin := pairFor(t, r.clock.Now().Add(48*time.Hour))
	mount.put("2", second)
	r.tick("it is known", r.reloadFails(true))
	if !r.shows(pin)() || !strings.Contains(r.log.String(), "is valid only from") {
		t.Errorf("it shows a certificate that is not valid yet; the log:\n%s", r.log.String())
	}
	r.clock.Step(48 * time.Hour)
	r.tick("it is shown", r.shows(secondPin))
	r.pin = secondPin
	r.tick("all is well", r.reloadFails(false))
}

func TestAHubWithACertificateThatIsOverSaysSoWhenItStarts(t *testing.T) {
	mount := secretMount{t, t.TempDir()}
	old, _ := pairFor(t, time.Now().Add(-11*365*24*time.Hour))
	mount.put("1", old)
	r := serve(t, func(o *hub.Options) {
		o.TLSCert, o.TLSKey = filepath.Join(mount.dir, "tls.crt"), filepath.Join(mount.dir, "tls.key")
	})
	if log := r.log.String(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, "is over since") || !strings.Contains(log, "renew the files of --tls-cert") {
		t.Errorf("it starts with:\n%s", log)
	}
}

// A pipe that nobody writes to keeps whoever opens it waiting for ever.
func TestAPipeInTheCertificatesPlaceKeepsNobodyWaiting(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(pair pki.Pair) {
		_ = os.Remove(cert)
		check(t, os.WriteFile(cert, pair.Certificate, 0o600))
		check(t, os.WriteFile(key, pair.Key, 0o600))
	}
	first, pin := pairFor(t, time.Now())
	put(first)
	r := serve(t, func(o *hub.Options) { o.TLSCert, o.TLSKey = cert, key })
	check(t, os.Remove(cert))
	check(t, unix.Mkfifo(cert, 0o600))
	r.tick("it is known", r.reloadFails(true))
	d, err := r.admin.Doctor(r.ctx())
	check(t, err)
	if f := findingOf(d, hubv1.FindingTLSReload); f == nil || !strings.Contains(f.Found, "is a pipe") {
		t.Errorf("the doctor finds %+v", d.Findings)
	}
	if !r.shows(pin)() {
		t.Error("another certificate is shown")
	}
	second, secondPin := pairFor(t, time.Now())
	put(second)
	r.tick("the new certificate is shown", r.shows(secondPin))
	r.pin = secondPin
	check(t, os.Remove(key))
	check(t, unix.Mkfifo(key, 0o600))
	r.tick("it is known again", r.reloadFails(true))
	r.stop()
	if err := hub.Run(r.ctx(), hub.Options{Addr: "127.0.0.1:0", DataDir: filepath.Join(r.dir, "hub"), TLSCert: cert, TLSKey: key}); err == nil || !strings.Contains(err.Error(), "is a pipe") {
		t.Errorf("with a pipe it starts as %v", err)
	}
}

func findingOf(d hubv1.Diagnosis, id hubv1.FindingID) *hubv1.Finding {
	for i := range d.Findings {
		if d.Findings[i].ID == id {
			return &d.Findings[i]
		}
	}
	return nil
}

// pullPool reads a watch one snapshot at a time.
func pullPool(snapshots func(func(hubv1.Pool, error) bool)) (next func() hubv1.Pool, stop func()) {
	items, done := make(chan hubv1.Pool), make(chan struct{})
	go func() {
		defer close(items)
		snapshots(func(p hubv1.Pool, err error) bool {
			if err != nil {
				return false
			}
			select {
			case items <- p:
				return true
			case <-done:
				return false
			}
		})
	}()
	return func() hubv1.Pool { return <-items }, func() { close(done) }
}
