package forge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

const (
	// requestTimeout bounds one request; forges answer within a second or two.
	requestTimeout = 20 * time.Second
	// maxAnswer bounds what is read of an answer: a page of statuses with their
	// creators is some hundred kilobytes.
	maxAnswer = 4 << 20
	// maxPages bounds how many pages of statuses of one commit are looked at.
	maxPages = 20
	// maxRedirects bounds how often a forge may say where it is now.
	maxRedirects = 3

	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Options of a Client.
type Options struct {
	Repository Repository
	// Token is sent to the host of Repository.API and nowhere else.
	Token secret.String
	// CABundle holds PEM certificates that are trusted in place of the system's.
	CABundle []byte
	Clock    clock.Clock
	// Patience is for how long one Publish tries again, waits that the forge
	// asks for included. Zero: it tries once.
	Patience time.Duration
	// UserAgent names the program; GitHub refuses requests without one.
	UserAgent string
}

// Client posts statuses of one repository. It may be used by several
// goroutines.
type Client struct {
	options Options
	// sent is what no error quotes.
	sent    secret.Sent
	dialect dialect
	http    *http.Client

	mu sync.Mutex
	// last: context → what was posted or found last.
	last map[string]Status
}

// New makes a client. Nothing is requested yet.
func New(o Options) (*Client, error) {
	if o.Token.Empty() {
		return nil, errors.New("the forge's token is empty")
	}
	spoken, known := dialects[o.Repository.Kind]
	if !known {
		return nil, fmt.Errorf("there is no forge %q", o.Repository.Kind)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one, says net/http
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if len(o.CABundle) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(o.CABundle) {
			return nil, errors.New("the bundle of the forge's certificates has none in PEM")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &Client{options: o, sent: secret.SentTo(o.Token), dialect: spoken, last: map[string]Status{}, http: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		// do follows by itself: net/http would take the token to subdomains
		// and turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Publish has the forge show a status, and says whether that changed anything.
// What this client posted last, and what the forge shows already, is not posted
// again. Failures that pass are tried again for as long as the patience lasts;
// the error is a *Refusal where the forge answered.
func (c *Client) Publish(ctx context.Context, s Status) (posted bool, err error) {
	if err := s.check(); err != nil {
		return false, err
	}
	s = s.fitted(c.options.Repository.Kind)
	if c.known(s) {
		return false, nil
	}
	gaveUp := c.options.Clock.Now().Add(c.options.Patience)
	for failures := 0; ; failures++ {
		posted, err = c.publish(ctx, s)
		if err == nil {
			c.remember(s)
			return posted, nil
		}
		wait, passes := c.wait(err, failures)
		if !passes || ctx.Err() != nil {
			return false, err
		}
		if c.options.Clock.Now().Add(wait).After(gaveUp) {
			return false, err
		}
		if err := c.sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

func (c *Client) known(s Status) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[s.Context] == s
}

func (c *Client) remember(s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[s.Context] = s
}

// errCutOff is an answer that ended too early.
var errCutOff = errors.New("the answer breaks off")

// wait is how long to wait before trying again after a failure, if it passes.
func (c *Client) wait(err error, failures int) (time.Duration, bool) {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if !refusal.Passes {
			return 0, false
		}
		if !refusal.Until.IsZero() {
			return max(refusal.Until.Sub(c.options.Clock.Now()), firstRetry), true
		}
	}
	var (
		certificate *tls.CertificateVerificationError
		network     *url.Error
	)
	untrusted := errors.As(err, &certificate)
	if refusal == nil && (untrusted || !errors.As(err, &network) && !errors.Is(err, errCutOff)) {
		return 0, false
	}
	return retry.Spread(retry.After(failures, 2*firstRetry, lastRetry)), true
}

func (c *Client) sleep(ctx context.Context, wait time.Duration) error {
	timer := c.options.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) publish(ctx context.Context, s Status) (bool, error) {
	has, found, err := c.find(ctx, s)
	if err != nil {
		return false, fmt.Errorf("ask for the statuses of commit %.12s: %w", s.Revision, err)
	}
	kind := c.options.Repository.Kind
	if found && c.dialect.says(kind, s, has) {
		return false, nil
	}
	address, body := c.dialect.post(c.options.Repository, s)
	data, err := json.Marshal(body)
	if err != nil {
		return false, err
	}
	answer, status, err := c.do(ctx, http.MethodPost, address, data)
	if err == nil {
		var made shown
		if made, err = c.dialect.made(answer); err != nil || !c.dialect.same(kind, s, made) {
			err = &Refusal{Status: status, Remedy: c.notTheAPI()}
		}
	}
	if err != nil {
		return false, fmt.Errorf("post status %s of commit %.12s: %w", s.Context, s.Revision, err)
	}
	return true, nil
}

// find looks for the status of a context that a commit shows.
func (c *Client) find(ctx context.Context, s Status) (has shown, found bool, err error) {
	kind := c.options.Repository.Kind
	for page := 1; page <= maxPages; page++ {
		body, status, err := c.do(ctx, http.MethodGet, c.dialect.shown(c.options.Repository, s, page), nil)
		if err != nil {
			return has, false, err
		}
		statuses, err := c.dialect.decode(body)
		if err != nil {
			return has, false, &Refusal{Status: status, Remedy: c.notTheAPI()}
		}
		for _, status := range statuses {
			if c.dialect.same(kind, s, status) {
				return status, true, nil
			}
		}
		if len(statuses) < c.dialect.fullPage {
			break
		}
	}
	return has, false, nil
}

// do sends one request, follows redirects within the API's host, and returns
// body and status of the answer, or a *Refusal.
func (c *Client) do(ctx context.Context, method, address string, body []byte) (answer []byte, status int, err error) {
	for range maxRedirects + 1 {
		request, err := c.request(ctx, method, address, body)
		if err != nil {
			return nil, 0, err
		}
		response, err := c.http.Do(request)
		if err != nil {
			// Its text has the address, which has no secret, and the cause.
			return nil, 0, c.sent.Error(err)
		}
		data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		_ = response.Body.Close() // it is read
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %w", errCutOff, err)
		}
		switch {
		case response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated:
			return data, response.StatusCode, nil
		case response.StatusCode < 300 || response.StatusCode > 399:
			return nil, 0, c.refusal(response, data)
		}
		if address, err = c.follow(request.URL, response); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, fmt.Errorf("%s sends from one address to the next: check the address of its API", c.options.Repository.Kind)
}

func (c *Client) request(ctx context.Context, method, address string, body []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	c.dialect.header(request.Header)
	// All three take a token so.
	request.Header.Set("Authorization", "Bearer "+c.options.Token.Reveal())
	request.Header.Set("User-Agent", c.options.UserAgent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// follow is where a redirect leads, if the token may go there: a renamed
// repository of GitHub answers so.
func (c *Client) follow(from *url.URL, response *http.Response) (string, error) {
	to, err := response.Location()
	if err != nil {
		return "", c.refusal(response, nil)
	}
	if to.Scheme != from.Scheme || to.Host != from.Host || to.User != nil {
		return "", fmt.Errorf("%s sends on to %s://%s, where the token must not go: correct the address of the repository or of the API", from.Host, to.Scheme, to.Host)
	}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return to.String(), nil
	}
	return "", c.refusal(response, nil)
}
