package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/schemas"
)

const (
	// maxJSON bounds the body of a JSON request: the longest command fits.
	maxJSON = 1 << 20
	// maxLogChunk bounds one append to a log.
	maxLogChunk = 1 << 20
	// bodyTimeout is how long a body may take to arrive.
	bodyTimeout = 30 * time.Second
)

// Sources looks at projects' repositories.
type Sources interface {
	// Read finds what a ref stands for and what it asks of runners. An error is a
	// problem, or the context's.
	Read(ctx context.Context, remote, ref string) (store.Source, error)
}

// Options of the API.
type Options struct {
	// Build is what the hub was built from, as people are shown it.
	Build string
	Store *store.Store
	// Sources looks at projects' repositories.
	Sources Sources
	// Examine reads what the doctor judges.
	Examine func(context.Context) (doctor.Snapshot, error)
	// Validator judges definitions that requests make.
	Validator *schemas.Validator
	Clock     clock.WithTicker
	Log       *slog.Logger
	// HeartbeatInterval is what enrolled runners are told.
	HeartbeatInterval time.Duration
	// Rates bound what one client may ask; the zero value stands for the defaults.
	Rates Rates
	// Limited is called for each request that one of them refused. It must not
	// block.
	Limited func(Limit)
	// Stopping is closed when the server stops, so that streams end.
	Stopping <-chan struct{}
	// WriteTimeout is how long one write may take, of a stream or of up to a megabyte
	// of another answer: who reads slower than this is cut off, and comes back to a
	// stream for a whole snapshot; 30 s where left out.
	WriteTimeout time.Duration
}

type server struct {
	Options
	huma huma.API
	// users and machines bound requests by credential, failures the credentials
	// that are not accepted, by address.
	users, machines, failures *limiter
	watches                   *openWatches
	answers                   *places
	// troubled is when logTrouble logged last, in Unix nanoseconds.
	troubled atomic.Int64
}

// New returns the API's handler: everything but /metrics and the health checks.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("cloop hub", "v1")
	config.Info.Description = "Pools, projects and runs for people (/api/v1), demand and tokens for executor controllers (/pool/v1), and runs for runners (/runner/v1). Errors are RFC 9457 problem documents with a stable code."
	config.DocsPath, config.SchemasPath = "", ""
	// The hook adds a $schema member and a Link header to every answer.
	config.CreateHooks = nil
	format := config.Formats["application/json"]
	format.Unmarshal = unmarshal
	marshal := format.Marshal
	format.Marshal = func(w io.Writer, value any) error { return marshal(timely{w, o.WriteTimeout}, value) }
	config.Formats = map[string]huma.Format{"application/json": format, "json": format}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearer": {Type: "http", Scheme: "bearer", Description: "A user's token, a pool credential or a runner's session, by base path. Operations of /api/v1 name the permission that they need as x-cloop-permission; what one may not read is answered with not_found."},
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = writeTimeout
	}
	if o.Limited == nil {
		o.Limited = func(Limit) {}
	}
	rates := o.Rates.Defaults()
	s := &server{
		Options: o, huma: humago.New(mux, config),
		users: newLimiter(LimitUsers, rates.Users, o), machines: newLimiter(LimitMachines, rates.Machines, o), failures: newLimiter(LimitFailures, rates.Failures, o),
		watches: &openWatches{most: rates.Watches, refused: func() { o.Limited(LimitWatches) }, open: map[string]int{}},
		answers: newPlaces(rates.Answers, o),
	}
	s.access()
	s.audit()
	s.pools()
	s.projects()
	s.runs()
	s.syncs()
	s.diagnosis()
	s.controllers()
	s.runners()
	s.describe()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if takes := methodsOf(mux, r); len(takes) > 0 {
			w.Header().Set("Allow", strings.Join(takes, ", "))
			writeProblem(w, problem.New(hubv1.CodeMethodNotAllowed, "%s takes %s, and no %s", r.URL.Path, strings.Join(takes, ", "), r.Method))
			return
		}
		writeProblem(w, problem.New(hubv1.CodeNotFound, "there is no %s %s", r.Method, r.URL.Path))
	})
	return lasting(mux)
}

// methodsOf are the methods that a request's path takes; none where there is no
// such path.
func methodsOf(mux *http.ServeMux, r *http.Request) (takes []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if _, pattern := mux.Handler(&http.Request{Method: method, Host: r.Host, URL: r.URL}); pattern != "/" {
			takes = append(takes, method)
		}
	}
	return takes
}

// document is a problem as huma writes it.
type document struct{ hubv1.Problem }

// GetStatus is the HTTP status, for huma.
func (d *document) GetStatus() int { return d.Status }

// Error is the problem in one line.
func (d *document) Error() string { return d.Problem.Error() }

// GetHeaders are the headers that come with the problem, for huma.
func (d *document) GetHeaders() http.Header { return headersOf(&d.Problem) }

// ContentType is that of problem documents, for huma.
func (d *document) ContentType(string) string { return "application/problem+json" }

func init() {
	// Huma's own refusals (a body that does not match its schema) become our
	// problem documents. The refused values are left out: they may be secret.
	huma.ValidateStrictCasing = true // of two spellings of one property the decoder would take the last
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		p := problem.New(problem.OfStatus(status), "%s", plainMessage(status, message))
		p.Status = status
		for _, err := range errs {
			p.Errors = append(p.Errors, fieldErrors(status, err)...)
		}
		return &document{*withoutCredentials(p)}
	}
}

// plainMessage says what huma refuses of a body as a whole in the words of who
// sent it.
func plainMessage(status int, message string) string {
	switch status {
	case http.StatusRequestEntityTooLarge:
		// Its limit is the first size that is refused: see register.
		if _, limit, found := strings.Cut(message, "limit="); found {
			if n, err := strconv.ParseInt(strings.TrimSuffix(limit, " bytes"), 10, 64); err == nil {
				return fmt.Sprintf("the body has more than %d bytes", n-1)
			}
		}
	case http.StatusRequestTimeout:
		return fmt.Sprintf("the body did not arrive within %s", bodyTimeout)
	case http.StatusUnsupportedMediaType:
		return "the body's Content-Type is none that the hub takes here"
	}
	return message
}

// fieldErrors says what huma found wrong with a request.
func fieldErrors(status int, err error) []hubv1.FieldError {
	var detailer huma.ErrorDetailer
	if errors.As(err, &detailer) {
		detail := detailer.ErrorDetail()
		// Of a body that was not decoded huma knows no more than the text.
		if raw, whole := detail.Value.(string); whole && detail.Location == "body" {
			if faulty := textErrors([]byte(raw)); len(faulty) > 0 {
				return faulty
			}
			field, message, named := strings.Cut(detail.Message, decodeMark)
			if named {
				return []hubv1.FieldError{{Location: field, Message: message}}
			}
		}
		if detail.Message == "invalid integer" {
			detail.Message = "must be " + kindOf(reflect.TypeFor[int64]()) // also where there are too many digits
		}
		return []hubv1.FieldError{{Location: detail.Location, Message: detail.Message}}
	}
	field := hubv1.FieldError{Message: "cannot be read"}
	if status < 500 && err != nil {
		field.Message = err.Error()
	}
	return []hubv1.FieldError{field}
}

// failure turns a handler's error into what huma writes, and logs what is the
// hub's own fault.
func (s *server) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	return &document{*withoutCredentials(s.problemOf(ctx, err))}
}

func (s *server) problemOf(ctx context.Context, err error) *hubv1.Problem {
	if p, ok := asProblem(err); ok {
		return p
	}
	if ctx.Err() != nil {
		return problem.New(hubv1.CodeUnavailable, "the request was given up")
	}
	if p := store.Trouble(err); p != nil {
		s.logTrouble(err)
		return p
	}
	s.Log.Error("request fails", "error", err)
	return problem.New(hubv1.CodeInternal, "the hub could not carry out the request")
}

// troubleEvery is how often a storage that does not work is logged: every
// request fails then, and all try again.
const troubleEvery = time.Minute

func (s *server) logTrouble(err error) {
	now := s.Clock.Now().UnixNano()
	if last := s.troubled.Load(); now-last >= int64(troubleEvery) && s.troubled.CompareAndSwap(last, now) {
		s.Log.Error("the storage does not work", "error", err)
	}
}

func writeProblem(w http.ResponseWriter, p *hubv1.Problem) {
	p = withoutCredentials(p)
	w.Header().Set("Content-Type", "application/problem+json")
	maps.Copy(w.Header(), headersOf(p))
	w.WriteHeader(p.Status)
	// The client may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(p)
}

func headersOf(p *hubv1.Problem) http.Header {
	h := http.Header{}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="cloop"`)
	}
	if p.RetryAfterSeconds > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfterSeconds))
	}
	return h
}

// body is an answer.
type body[T any] struct{ Body T }

func answer[T any](value T, err error) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{Body: value}, nil
}

// register adds a typed handler behind the base path's authentication and, where
// people call it, behind the permission that the operation declares. What people
// may change with it takes an Idempotency-Key.
func register[I, O any](s *server, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = maxJSON + 1 // huma refuses what reaches the limit
	}
	op.BodyReadTimeout = bodyTimeout
	op.Errors = refusals(op, reflect.TypeFor[I]())
	checkDeclared(op)
	describeKey(&op)
	op.Middlewares = append(op.Middlewares, s.authFor(op.Path))
	if isLarge(op) {
		op.Middlewares = append(op.Middlewares, s.placed)
	}
	if op.Path != enrollPath {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (out *O, err error) {
		// A client whose connection breaks would try for ever, and nobody
		// would know why.
		defer func() {
			if fault := recover(); fault != nil {
				s.Log.Error("request panics", "operation", op.OperationID, "panic", fault, "stack", string(debug.Stack()))
				err = s.failure(ctx, problem.New(hubv1.CodeInternal, "the hub could not carry out the request"))
			}
		}()
		out, err = handler(known(ctx, op, in), in)
		return out, s.failure(ctx, err)
	})
}

// refusals are the statuses that an operation may be refused with.
func refusals(op huma.Operation, input reflect.Type) []int {
	out := []int{
		http.StatusUnauthorized, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	}
	if ofUsers(op.Path) {
		out = append(out, http.StatusForbidden)
	}
	if strings.HasPrefix(op.Path, runnerBase) || strings.HasSuffix(op.Path, "/logs") {
		out = append(out, http.StatusGone)
	}
	for _, name := range []string{"Body", "RawBody"} {
		if _, has := input.FieldByName(name); has {
			out = append(out, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
			break
		}
	}
	if _, guarded := input.FieldByName("IfMatch"); guarded {
		out = append(out, http.StatusPreconditionFailed, http.StatusPreconditionRequired)
	}
	slices.Sort(out)
	return out
}

// op describes an operation.
func op(method, path, id, summary string) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary}
}

// status is op with a success status other than 200 or 204.
func status(o huma.Operation, code int) huma.Operation {
	o.DefaultStatus = code
	return o
}
