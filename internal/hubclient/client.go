package hubclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

const (
	// defaultTimeout bounds one request that is not a watch or a log stream.
	defaultTimeout = 30 * time.Second
	// maxResponse bounds what is read of one ordinary response, so that a
	// server that is not the hub cannot fill the memory.
	maxResponse = 64 << 20
)

// ErrUnavailable says that the hub could not be asked or could not answer: the
// connection failed, its certificate or pin did not match, or it answered 5xx or
// that it is asked too often.
// The request may be tried again later.
var ErrUnavailable = errors.New("the hub is unavailable")

// ErrOutcomeUnknown says of a change that nobody answered, or that the hub could
// not answer for, that it may have been made all the same.
var ErrOutcomeUnknown = errors.New("the change may have been made all the same")

// unknownOutcome is an error that is ErrOutcomeUnknown too, in its own words.
type unknownOutcome struct{ error }

func (u unknownOutcome) Unwrap() error        { return u.error }
func (u unknownOutcome) Is(target error) bool { return target == ErrOutcomeUnknown }

// Options says which hub to talk to and as whom.
type Options struct {
	// URL of the hub, https, without user information. A path is kept.
	URL string
	// PlainHTTP takes an http URL too, where the token goes in clear: for people
	// who ask for it, never for controllers and runners. Pin and CABundle mean
	// nothing there and are refused.
	PlainHTTP bool
	// Pin of the hub's public key as Pin prints it. Without CABundle the pin
	// alone decides; with CABundle both must hold.
	Pin string
	// CABundle holds PEM certificates that replace the system's for the hub.
	CABundle []byte
	// Token is the bearer token; WithToken changes it.
	Token secret.String
	// UserAgent is sent as is; "cloop" where left out.
	UserAgent string
	// Timeout of one ordinary request with all its tries; 30 s where left out.
	Timeout time.Duration
	// Retry is for calls whose answer was lost; the zero value tries once.
	Retry Retry
}

// Retry says how often a call that may reach the hub twice without harm is sent
// until it is answered, and how long to wait before the second and at most.
type Retry struct {
	Tries       int
	First, Last time.Duration
}

// Client talks to one hub. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	http  *http.Client
	token secret.String
	// sent is what no error quotes.
	sent      secret.Sent
	userAgent string
	timeout   time.Duration
	retry     Retry
	// ahead is shared by those who talk to the hub with other tokens.
	ahead *atomic.Int64
}

// New checks the options and returns a client. It does not connect.
func New(o Options) (*Client, error) {
	base, err := parseURL(o.URL, o.PlainHTTP)
	if err != nil {
		return nil, err
	}
	if base.Scheme == "http" && (o.Pin != "" || len(o.CABundle) > 0) {
		return nil, fmt.Errorf("the hub's URL %q is plain http, which no pin and no certificate protects: leave them out, or write https", o.URL)
	}
	transport, err := newTransport(base.Host, o.Pin, o.CABundle)
	if err != nil {
		return nil, err
	}
	client := &Client{
		base: base, token: o.Token, sent: secret.SentTo(o.Token), userAgent: o.UserAgent, timeout: o.Timeout, retry: o.Retry,
		ahead: &atomic.Int64{},
		http: &http.Client{
			Transport: transport,
			// A redirect would carry the credential to another address.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if client.userAgent == "" {
		client.userAgent = "cloop"
	}
	if client.timeout <= 0 {
		client.timeout = defaultTimeout
	}
	return client, nil
}

// WithToken returns a client with another token on the same connections.
func (c *Client) WithToken(token secret.String) *Client {
	other := *c
	other.token, other.sent = token, secret.SentTo(token)
	return &other
}

// Format prints the hub's address for every verb: fmt would print the token,
// whose own methods do not count inside a struct.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "hub "+c.URL()) }

// URL is the hub's address.
func (c *Client) URL() string { return c.base.String() }

// Ahead is by how much the hub's clock is ahead of this machine's, as its last answer
// said, to the second; 0 before the first.
func (c *Client) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// CloseIdleConnections closes connections that no request uses.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

func parseURL(text string, plain bool) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		// The parse error quotes the whole text, which may hold a password.
		return nil, errors.New("the hub's URL cannot be read: write https://HOST[:PORT]")
	case parsed.User != nil:
		return nil, errors.New("the hub's URL holds user information: leave it out and give the token apart")
	case parsed.Scheme != "https" && (!plain || parsed.Scheme != "http"):
		return nil, fmt.Errorf("the hub's URL %q is not https: credentials go over HTTPS only (cloop takes a plain http address with --plain-http)", text)
	case parsed.Host == "" || parsed.Hostname() == "":
		return nil, fmt.Errorf("the hub's URL %q names no host: write https://HOST[:PORT]", text)
	case parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, fmt.Errorf("the hub's URL %q has a query or fragment: leave it out", text)
	}
	parsed.Path = strings.TrimSuffix(parsed.Path, "/")
	return parsed, nil
}

// call is one request. The zero value of each optional field leaves it out.
type call struct {
	method, path string
	query        url.Values
	// body is encoded as JSON, unless raw is set.
	body any
	raw  []byte
	// repeatable marks calls that may reach the hub twice without harm and without
	// a key, so that they are sent again where a connection turned out to be dead.
	repeatable bool
	// shows marks calls whose answer holds a secret this once, so that an answer to
	// a repetition is of no use.
	shows   bool
	ifMatch string
	accept  string
}

type idempotencyKey struct{}

// WithIdempotencyKey makes mutating calls under the context carry an
// Idempotency-Key: repeating one with the same key and request returns the
// first one's record, without its secret. At most 128 printable characters.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

func (c *Client) send(ctx context.Context, in call) (*http.Response, error) {
	request, err := c.request(ctx, in)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout) {
			return nil, fmt.Errorf("%s %s: %w", in.method, in.path, ctx.Err())
		}
		return nil, fmt.Errorf("%w: %s %s: %w", ErrUnavailable, in.method, c.base.Host, c.sent.Error(inTime(ctx, withoutURL(err))))
	}
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(at)))
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer closeBody(response)
		return nil, responseError(response, c.sent)
	}
	return response, nil
}

func (c *Client) request(ctx context.Context, in call) (*http.Request, error) {
	target := *c.base
	// The path is escaped already, so it goes where Go keeps the escaped form.
	target.RawPath = c.base.EscapedPath() + in.path
	path, err := url.PathUnescape(target.RawPath)
	if err != nil {
		return nil, fmt.Errorf("make the request %s %s: %w", in.method, in.path, err)
	}
	target.Path = path
	if in.query != nil {
		target.RawQuery = in.query.Encode()
	}
	var body io.Reader
	contentType := ""
	switch {
	case in.raw != nil:
		body, contentType = bytes.NewReader(in.raw), "application/octet-stream"
	case in.body != nil:
		// What a person wrote is refused; what a machine reports is sent as well
		// as can be, because the hub waits for it.
		if strings.HasPrefix(in.path, apiBase) {
			if err := checkText(in.body); err != nil {
				return nil, err
			}
		}
		encoded, err := json.Marshal(in.body)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", in.method, in.path, err)
		}
		body, contentType = bytes.NewReader(encoded), "application/json"
	}
	request, err := http.NewRequestWithContext(ctx, in.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make the request %s %s: %w", in.method, in.path, err)
	}
	header := request.Header
	header.Set("User-Agent", c.userAgent)
	header.Set("Accept", in.accept)
	if in.accept == "" {
		header.Set("Accept", "application/json, application/problem+json")
	}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	if !c.token.Empty() {
		header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	if in.ifMatch != "" {
		header.Set("If-Match", in.ifMatch)
	}
	if key, _ := ctx.Value(idempotencyKey{}).(string); key != "" && in.method != http.MethodGet {
		header.Set("Idempotency-Key", key)
	} else if in.repeatable {
		// A key without values tells the transport that it may repeat the
		// request; nothing is sent.
		header["Idempotency-Key"] = nil
	}
	return request, nil
}

// errTimeout is why a request was given up: a hub that takes requests and says
// nothing.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string { return "the hub did not answer in time" }

// Timeout is what net.Error has.
func (timeoutError) Timeout() bool { return true }

// inTime is the error of a request in our words, where it was given up for it.
func inTime(ctx context.Context, err error) error {
	// Of a connection that was not made its own error says what is wrong.
	if connecting := (*net.OpError)(nil); errors.Is(context.Cause(ctx), errTimeout) && !errors.As(err, &connecting) {
		return errTimeout
	}
	return err
}

// takesKey says whether the call is given an Idempotency-Key of its own, by which
// the hub knows its repetition: what people change.
func (in call) takesKey() bool {
	return in.method != http.MethodGet && strings.HasPrefix(in.path, apiBase) && !in.repeatable && !in.shows
}

// do sends a call and decodes the answer into out, unless out is nil. A call that
// may be repeated is, within bounds, while its outcome is unknown.
func (c *Client) do(ctx context.Context, in call, out any) error {
	if in.takesKey() && ctx.Value(idempotencyKey{}) == nil {
		ctx = WithIdempotencyKey(ctx, rand.Text())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	defer cancel()
	unknown := false
	for failures := 0; ; failures++ {
		err := c.once(ctx, in, out)
		if unknown && out == nil && in.method == http.MethodDelete && isGone(err) {
			return nil // by the try whose answer was lost, at a hub that knows no key of it
		}
		unknown = unknown || maybeMade(in, err)
		switch {
		case err == nil, definite(err) && (!unknown || keyed(ctx) && weighed(err)):
			return err // what the key had made would have been the answer
		case definite(err):
			return unknownOutcome{err}
		case unknown && in.again(ctx) && failures+1 < c.retry.Tries && retry.Sleep(ctx, clock.RealClock{}, retry.Spread(retry.After(failures, c.retry.First, c.retry.Last))):
		case unknown:
			return unknownOutcome{err}
		default:
			return err
		}
	}
}

// again says whether the call may reach the hub twice without harm.
func (in call) again(ctx context.Context) bool { return in.repeatable || keyed(ctx) }

// keyed says whether calls under the context carry an Idempotency-Key.
func keyed(ctx context.Context) bool {
	key, _ := ctx.Value(idempotencyKey{}).(string)
	return key != ""
}

// isGone says that the hub has no such thing.
func isGone(err error) bool {
	var problem *hubv1.Problem
	return errors.As(err, &problem) && problem.Code == hubv1.CodeNotFound
}

// weighed says of a refusal that the hub has looked at the request's key before it:
// whether the caller may ask comes first, and a hub of an older build takes no key
// with an If-Match.
func weighed(err error) bool {
	var problem *hubv1.Problem
	return errors.As(err, &problem) && (problem.Status == http.StatusConflict || problem.Status == http.StatusUnprocessableEntity)
}

// definite says of a failed call that it does not help to send it again: the hub
// has decided, it is not the hub, or nobody waits any more.
func definite(err error) bool {
	var problem *hubv1.Problem
	if errors.As(err, &problem) {
		return problem.Status < http.StatusInternalServerError || problem.Unchanged
	}
	var certificate *tls.CertificateVerificationError
	return !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrPinMismatch) || errors.As(err, &certificate)
}

// maybeMade says whether a failed call may have changed something.
func maybeMade(in call, err error) bool {
	if err == nil || in.method == http.MethodGet || definite(err) {
		return false
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial" // else the hub never heard of it
}

// once is one try of do.
func (c *Client) once(ctx context.Context, in call, out any) error {
	response, err := c.send(ctx, in)
	if err != nil {
		return err
	}
	defer closeBody(response)
	if out == nil || response.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxResponse)).Decode(out); err != nil {
		return fmt.Errorf("%w: read the answer to %s %s: %w", ErrUnavailable, in.method, in.path, err)
	}
	return nil
}

// get, post and the rest keep the typed methods to one line each.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, &out)
	return out, err
}

func post[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodPost, path: path, body: body}, &out)
	return out, err
}

// reveal is post for what shows a secret.
func reveal[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodPost, path: path, body: body, shows: true}, &out)
	return out, err
}

// repeat is post for what machines ask, which the hub knows again without a key.
func repeat[T any](ctx context.Context, c *Client, path string, body any) (T, error) {
	var out T
	err := c.do(ctx, call{method: http.MethodPost, path: path, body: body, repeatable: true}, &out)
	return out, err
}

// responseError is what the hub, or what stands before it, says of a call that it
// refuses, without what it was sent.
func responseError(response *http.Response, sent secret.Sent) error {
	data, readErr := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	problem := &hubv1.Problem{}
	if readErr != nil || json.Unmarshal(data, problem) != nil || problem.Code == "" {
		*problem = hubv1.Problem{
			Title: http.StatusText(response.StatusCode), Code: codeOf(response.StatusCode),
			Remedy: "the answer is not the hub's: check the address and what stands between",
		}
	}
	for _, text := range []*string{&problem.Title, &problem.Detail, &problem.Remedy} {
		*text = sent.Redact(*text)
	}
	for i := range problem.Errors {
		problem.Errors[i].Location, problem.Errors[i].Message = sent.Redact(problem.Errors[i].Location), sent.Redact(problem.Errors[i].Message)
	}
	problem.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && problem.RetryAfterSeconds == 0 {
		problem.RetryAfterSeconds = max(seconds, 0) // what stands before the hub says so too
	}
	if response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %w", ErrUnavailable, problem)
	}
	return problem
}

func codeOf(status int) hubv1.Code {
	switch {
	case status == http.StatusUnauthorized:
		return hubv1.CodeUnauthenticated
	case status == http.StatusForbidden:
		return hubv1.CodeForbidden
	case status == http.StatusNotFound:
		return hubv1.CodeNotFound
	case status == http.StatusRequestEntityTooLarge:
		return hubv1.CodeTooLarge
	case status == http.StatusRequestTimeout:
		return hubv1.CodeTooSlow
	case status == http.StatusUnsupportedMediaType:
		return hubv1.CodeMediaType
	case status >= 500:
		return hubv1.CodeUnavailable
	}
	return hubv1.CodeInvalid
}

// withoutURL drops the URL that net/http puts before each error; the caller
// names the call in fewer words.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

func closeBody(response *http.Response) {
	// Reading a little lets the connection be used again.
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10)
	_ = response.Body.Close()
}

// segment escapes one path element.
func segment(text string) string { return url.PathEscape(text) }

func number(n int64) string { return strconv.FormatInt(n, 10) }
