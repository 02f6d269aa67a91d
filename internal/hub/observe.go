package hub

import (
	"net/http"
	"strconv"
	"strings"

	"k8s.io/utils/clock"
)

// observed counts and times requests by the pattern of their route.
func observed(m *metrics, c clock.PassiveClock, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := c.Now()
		answer := &answer{ResponseWriter: w, request: r, metrics: m}
		defer func() {
			// Deferred, because a stream that breaks off panics.
			name := route(r)
			if answer.stream {
				m.streams.WithLabelValues(name).Dec()
				m.open.Add(-1)
			} else {
				m.answered.WithLabelValues(name).Observe(c.Since(began).Seconds())
			}
			m.requests.WithLabelValues(name, strconv.Itoa(answer.status())).Inc()
		}()
		next.ServeHTTP(answer, r)
	})
}

// otherRoutes stands for requests that no route is for.
const otherRoutes = "other"

// route is the pattern that the innermost mux matched, such as
// "GET /api/v1/pools/{pool}": however many pools there are, it is one.
func route(r *http.Request) string {
	if r.Pattern == "" || r.Pattern == "/" {
		return otherRoutes
	}
	return r.Pattern
}

// answer notes the status of what is written.
type answer struct {
	http.ResponseWriter
	request *http.Request
	metrics *metrics
	code    int
	stream  bool
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader notes the first status and whether a stream begins.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
		if a.stream = code == http.StatusOK && a.streams(); a.stream {
			a.metrics.streams.WithLabelValues(route(a.request)).Inc()
			a.metrics.open.Add(1)
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write is WriteHeader too, where nothing was written before.
func (a *answer) Write(data []byte) (int, error) {
	if a.code == 0 {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(data)
}

func (a *answer) streams() bool {
	return strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream") ||
		a.request.URL.Query().Get("follow") == "true" && strings.HasSuffix(a.request.Pattern, "/logs")
}

func (a *answer) status() int {
	if a.code == 0 {
		return http.StatusOK
	}
	return a.code
}
