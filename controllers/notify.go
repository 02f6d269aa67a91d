package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/metric"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

const (
	// maxPosted is what a notification-controller takes of a message, in characters,
	// of which there are no more than bytes.
	maxPosted = 39000
	// postsWaiting may wait for the receiver. What comes on top is dropped: a receiver
	// that is down for long must not fill the memory.
	postsWaiting = 256
	// postTries of one Event, the first included; postFirst is the wait after that,
	// and postWithin how long each may take.
	postTries  = 4
	postFirst  = time.Second
	postLast   = 10 * time.Second
	postWithin = 5 * time.Second
)

// Keys of an Event's metadata, which a notification-controller reads without the
// group of the object's kind in front.
const (
	postedRevision     = v1alpha1.Group + "/" + eventv1.MetaRevisionKey
	postedCommitStatus = v1alpha1.Group + "/" + eventv1.MetaCommitStatusKey
)

// poster posts Events to a notification-controller of Flux, or whatever else takes
// its payload. Flux's own recorder has its caller wait for the receiver, while
// here a reconcile goes on.
type poster struct {
	url        string
	controller string
	instance   string
	scheme     *runtime.Scheme
	client     *http.Client
	queue      chan eventv1.Event // never closed
	posts      *prometheus.CounterVec
	// first is the wait after a first failure.
	first time.Duration
}

var eventPosts = metric.Definition{
	Name: "cloop_event_posts_total", Kind: metric.Counter, Help: "Events for the address of --events-addr: sent, refused by it, or dropped because it did not answer.", Labels: []string{"result"},
}

// checkEventsAddr says what is wrong with an address of Events.
func checkEventsAddr(addr string) error {
	if addr == "" {
		return nil
	}
	at, err := url.Parse(addr)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return fmt.Errorf("the address of Events is no URL: name one such as http://notification-controller.flux-system.svc.cluster.local./")
	case at.User != nil || at.RawQuery != "":
		return errors.New("the address of Events has a credential or a query, which everybody sees who lists processes: name it without; a notification-controller inside the cluster asks for none")
	}
	return nil
}

func newPoster(o Options, scheme *runtime.Scheme, registry prometheus.Registerer) *poster {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &poster{
		url: o.EventsAddr, controller: o.account(), instance: o.Instance, scheme: scheme,
		client: &http.Client{
			Transport: transport, Timeout: postWithin,
			// An Event is for the address that was named.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		queue: make(chan eventv1.Event, postsWaiting), posts: register(registry, eventPosts.NewCounter()), first: postFirst,
	}
}

// Start posts until ctx ends. What waits then is lost: the process ends.
func (p *poster) Start(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	log := logf.FromContext(ctx).WithName("events")
	well := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-p.queue:
			well = p.send(ctx, log, &event, well)
		}
	}
}

// send posts one Event, and says whether the receiver took it. well says so of the
// Event before: trouble is told once.
func (p *poster) send(ctx context.Context, log logr.Logger, event *eventv1.Event, well bool) bool {
	body, err := json.Marshal(event)
	if err != nil {
		log.Error(err, "cannot encode an Event", "reason", event.Reason)
		return well
	}
	result := "dropped"
	for failures := range postTries {
		if failures > 0 && !retry.Sleep(ctx, clock.RealClock{}, retry.Spread(retry.After(failures-1, p.first, postLast))) {
			return well
		}
		var again bool
		if again, err = p.post(ctx, body); err == nil {
			p.posts.WithLabelValues("sent").Inc()
			return true
		}
		if !again {
			result = "refused"
			break
		}
	}
	p.posts.WithLabelValues(result).Inc()
	if well {
		log.Error(err, "cannot post Events: see that the address of --events-addr answers", "result", result)
	}
	return false
}

// post makes one request. again says that it may go better later.
func (p *poster) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return true, secret.SentTo().Error(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 4096))
	switch code := response.StatusCode; {
	case code < 300, code == http.StatusTooManyRequests:
		// 429: it had the same Event a moment ago.
		return false, nil
	default:
		return code >= 500, fmt.Errorf("it answers %s", secret.SentTo().Line(response.Status))
	}
}

// put takes an Event to be posted.
func (p *poster) put(object client.Object, metadata map[string]string, kind, reason, message string) {
	of, err := reference.GetReference(p.scheme, object)
	if err != nil {
		return // a kind that is not in the scheme: a mistake in the code, and no Event in the cluster either
	}
	for key, value := range object.GetAnnotations() {
		// What people want to be told with each Event of the object.
		if strings.HasPrefix(key, eventv1.Group+"/") {
			metadata[key] = secret.Redact(value)
		}
	}
	event := eventv1.Event{
		InvolvedObject: *of, Severity: eventv1.EventSeverityInfo, Timestamp: metav1.Now(), Message: shorten(message, maxPosted), Reason: reason,
		Metadata: metadata, ReportingController: p.controller, ReportingInstance: p.instance,
	}
	if kind == corev1.EventTypeWarning {
		event.Severity = eventv1.EventSeverityError
	}
	select {
	case p.queue <- event:
	default:
		p.posts.WithLabelValues("dropped").Inc()
	}
}

// eventRecorder records Events in the cluster and, where there is a poster, has it
// post them.
type eventRecorder struct {
	record.EventRecorder
	poster *poster // nil: to the cluster alone
}

// record records an Event. One for a commit's status alone is only posted: the
// cluster has nothing new to be told.
func (r *eventRecorder) record(object client.Object, event poolEvent) {
	kind := corev1.EventTypeNormal
	if event.warning {
		kind = corev1.EventTypeWarning
	}
	message := secret.Redact(event.message)
	metadata := map[string]string{}
	if revision := orElse(event.revision, object.GetAnnotations()[v1alpha1.AnnotationRevision]); revision != "" {
		metadata[postedRevision] = secret.Redact(revision)
	}
	if event.statusOnly {
		metadata[postedCommitStatus] = eventv1.MetaCommitStatusUpdateValue
	} else {
		r.AnnotatedEventf(object, maps.Clone(metadata), kind, string(event.reason), "%s", shorten(message, maxEventMessage))
	}
	if r.poster != nil {
		r.poster.put(object, metadata, kind, string(event.reason), message)
	}
}
