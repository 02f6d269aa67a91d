package controllers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// realHub is a hub in this process, behind a door that a test may shut.
type realHub struct {
	t     *testing.T
	door  *httptest.Server
	log   *lockedBuffer
	admin *hubclient.Client

	mu sync.Mutex // guards what follows
	// meet is called for each request before the hub sees it, and says whether it
	// was answered; after once the hub has made its answer, and says whether that is
	// lost.
	meet  func(http.ResponseWriter, *http.Request) bool
	after func(*http.Request) bool
	// ahead is by how much the clock is ahead that dates the hub's answers; nil: it is
	// the hub's own.
	ahead *time.Duration
}

type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// sharedHub serves all tests of the package, which name their pools apart: a hub
// needs seconds to start under the race detector.
var sharedHub struct {
	once  sync.Once
	addr  string
	pin   string
	token string
	log   *lockedBuffer
	err   error
}

func startSharedHub() {
	dir, err := os.MkdirTemp("", "cloop-hub")
	if err != nil {
		sharedHub.err = err
		return
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	tokenFile := filepath.Join(dir, "admin-token")
	sharedHub.log = &lockedBuffer{}
	o := hub.Options{
		Addr: "127.0.0.1:0", DataDir: filepath.Join(dir, "hub"), AdminTokenFile: tokenFile,
		Log:   slog.New(slog.NewTextHandler(sharedHub.log, nil)),
		Room:  func(string) doctor.Disk { return doctor.Disk{Free: 50 << 30, Total: 100 << 30} },
		Ready: func(addr, pin string) { sharedHub.addr, sharedHub.pin = addr, pin; close(ready) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- hub.Run(ctx, o) }()
	atEnd = append(atEnd, func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "stop the hub:", err)
		}
		_ = os.RemoveAll(dir)
	})
	select {
	case <-ready:
	case sharedHub.err = <-done:
		done <- nil
		return
	}
	token, err := os.ReadFile(tokenFile)
	sharedHub.token, sharedHub.err = strings.TrimSpace(string(token)), err
}

// newRealHub is the shared hub behind a door of the test's own.
func newRealHub(t *testing.T) *realHub {
	t.Helper()
	sharedHub.once.Do(startSharedHub)
	if sharedHub.err != nil {
		t.Fatal(sharedHub.err)
	}
	h := &realHub{t: t, log: sharedHub.log}
	var err error
	h.admin, err = hubclient.New(hubclient.Options{URL: "https://" + sharedHub.addr, Pin: sharedHub.pin, Token: secret.New(sharedHub.token)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.admin.CloseIdleConnections)
	behind := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(behind.CloseIdleConnections)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: sharedHub.addr})
	proxy.Transport, proxy.FlushInterval, proxy.ErrorLog = behind, -1, slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError)
	proxy.ModifyResponse = func(r *http.Response) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ahead != nil {
			r.Header.Set("Date", time.Now().Add(*h.ahead).UTC().Format(http.TimeFormat))
		}
		return nil
	}
	h.door = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		meet, after := h.meet, h.after
		h.mu.Unlock()
		if meet != nil && meet(w, r) {
			return
		}
		if after == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		made := httptest.NewRecorder()
		proxy.ServeHTTP(made, r)
		if after(r) {
			panic(http.ErrAbortHandler)
		}
		for key, values := range made.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(made.Code)
		_, _ = w.Write(made.Body.Bytes())
	}))
	h.door.Config.ErrorLog = proxy.ErrorLog
	t.Cleanup(func() {
		h.door.CloseClientConnections()
		h.door.Close()
	})
	return h
}

func (h *realHub) bundle() string { return (&fakeHub{server: h.door}).bundle() }

// meets has requests answered by a function; nil lets all of them in.
func (h *realHub) meets(meet func(http.ResponseWriter, *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.meet = meet
}

// loses has answers lost.
func (h *realHub) loses(after func(*http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after = after
}

// goesAhead has answers dated by a clock that is ahead.
func (h *realHub) goesAhead(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ahead = &by
}

// shut has nobody reach the hub, also who is in already.
func (h *realHub) shut() {
	h.meets(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	h.door.CloseClientConnections()
}

func (h *realHub) open() { h.meets(nil) }

// hubStage is a namespace with a token for the hub, and a reconciler.
type hubStage struct {
	t      *testing.T
	ctx    context.Context
	config *rest.Config
	client client.Client
	ns     string
	hub    *realHub
	// name is the pool's, which no other test's has.
	name string
	r    *hubPoolReconciler
	// used is the credential that was used last.
	used string
	// recorded are the Events.
	recorded *eventLog
	clock    clock.PassiveClock
}

// eventLog keeps Events in place of an API server.
type eventLog struct {
	mu   sync.Mutex
	said []string
}

func (e *eventLog) add(reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, reason+": "+message)
}

func (e *eventLog) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.said, "\n")
}

type loggedRecorder struct{ *eventLog }

func (r loggedRecorder) Event(_ runtime.Object, _, reason, message string) { r.add(reason, message) }
func (r loggedRecorder) Eventf(_ runtime.Object, _, reason, format string, args ...any) {
	r.add(reason, fmt.Sprintf(format, args...))
}
func (r loggedRecorder) AnnotatedEventf(_ runtime.Object, _ map[string]string, _, reason, format string, args ...any) {
	r.add(reason, fmt.Sprintf(format, args...))
}

func newHubStage(t *testing.T) *hubStage {
	t.Helper()
	config := restConfig(t)
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &hubStage{t: t, ctx: t.Context(), config: config, client: c, ns: clustertest.Namespace(t, config), hub: newRealHub(t), recorded: &eventLog{}, clock: clock.RealClock{}}
	s.name = shorten(s.ns, 63)
	s.token(sharedHub.token)
	s.restart()
	t.Cleanup(func() {
		s.r.hubs.cancel()
		s.r.hubs.wg.Wait()
		pools := &v1alpha1.HubPoolList{}
		ctx := context.Background()
		_ = s.client.List(ctx, pools, client.InNamespace(s.ns))
		for i := range pools.Items {
			_ = s.client.Patch(ctx, &pools.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
	})
	return s
}

// token makes what the Secret of the management token has.
func (s *hubStage) token(text string) {
	s.t.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "hub-token"}, Data: map[string][]byte{"token": []byte(text)}}
	err := s.client.Create(s.ctx, object)
	if err != nil {
		err = s.client.Update(s.ctx, object)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// scoped makes the token one that gives no more than this.
func (s *hubStage) scoped(ceiling hubv1.Ceiling, scopes ...hubv1.Permission) {
	s.t.Helper()
	if len(scopes) == 0 {
		scopes = []hubv1.Permission{hubv1.PermissionExecutorRead, hubv1.PermissionExecutorManage}
	}
	made, err := s.hub.admin.CreateToken(s.ctx, hubv1.CreateTokenRequest{Name: rand.Text(), Scopes: scopes, Ceiling: &ceiling})
	if err != nil {
		s.t.Fatal(err)
	}
	s.token(made.Secret)
}

// restart is a new process in the place of the last one.
func (s *hubStage) restart() { s.restartWith(s.client) }

func (s *hubStage) restartWith(c client.Client, allowed ...string) {
	s.t.Helper()
	if s.r != nil {
		s.r.hubs.cancel()
		s.r.hubs.wg.Wait()
	}
	s.r = newHubPoolReconciler(c, c, Options{Build: "test", ClusterName: "test", AllowedHubs: allowed}, &eventRecorder{EventRecorder: loggedRecorder{s.recorded}}, s.clock)
	// Nobody listens: the test says when to look.
	s.r.hubs.changed = make(chan event.GenericEvent, 10_000)
}

// pool creates the HubPool, changed as the test wants.
func (s *hubStage) pool(change ...func(*v1alpha1.HubPool)) {
	s.t.Helper()
	p := &v1alpha1.HubPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.name},
		Spec: v1alpha1.HubPoolSpec{
			MaxRunners: 3, Labels: map[string]string{"gpu": "true"}, Harness: "command", DeletionPolicy: v1alpha1.DeletionOrphan,
			Hub: &v1alpha1.HubConnection{URL: s.hub.door.URL, CABundle: s.hub.bundle(), TokenSecretRef: v1alpha1.SecretKeyRef{Name: "hub-token", Key: "token"}},
		},
	}
	for _, c := range change {
		c(p)
	}
	if err := s.client.Create(s.ctx, p); err != nil {
		s.t.Fatal(err)
	}
}

func revokes(p *v1alpha1.HubPool) { p.Spec.DeletionPolicy = v1alpha1.DeletionRevoke }

// mints has the pool's credential minted into a Secret of a namespace.
func mints(namespace string, every time.Duration) func(*v1alpha1.HubPool) {
	return func(p *v1alpha1.HubPool) {
		p.Spec.Credential = &v1alpha1.HubPoolCredential{SecretRef: v1alpha1.NamespacedSecretKeyRef{Namespace: namespace, Name: "gpu-pool-credential", Key: "credential"}}
		if every > 0 {
			p.Spec.Credential.RotateEvery = &metav1.Duration{Duration: every}
		}
	}
}

func (s *hubStage) request() ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.ns, Name: s.name}}
}

// pass makes one pass and returns the object, nil where it is gone, and how long
// until the next.
func (s *hubStage) pass() (*v1alpha1.HubPool, time.Duration) {
	s.t.Helper()
	result, err := s.r.Reconcile(s.ctx, s.request())
	if err != nil {
		s.t.Fatal(err)
	}
	return s.get(), result.RequeueAfter
}

func (s *hubStage) get() *v1alpha1.HubPool {
	s.t.Helper()
	p := &v1alpha1.HubPool{}
	err := s.client.Get(s.ctx, s.request().NamespacedName, p)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return p
}

func (s *hubStage) edit(change func(*v1alpha1.HubPool)) {
	s.t.Helper()
	p := s.get()
	before := p.DeepCopy()
	change(p)
	if err := s.client.Patch(s.ctx, p, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *hubStage) delete() {
	s.t.Helper()
	if err := s.client.Delete(s.ctx, s.get()); err != nil {
		s.t.Fatal(err)
	}
}

// wants fails unless Ready has the reason and says the text.
func (s *hubStage) wants(p *v1alpha1.HubPool, reason v1alpha1.Reason, text string) {
	s.t.Helper()
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Reason != string(reason) || !strings.Contains(c.Message, text) || c.ObservedGeneration != p.Generation {
		s.t.Fatalf("Ready is %+v, want %s that says %q", c, reason, text)
	}
}

// atHub is the pool as the hub has it.
func (s *hubStage) atHub() hubv1.Pool {
	s.t.Helper()
	pool, err := s.hub.admin.GetPool(s.ctx, s.name)
	if err != nil {
		s.t.Fatal(err)
	}
	return pool
}

// secret is the pool credential's, nil where there is none.
func (s *hubStage) secret(namespace string) *corev1.Secret {
	s.t.Helper()
	object := &corev1.Secret{}
	err := s.client.Get(s.ctx, client.ObjectKey{Namespace: namespace, Name: "gpu-pool-credential"}, object)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return object
}

// live are the ids that the hub accepts for the pool.
func (s *hubStage) live() map[string]bool {
	s.t.Helper()
	list, err := s.hub.admin.ListCredentials(s.ctx, s.name, false)
	if err != nil {
		s.t.Fatal(err)
	}
	live := map[string]bool{}
	for i := range list {
		live[list[i].ID] = true
	}
	return live
}

// use connects to the hub with what the Secret has, as an executor controller does.
func (s *hubStage) use(object *corev1.Secret) hubv1.PoolSnapshot {
	s.t.Helper()
	c, err := hubclient.New(hubclient.Options{URL: "https://" + sharedHub.addr, Pin: sharedHub.pin, Token: secret.New(string(object.Data["credential"]))})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for snapshot, err := range c.PoolWatch(ctx, hubclient.Hello{Instance: "test", Build: "test", Features: hubv1.ControllerFeatures()}) {
		if err != nil {
			s.t.Fatal(err)
		}
		return snapshot
	}
	s.t.Fatal("the hub says nothing")
	return hubv1.PoolSnapshot{}
}
