package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"cloop.dev/cloop/internal/secret"
)

// Bounds on what a server may send, in bytes. A fleet repository is text and
// holds some thousand files at most; the bounds keep a wrong URL or a hostile
// server from filling memory or disk.
const (
	maxRefs    = 16 << 20
	maxRefusal = 4 << 10
)

// maxPack is a variable for tests.
var maxPack int64 = 256 << 20

// maxRedirects is what a moved repository may need; a loop needs more.
const maxRedirects = 5

// timeouts of the dealings with a server. Tests shorten them.
type timeouts struct {
	// Connect bounds the making of a connection.
	Connect time.Duration
	// Silence is how long a server may send nothing at all. A large repository
	// may take a while to count before the first byte comes.
	Silence time.Duration
	// Attempt bounds one Resolve or Checkout, for a server that sends a byte now
	// and then.
	Attempt time.Duration
}

var limits = timeouts{Connect: 15 * time.Second, Silence: time.Minute, Attempt: 5 * time.Minute}

var (
	errSilent   = errors.New("the server sent nothing")
	errCut      = errors.New("the server ended its answer before it was whole")
	errAttempt  = errors.New("the attempt took longer than")
	errRedirect = errors.New("the server redirects")
)

// attempt bounds a Resolve or a Checkout whatever its caller allows.
func attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limits.Attempt, fmt.Errorf("%w %s", errAttempt, limits.Attempt))
}

// environmentsProxy is read for each client, where net/http reads it once for a
// process.
func environmentsProxy() func(*http.Request) (*url.URL, error) {
	of := httpproxy.FromEnvironment().ProxyFunc()
	return func(req *http.Request) (*url.URL, error) { return of(req.URL) }
}

// proxyOf is what a server is reached over: the proxy that is named, or the
// environment's.
func proxyOf(named *Proxy) (func(*http.Request) (*url.URL, error), error) {
	if named == nil {
		return environmentsProxy(), nil
	}
	at, err := named.url()
	if err != nil {
		return nil, err
	}
	return http.ProxyURL(at), nil
}

// httpClient trusts the bundle alone where there is one. With a credential it
// follows no redirect to another server, another port included: whoever runs
// that one could keep the credential, and without it there is nothing to read.
// What a refusal says is without what was sent.
func httpClient(bundle []byte, credential bool, proxy func(*http.Request) (*url.URL, error), sent secret.Sent) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New("the CA bundle has no certificate")
		}
	}
	return &http.Client{
		Transport: boundedTransport{maxPack: maxPack, maxGet: maxRefs, sent: sent, next: &http.Transport{
			Proxy:               proxy,
			DialContext:         (&net.Dialer{Timeout: limits.Connect}).DialContext,
			TLSClientConfig:     config,
			TLSHandshakeTimeout: limits.Connect,
			IdleConnTimeout:     30 * time.Second,
			MaxIdleConns:        2,
			ForceAttemptHTTP2:   true,
		}},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch first := via[0].URL; {
			case req.URL.Scheme != "https":
				return fmt.Errorf("%w to an address that is not https", errRedirect)
			case len(via) > maxRedirects:
				return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
			case credential && req.URL.Host != first.Host:
				return fmt.Errorf("%w to %s, another server, which must not get the credential", errRedirect, req.URL.Host)
			}
			return nil
		},
	}, nil
}

// boundedTransport bounds every answer in size, and in the time that the server
// may be silent.
type boundedTransport struct {
	next http.RoundTripper
	// maxPack bounds a pack, and maxGet what is only asked for, in bytes.
	maxPack, maxGet int64
	// sent is what a refusal may not say.
	sent secret.Sent
}

// RoundTrip is http.RoundTripper's.
func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	silence := time.AfterFunc(limits.Silence, func() { cancel(fmt.Errorf("%w for %s", errSilent, limits.Silence)) })
	res, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		silence.Stop()
		err = because(ctx, err)
		cancel(nil)
		return nil, err
	}
	body := &patientBody{from: res.Body, ctx: ctx, cancel: cancel, silence: silence}
	switch {
	case res.StatusCode < 200 || res.StatusCode > 299:
		// go-git reads a refusal whole, into the error.
		res.Status = t.sent.Line(res.Status)
		res.Body = readCloser{&refusalReader{from: io.LimitReader(body, maxRefusal), sent: t.sent}, body}
	case req.Method == http.MethodGet:
		res.Body = readCloser{&cappedReader{from: body, left: t.maxGet}, body}
	default:
		res.Body = readCloser{&cappedReader{from: body, left: t.maxPack}, body}
	}
	return res, nil
}

// because is why a context ended, which says more than that it did.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// patientBody ends a body whose server has gone silent.
type patientBody struct {
	from    io.ReadCloser
	ctx     context.Context //nolint:containedctx // it is the request's own
	cancel  context.CancelCauseFunc
	silence *time.Timer
}

// Read is io.Reader's.
func (b *patientBody) Read(p []byte) (int, error) {
	b.silence.Reset(limits.Silence)
	n, err := b.from.Read(p)
	b.silence.Stop()
	if err != nil {
		// A connection that was cut may look like the end of the body.
		err = because(b.ctx, err)
	}
	return n, err
}

// Close is io.Closer's.
func (b *patientBody) Close() error {
	b.silence.Stop()
	err := b.from.Close()
	b.cancel(nil)
	return err
}

type readCloser struct {
	io.Reader
	io.Closer
}

// refusalReader is what a refusal says as a line that may be quoted.
type refusalReader struct {
	from io.Reader
	sent secret.Sent
	line *strings.Reader // nil: nothing is read yet
}

// Read is io.Reader's.
func (r *refusalReader) Read(p []byte) (int, error) {
	if r.line == nil {
		data, err := io.ReadAll(r.from)
		if err != nil {
			return 0, err
		}
		r.line = strings.NewReader(r.sent.Line(string(data)))
	}
	return r.line.Read(p)
}

// cappedReader fails where io.LimitReader would end, so that a pack that is cut
// off is not taken for a corrupt one.
type cappedReader struct {
	from io.Reader
	left int64
}

// Read is io.Reader's.
func (r *cappedReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, errTooLarge
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.from.Read(p)
	r.left -= int64(n)
	return n, err
}
