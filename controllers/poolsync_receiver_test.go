package controllers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"cloop.dev/cloop/apis/v1alpha1"
)

const hookSecretText = "0123456789abcdef0123456789abcdef"

// send posts an event of GitHub's, signed with a secret, and returns the answer.
func send(t *testing.T, url, event, body, secret string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	sum := hmac.New(sha256.New, []byte(secret))
	_, _ = sum.Write([]byte(body))
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum.Sum(nil)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

const pushToMain = `{"ref":"refs/heads/main"}`

func TestAPushIsAppliedAtOnce(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	s.secret("hook", map[string]string{"token": hookSecretText + "\n"})
	listening := freeAddress(t)
	s.webhookAddr = listening
	s.startController()
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Source.Git.Webhook = &v1alpha1.GitWebhook{Forge: "github", SecretRef: v1alpha1.SecretKeyRef{Name: "hook", Key: "token"}}
	})
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	url := "http://" + listening + "/hook/" + s.ns + "/fleet"
	s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 7)})
	if code, said := send(t, url, "push", pushToMain, hookSecretText); code != http.StatusAccepted || !strings.Contains(said, "accepted") {
		t.Errorf("%d %s", code, said)
	}
	s.until("it is applied", func() bool { return s.pool("gpu").Spec.MaxRunners == 7 })
}

// hookStage is a receiver with a PoolSync, a clock that stands still, and a client
// that counts.
type hookStage struct {
	url            string
	clock          *clocktesting.FakeClock
	client         client.Client
	patched, asked atomic.Int32
	refuses        atomic.Bool
	receiver       *receiver
}

func newHookStage(t *testing.T, secret string) *hookStage {
	t.Helper()
	h := &hookStage{clock: clocktesting.NewFakeClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))}
	with, without := &v1alpha1.PoolSync{}, &v1alpha1.PoolSync{}
	with.Namespace, with.Name, without.Namespace, without.Name = "fleet", "fleet", "fleet", "other"
	with.Spec.Source.Git.Webhook = &v1alpha1.GitWebhook{Forge: "github", SecretRef: v1alpha1.SecretKeyRef{Name: "hook", Key: "token"}}
	h.client = fake.NewClientBuilder().WithScheme(newScheme()).
		WithObjects(with, without, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "hook"}, Data: map[string][]byte{"token": []byte(secret)}}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if _, is := obj.(*corev1.Secret); is {
					h.asked.Add(1)
				}
				return c.Get(ctx, key, obj, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if h.refuses.Load() {
					return errors.New("no")
				}
				h.patched.Add(1)
				return c.Patch(ctx, obj, patch, opts...)
			},
		}).Build()
	h.receiver = newReceiver(h.client, h.client, h.clock)
	ctx, cancel := context.WithCancel(t.Context())
	mux := http.NewServeMux()
	mux.Handle("POST /hook/{namespace}/{name}", h.receiver.handler(ctx))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.Close()
		cancel()
		h.receiver.work.Wait()
	})
	h.url = server.URL + "/hook/fleet/"
	return h
}

func TestPushesAreAskedForTogether(t *testing.T) {
	h := newHookStage(t, hookSecretText)
	push := func() {
		if code, said := send(t, h.url+"fleet", "push", pushToMain, hookSecretText); code != http.StatusAccepted || !strings.Contains(said, "accepted") {
			t.Fatalf("%d %s", code, said)
		}
	}
	for range 20 {
		push()
	}
	if got := h.patched.Load(); got != 1 {
		t.Errorf("asked %d times at once", got)
	}
	h.clock.Step(pushGap)
	h.receiver.work.Wait()
	if got := h.patched.Load(); got != 2 {
		t.Errorf("asked %d times in all", got)
	}
	sync := &v1alpha1.PoolSync{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "fleet"}, sync); err != nil {
		t.Fatal(err)
	}
	if got := requestOf(sync); got != "2026-11-29T12:00:05Z" {
		t.Errorf("asked with %q", got)
	}
	if got := h.asked.Load(); got != 1 {
		t.Errorf("read the secret %d times", got)
	}
	h.clock.Step(time.Minute)
	h.refuses.Store(true)
	if code, said := send(t, h.url+"fleet", "push", pushToMain, hookSecretText); code != http.StatusServiceUnavailable || !strings.Contains(said, "failed") {
		t.Errorf("an API server that does not take it: %d %s", code, said)
	}
}

func TestWhichEventsMatter(t *testing.T) {
	h := newHookStage(t, hookSecretText)
	_, stranger := send(t, h.url+"nobody", "push", pushToMain, hookSecretText)
	for name, test := range map[string]struct {
		to, event, body, secret string
		code                    int
		want                    string
	}{
		"a ping":              {"fleet", "ping", "{}", hookSecretText, http.StatusAccepted, "takes push events here"},
		"an issue":            {"fleet", "issues", "{}", hookSecretText, http.StatusAccepted, "only push events matter"},
		"another branch":      {"fleet", "push", `{"ref":"refs/heads/x"}`, hookSecretText, http.StatusAccepted, "follows refs/heads/main"},
		"another's secret":    {"fleet", "push", pushToMain, "x" + hookSecretText, http.StatusNotFound, stranger},
		"nobody listens":      {"other", "push", pushToMain, hookSecretText, http.StatusNotFound, stranger},
		"nobody is there":     {"nobody", "push", pushToMain, hookSecretText, http.StatusNotFound, stranger},
		"not of a signed one": {"fleet", "push", "", "", http.StatusNotFound, stranger},
	} {
		if code, said := send(t, h.url+test.to, test.event, test.body, test.secret); code != test.code || !strings.Contains(said, test.want) {
			t.Errorf("%s: %d %s", name, code, said)
		}
	}
	if h.patched.Load() != 0 {
		t.Error("one of them was acted on")
	}
	short := newHookStage(t, "short")
	if code, said := send(t, short.url+"fleet", "push", pushToMain, "short"); code != http.StatusNotFound || said != stranger {
		t.Errorf("a short secret: %d %s", code, said)
	}
}

// Anybody can begin an event and leave it at that: those of forges are taken all the
// same, also at once, and who was turned out is told.
func TestEventsThatNeverArriveKeepNoneOut(t *testing.T) {
	h := newHookStage(t, hookSecretText)
	address, path, _ := strings.Cut(strings.TrimPrefix(h.url, "http://"), "/")
	begun := make([]net.Conn, 2*eventsAtOnce)
	for i := range begun {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		begun[i] = conn
		if _, err := fmt.Fprintf(conn, "POST /%s%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", path, []string{"fleet", "nobody"}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	out := make(chan string, len(begun))
	for _, conn := range begun {
		go func() {
			answer, _ := io.ReadAll(conn)
			out <- string(answer)
		}()
	}
	for range eventsAtOnce {
		if answer := <-out; !strings.Contains(answer, "503 Service Unavailable") || !strings.Contains(answer, "send it again") {
			t.Fatalf("it is told %q", answer)
		}
	}
	for range 3 {
		if code, said := send(t, h.url+"fleet", "push", pushToMain, hookSecretText); code != http.StatusAccepted {
			t.Errorf("%d %s", code, said)
		}
	}
}

// Whoever goes away before the API server has said the webhook's secret takes it from
// nobody else.
func TestAStrangerWhoGoesAwayTakesNoSecretAlong(t *testing.T) {
	h := newHookStage(t, hookSecretText)
	sync := &v1alpha1.PoolSync{}
	if err := h.client.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "fleet"}, sync); err != nil {
		t.Fatal(err)
	}
	h.receiver.live = interceptor.NewClient(h.receiver.syncs.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return errors.Join(ctx.Err(), c.Get(ctx, key, obj, opts...))
		},
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = h.receiver.secret(gone, sync)
	if code, said := send(t, h.url+"fleet", "push", pushToMain, hookSecretText); code != http.StatusAccepted {
		t.Errorf("%d %s", code, said)
	}
}
