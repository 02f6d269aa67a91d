package hub_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/forgetest"
	"cloop.dev/cloop/internal/hub"
)

// forged is a hub that follows a repository and posts statuses to a forge.
type forged struct {
	*following
	forge  *forgetest.Forge
	config hub.SyncConfig
}

func followForge(t *testing.T, kind forge.Kind, change func(*hub.SyncConfig), more ...func(*hub.Options)) *forged {
	t.Helper()
	f := &forged{following: &following{git: fleettest.Serve(t)}, forge: forgetest.Serve(t, kind)}
	f.git.Create(forgetest.RepositoryPath)
	f.commit(map[string]string{"hub/kustomization.yaml": kustomization("demo.yaml"), "hub/demo.yaml": hubPool("demo", 2, "Revoke", "")})
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		check(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		return filepath.Join(dir, name)
	}
	f.config = hub.SyncConfig{
		Name: "fleet", URL: f.git.URL(forgetest.RepositoryPath), Path: "hub", GitConfig: hub.GitConfig{CAFile: file("git.pem", f.git.CABundle())}, Interval: time.Minute,
		Status: &hub.StatusConfig{
			Forge: kind, API: f.forge.URL + map[forge.Kind]string{forge.GitHub: "/api/v3", forge.GitLab: "/api/v4", forge.Gitea: "/api/v1"}[kind],
			TokenFile: file("token", []byte(forgetest.Token+"\n")), CAFile: file("forge.pem", f.forge.CABundle()),
		},
	}
	if change != nil {
		change(&f.config)
	}
	f.running = serve(t, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{f.config}
		for _, c := range more {
			c(o)
		}
	})
	return f
}

func (f *forged) commit(files map[string]string) string {
	return f.git.Commit(forgetest.RepositoryPath, files)
}

// posted waits for so many statuses and returns the last.
func (f *forged) posted(n int) forgetest.Posted {
	f.t.Helper()
	f.forge.Await(f.t, fmt.Sprintf("%d statuses are posted", n), func() bool { return len(f.forge.Posted()) >= n })
	if malformed := f.forge.Malformed(); len(malformed) > 0 {
		f.t.Fatalf("malformed: %v", malformed)
	}
	return f.forge.Posted()[n-1]
}

func TestCommitsGetAStatusAtTheForge(t *testing.T) {
	for _, kind := range []forge.Kind{forge.GitHub, forge.GitLab} {
		t.Run(string(kind), func(t *testing.T) {
			f := followForge(t, kind, nil)
			first := f.posted(1)
			if first.Context != "cloop/hub" || first.State != "success" || !strings.Contains(first.Description, "defines 1 pool") ||
				!strings.HasSuffix(first.Link, "/hub") || !strings.Contains(first.Link, first.Revision) {
				t.Errorf("posted %+v", first)
			}
			if kind == forge.GitLab && first.Branch != "main" {
				t.Error("the status is not filed under the branch that is followed")
			}
			bad := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", -1, "Revoke", "")})
			f.synced(bad, hubv1.SyncFailed)
			failed := map[forge.Kind]string{forge.GitLab: "failed"}[kind]
			if failed == "" {
				failed = "failure"
			}
			if s := f.posted(2); s.Revision != bad || s.State != failed || !strings.HasPrefix(s.Description, "applied 0 of 1 pool: hub/demo.yaml:5") {
				t.Errorf("posted %+v", s)
			}
			good := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 3, "Revoke", "")})
			f.synced(good, hubv1.SyncReady)
			if s := f.posted(3); s.Revision != good || s.State != "success" {
				t.Errorf("posted %+v", s)
			}

			// Nothing is new: neither another look nor another process posts.
			f.synced(good, hubv1.SyncReady)
			f.admin.CloseIdleConnections()
			f.stop()
			asked := f.forge.Requests()
			again := serveIn(t, f.dir, func(o *hub.Options) { o.Syncs = []hub.SyncConfig{f.config} })
			f.forge.Await(t, "the restarted hub asks", func() bool { return f.forge.Requests() > asked })
			until(t, again.admin.WatchSync(again.ctx(), "fleet"), "ready", func(s hubv1.Sync) bool { return s.State == hubv1.SyncReady })
			again.admin.CloseIdleConnections()
			again.stop()
			if n := len(f.forge.Posted()); n != 3 {
				t.Errorf("%d statuses are posted, not 3", n)
			}
			if log := f.log.String() + again.log.String(); strings.Contains(log, forgetest.Token) {
				t.Error("the token is in the log")
			}
		})
	}
}

func TestARefusedStatusNeverHoldsUpTheSync(t *testing.T) {
	f := followForge(t, forge.GitHub, func(c *hub.SyncConfig) { check(t, os.WriteFile(c.Status.TokenFile, []byte("of-another-forge"), 0o600)) })
	f.forge.Await(t, "the forge refuses", func() bool { return f.forge.Requests() == 1 })
	revision := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 4, "Revoke", "")})
	f.synced(revision, hubv1.SyncReady)
	f.forge.Await(t, "the forge refuses again", func() bool { return f.forge.Requests() >= 2 })
	if f.get("demo").MaxRunners != 4 {
		t.Error("the sync waits for the forge")
	}

	f.finds(hubv1.FindingSyncsStatuses, "put a live one into its file")
	// A token that was put right is used without a restart.
	check(t, os.WriteFile(f.config.Status.TokenFile, []byte(forgetest.Token), 0o600))
	f.advanceUntil("the status is posted", func() bool { return len(f.forge.Posted()) > 0 })
	if s := f.posted(1); s.Revision != revision {
		t.Errorf("posted %+v", s)
	}
	f.finds(hubv1.FindingSyncsStatuses, "")
	if log := f.log.String(); !strings.Contains(log, "put a live one into its file") || strings.Contains(log, "of-another-forge") {
		t.Errorf("the log has %s", log)
	}
}

// finds holds the doctor to what it says of the sync; empty: nothing of the id.
func (f *forged) finds(id hubv1.FindingID, found string) {
	f.t.Helper()
	d, err := f.admin.Doctor(f.ctx())
	check(f.t, err)
	got := findingOf(d, id)
	switch {
	case found == "" && got == nil:
	case got == nil, found == "", got.Severity != hubv1.SeverityWarn, got.About != "fleet", !strings.Contains(got.Found, found):
		f.t.Errorf("the doctor finds %+v, want %q", got, found)
	}
}

// advanceUntil lets the clock run on whenever something waits for it.
func (f *forged) advanceUntil(what string, holds func() bool) {
	f.t.Helper()
	over := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
			f.clock.Step(20 * time.Second)
		case <-over:
			f.t.Fatalf("%s: not so", what)
		}
	}
}

func TestAGitServerThatIsAwaySaysNothingOfACommit(t *testing.T) {
	f := followForge(t, forge.GitHub, nil)
	f.posted(1)
	f.git.Close()
	must(t)(f.admin.ReconcileSync(f.ctx(), "fleet"))
	until(t, f.admin.WatchSync(f.ctx(), "fleet"), "failed", func(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed })
	f.stop()
	if n := len(f.forge.Posted()); n != 1 {
		t.Errorf("%d statuses are posted", n)
	}
}

const webhookSecret = "0123456789abcdef0123456789abcdef"

// hooked is a hub whose sync takes a forge's push events.
func hooked(t *testing.T, kind forge.Kind, secretText string) *forged {
	t.Helper()
	return followForge(t, kind, func(c *hub.SyncConfig) {
		file := filepath.Join(filepath.Dir(c.CAFile), "secret")
		check(t, os.WriteFile(file, []byte(secretText+"\n"), 0o600))
		c.Webhook = &hub.WebhookConfig{SecretFile: file}
		c.Interval = time.Hour
	})
}

// send posts an event and returns status and body of the answer.
func (f *forged) send(sync string, header map[string]string, body []byte) (int, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "https://"+f.addr+"/webhooks/"+sync, bytes.NewReader(body))
	check(f.t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		request.Header.Set(name, value)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	check(f.t, err)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	check(f.t, err)
	return response.StatusCode, string(data)
}

func mac(key, text string) []byte {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(text))
	return h.Sum(nil)
}

// pushEvent is a push as a forge sends it.
func (f *forged) pushEvent(kind forge.Kind, secretText, delivery, body string) map[string]string {
	switch kind {
	case forge.GitHub:
		return map[string]string{"X-GitHub-Event": "push", "X-GitHub-Delivery": delivery, "X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac(secretText, body))}
	case forge.Gitea:
		return map[string]string{"X-Gitea-Event": "push", "X-Gitea-Delivery": delivery, "X-Gitea-Signature": hex.EncodeToString(mac(secretText, body))}
	}
	encoded, signing := strings.CutPrefix(secretText, "whsec_")
	header := map[string]string{"X-Gitlab-Event": "Push Hook", "Idempotency-Key": delivery}
	if !signing {
		header["X-Gitlab-Token"] = secretText
		return header
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	check(f.t, err)
	stamp := strconv.FormatInt(f.clock.Now().Unix(), 10)
	header["webhook-id"], header["webhook-timestamp"] = delivery, stamp
	header["webhook-signature"] = "v1,AAAA v1," + base64.StdEncoding.EncodeToString(mac(string(key), delivery+"."+stamp+"."+body))
	return header
}

func body(revision, ref string) string {
	return fmt.Sprintf(`{"ref":%q,"after":%q,"commits":[{"id":%q}]}`, ref, revision, revision)
}

func TestAPushIsSyncedAtOnce(t *testing.T) {
	signing := "whsec_" + base64.StdEncoding.EncodeToString([]byte(webhookSecret))
	for name, c := range map[string]struct {
		kind   forge.Kind
		secret string
	}{
		"GitHub":              {forge.GitHub, webhookSecret},
		"Gitea":               {forge.Gitea, webhookSecret},
		"GitLab with a token": {forge.GitLab, webhookSecret},
		"GitLab with signing": {forge.GitLab, signing},
	} {
		t.Run(name, func(t *testing.T) {
			f := hooked(t, c.kind, c.secret)
			f.untilSynced()
			f.clock.Step(10 * time.Second) // far less than the interval
			revision := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 5, "Revoke", "")})
			push := body(revision, "refs/heads/main")
			header := f.pushEvent(c.kind, c.secret, "one", push)
			if code, answer := f.send("fleet", header, []byte(push)); code != http.StatusAccepted || !strings.Contains(answer, "accepted") {
				t.Fatalf("%d %s", code, answer)
			}
			until(t, f.admin.WatchSync(f.ctx(), "fleet"), "the push is synced", func(s hubv1.Sync) bool { return s.LastAppliedRevision == revision })

			// The same again does nothing, also under another delivery's name
			// where the forge signs.
			if code, answer := f.send("fleet", header, []byte(push)); code != http.StatusAccepted || !strings.Contains(answer, "received before") {
				t.Errorf("a replay: %d %s", code, answer)
			}
			if c.kind != forge.GitLab {
				header["X-GitHub-Delivery"], header["X-Gitea-Delivery"] = "two", "two"
				if _, answer := f.send("fleet", header, []byte(push)); !strings.Contains(answer, "received before") {
					t.Errorf("a replay under another name: %s", answer)
				}
			}
			other := body(revision, "refs/heads/feature")
			if _, answer := f.send("fleet", f.pushEvent(c.kind, c.secret, "three", other), []byte(other)); !strings.Contains(answer, "follows refs/heads/main") {
				t.Errorf("a push to another branch: %s", answer)
			}
			if c.secret == signing {
				header = f.pushEvent(c.kind, c.secret, "four", push)
				f.clock.Step(6 * time.Minute)
				if code, _ := f.send("fleet", header, []byte(push)); code != http.StatusNotFound {
					t.Errorf("an old event: %d", code)
				}
			}
		})
	}
}

func TestPushesAreSyncedTogether(t *testing.T) {
	f := hooked(t, forge.GitHub, webhookSecret)
	f.untilSynced()
	f.clock.Step(10 * time.Second)
	event := func(n int) {
		push := body(strconv.Itoa(n), "refs/heads/main")
		if code, answer := f.send("fleet", f.pushEvent(forge.GitHub, webhookSecret, strconv.Itoa(n), push), []byte(push)); code != http.StatusAccepted {
			t.Fatalf("%d %s", code, answer)
		}
	}
	before := *f.synced(f.commit(nil), hubv1.SyncReady).LastRun
	revision := f.commit(map[string]string{"hub/demo.yaml": hubPool("demo", 6, "Revoke", "")})
	for n := range 20 {
		event(n)
	}
	now, err := f.admin.GetSync(f.ctx(), "fleet")
	check(t, err)
	if !now.LastRun.Equal(before) {
		t.Error("the clock stands still, and it was looked again")
	}
	f.clock.Step(5 * time.Second)
	until(t, f.admin.WatchSync(f.ctx(), "fleet"), "the pushes are synced", func(s hubv1.Sync) bool { return s.LastAppliedRevision == revision })
}

func TestStrangersLearnNothingFromAWebhook(t *testing.T) {
	f := hooked(t, forge.GitHub, webhookSecret)
	f.untilSynced()
	push := body("x", "refs/heads/main")
	good := f.pushEvent(forge.GitHub, webhookSecret, "one", push)
	code, unknown := f.send("nobody", good, []byte(push))
	if code != http.StatusNotFound {
		t.Fatalf("an unknown sync: %d %s", code, unknown)
	}
	for name, header := range map[string]map[string]string{
		"no signature":         {"X-GitHub-Event": "push"},
		"another secret's":     f.pushEvent(forge.GitHub, "another secret of some length", "one", push),
		"another body's":       f.pushEvent(forge.GitHub, webhookSecret, "one", push+" "),
		"another forge's":      f.pushEvent(forge.Gitea, webhookSecret, "one", push),
		"no hexadecimal":       {"X-GitHub-Event": "push", "X-Hub-Signature-256": "sha256=zz"},
		"half of it":           {"X-GitHub-Event": "push", "X-Hub-Signature-256": good["X-Hub-Signature-256"][:40]},
		"an unsigned ping":     {"X-GitHub-Event": "ping"},
		"the secret as a name": {"X-Gitlab-Token": webhookSecret, "X-Gitlab-Event": "Push Hook"},
	} {
		if code, answer := f.send("fleet", header, []byte(push)); code != http.StatusNotFound || answer != unknown {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	// Whoever reads it looks after the forge and has no list of the hub's.
	if !strings.Contains(unknown, "compare the address and the secret") || strings.Contains(unknown, "the list of") {
		t.Errorf("it says %s", unknown)
	}
	f.finds(hubv1.FindingSyncsWebhooks, "give hub and forge the same secret")
	if code, _ := f.send("fleet", good, bytes.Repeat([]byte{'x'}, 26<<20)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("26 MiB: %d", code)
	}
	check(t, os.WriteFile(f.config.Webhook.SecretFile, []byte("short"), 0o600))
	if code, answer := f.send("fleet", f.pushEvent(forge.GitHub, "short", "one", push), []byte(push)); code != http.StatusNotFound || answer != unknown {
		t.Errorf("a secret that can be guessed: %d %s", code, answer)
	}
	f.finds(hubv1.FindingSyncsWebhooks, "is shorter than")
	check(t, os.WriteFile(f.config.Webhook.SecretFile, nil, 0o600))
	if code, _ := f.send("fleet", f.pushEvent(forge.GitHub, "", "one", push), []byte(push)); code != http.StatusNotFound {
		t.Errorf("no secret: %d", code)
	}
	check(t, os.WriteFile(f.config.Webhook.SecretFile, []byte(webhookSecret), 0o600))
	ping := map[string]string{"X-GitHub-Event": "ping", "X-Hub-Signature-256": good["X-Hub-Signature-256"]}
	if code, answer := f.send("fleet", ping, []byte(push)); code != http.StatusAccepted || !strings.Contains(answer, "takes push events") {
		t.Errorf("a ping: %d %s", code, answer)
	}
	f.finds(hubv1.FindingSyncsWebhooks, "")
	if log := f.log.String(); strings.Count(log, "webhook event is refused") != 1 || strings.Contains(log, webhookSecret) {
		t.Errorf("the log has %s", log)
	}
}

// Anybody can begin to send something.
func TestAnEventThatBreaksOffIsNoFinding(t *testing.T) {
	f := hooked(t, forge.GitHub, webhookSecret)
	f.untilSynced()
	transport := pinned(t, f.pin)
	body, writer := io.Pipe()
	request, err := http.NewRequestWithContext(f.ctx(), http.MethodPost, "https://"+f.addr+"/webhooks/fleet", body)
	check(t, err)
	go func() {
		_, _ = io.WriteString(writer, "half of")
		_ = writer.CloseWithError(errors.New("the sender goes away"))
	}()
	if _, err := transport.RoundTrip(request); err == nil { //nolint:bodyclose // there is none
		t.Fatal("it is answered")
	}
	for !strings.Contains(f.page("/metrics"), `cloop_fleet_webhooks_total{result="refused",sync="fleet"} 1`) { //nolint:revive // it waits
	}
	f.finds(hubv1.FindingSyncsWebhooks, "")
}

func TestTheForgeOfASyncInTheConfiguration(t *testing.T) {
	config, err := hub.ParseConfig("/etc/hub/config.yaml", []byte(`sync:
- name: fleet
  url: https://github.com/acme/fleet.git
  caFile: ca.pem
  status: {tokenFile: token}
  webhook: {secretFile: secret}
- name: elsewhere
  url: https://git.example.com/acme/fleet.git
  status: {forge: gitea, tokenFile: /run/token, api: https://git.example.com/gitea/api/v1, caFile: forge.pem, name: us-hub, link: "https://cloop.example.com"}
  webhook: {secretFile: secret}
`))
	check(t, err)
	if got, want := *config.Syncs[0].Status, (hub.StatusConfig{TokenFile: "/etc/hub/token", CAFile: "/etc/hub/ca.pem", Name: "hub"}); got != want {
		t.Errorf("parsed %+v", got)
	}
	if got, want := *config.Syncs[0].Webhook, (hub.WebhookConfig{Forge: forge.GitHub, SecretFile: "/etc/hub/secret"}); got != want {
		t.Errorf("parsed %+v", got)
	}
	if got := config.Syncs[1]; got.Status.Name != "us-hub" || got.Status.CAFile != "/etc/hub/forge.pem" || got.Webhook.Forge != forge.Gitea {
		t.Errorf("parsed %+v and %+v", got.Status, got.Webhook)
	}

	_, err = hub.ParseConfig("hub.yaml", []byte(`sync:
- {name: a, url: "https://git.example.com/a/b", status: {}, webhook: {}}
- {name: b, url: "https://github.com/a/b", status: {tokenFile: t, api: "http://x", name: Upper, link: "ftp://x"}, webhook: {forge: svn, secretFile: s}}
- {name: c, url: "https://github.com/a/b", status: {tokenFile: t}}
- {name: d, url: "https://github.com/A/b.git", status: {tokenFile: t}}
`))
	for _, want := range []string{`"a": status.forge is missing`, "status needs tokenFile", `"a": webhook.forge must be`, "webhook needs secretFile",
		"https URL without", "status.name must", "status.link must", `"b": webhook.forge must be`, `"d": sync c posts statuses of that name`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}
