package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/dev"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// credential is what no text of the system may hold: all that cloop makes.
var credential = regexp.MustCompile(`cloop_[a-z]+1_[0-9A-Za-z]{20}`)

// canary is a system with a credential in every place that takes one, and in
// many that do not.
type canary struct {
	*testing.T
	system *dev.System
	// planted: what it is → the credential. Those that cloop made are found by
	// their form too.
	planted map[string]string
	// committed is one that somebody committed to the fleet repository: clones
	// have it.
	committed string
	mu        sync.Mutex // guards seen, and planted while processes are watched
	seen      map[string]bool
}

func (c *canary) plant(what, text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planted[what] = text
	return text
}

// in fails the test for each credential that a text holds.
func (c *canary) in(where string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := credential.Find(text); found != nil && !c.seen[where] {
		c.seen[where] = true
		at := bytes.Index(text, found)
		c.Errorf("%s has a %s…: %.200q", where, found[:12], text[max(0, at-100):at])
	}
	for what, planted := range c.planted {
		encoded := base64.StdEncoding.EncodeToString([]byte("bot:" + planted))
		for _, part := range []string{planted[8 : len(planted)-2], encoded[8 : len(encoded)-4]} {
			if bytes.Contains(text, []byte(part)) && !c.seen[where+what] {
				c.seen[where+what] = true
				c.Errorf("%s has %s", where, what)
			}
		}
	}
}

// expectNoCredentials plants credentials in a system that runs, lets it work
// with them, and looks for them wherever somebody may look who is to have none.
func expectNoCredentials(t *testing.T, system *dev.System) {
	c := &canary{T: t, system: system, planted: map[string]string{}, seen: map[string]bool{}}
	stop := c.watchProcesses()
	c.plantFiles()
	pool, runner := c.plantTokens()
	c.misplace()
	c.report(pool, runner)
	c.commit()
	run, err := system.StartRun(t.Context(), "./check")
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := system.Settled(t.Context(), run.ID); err != nil || settled.State != hubv1.RunSucceeded {
		t.Fatalf("the run is %+v, %v", settled, err)
	}
	c.commands(run.ID)
	c.pages()
	c.objects()
	c.files()
	stop()
}

// plantFiles gives the hub and the fleet controller passwords of all kinds, by
// files and Secrets as they are documented, and starts the hub with them.
func (c *canary) plantFiles() {
	dir := c.TempDir()
	file := func(what, text string) string {
		c.plant(what, text)
		name := filepath.Join(dir, strings.ReplaceAll(what, " ", "-"))
		c.must(os.WriteFile(name, []byte(text+"\n"), 0o600))
		return name
	}
	config := filepath.Join(c.system.Dir, "hub.yaml")
	text, err := os.ReadFile(config)
	c.must(err)
	if bytes.Count(text, []byte("\nprojects:\n")) != 1 {
		c.Fatalf("the hub's configuration has another form:\n%s", text)
	}
	more := fmt.Sprintf(`    username: bot
    passwordFile: %s
    webhook: {forge: github, secretFile: %s}
projects:`, file("the Git password", "canary-of-the-git-password-f3b1"), file("the webhook secret", "canary-of-the-webhook-secret-a81c"))
	c.must(os.WriteFile(config, []byte(strings.Replace(string(text), "projects:", more, 1)), 0o600))
	c.must(c.system.Kill("hub"))
	c.must(c.system.Start("hub"))
	expect(c.T, "the hub serves again", func(ctx context.Context) error { _, err := c.system.Hub.Self(ctx); return err })

	password := c.plant("the password of a PoolSync", "canary-of-the-password-of-a-poolsync-91ab")
	key := metav1.ObjectMeta{Namespace: dev.FleetNamespace, Name: "canary"}
	c.must(c.system.Cluster.Create(c.Context(), &corev1.Secret{ObjectMeta: key, StringData: map[string]string{
		"username": "bot", "password": password,
	}}))
	var fleet v1alpha1.PoolSync
	c.must(c.system.Cluster.Get(c.Context(), client.ObjectKey{Namespace: dev.FleetNamespace, Name: dev.SyncName}, &fleet))
	second := &v1alpha1.PoolSync{ObjectMeta: key, Spec: *fleet.Spec.DeepCopy()}
	// There is nothing to build in the project's repository, which the status
	// says once it was fetched with the password.
	second.Spec.Source.Git.URL = c.system.GitURL(dev.ProjectName)
	second.Spec.Source.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: key.Name}
	c.must(c.system.Cluster.Create(c.Context(), second))
	c.settled(second)
}

// settled waits until a controller has said how an object is.
func (c *canary) settled(sync *v1alpha1.PoolSync) {
	expect(c.T, "the PoolSync is looked at", func(ctx context.Context) error {
		err := c.system.Cluster.Get(ctx, client.ObjectKeyFromObject(sync), sync)
		ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
		if err == nil && (ready == nil || ready.Status == metav1.ConditionUnknown) {
			return fmt.Errorf("it is %+v", sync.Status.Conditions)
		}
		return err
	})
}

// plantTokens learns one credential of each kind that cloop makes, and returns
// clients with that of a controller and that of a runner.
func (c *canary) plantTokens() (pool, runner *hubclient.Client) {
	ctx, hub := c.Context(), c.system.Hub
	first, err := os.ReadFile(c.system.AdminTokenFile)
	c.must(err)
	var kept corev1.Secret
	c.must(c.system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: "agents-pool-credential"}, &kept))
	_, err = hub.CreateUser(ctx, hubv1.CreateUserRequest{Name: "eve"})
	c.must(err)
	for _, name := range []string{"eves", "committed"} {
		made, err := hub.CreateToken(ctx, hubv1.CreateTokenRequest{Name: name, User: "eve"})
		c.must(err)
		c.committed = c.plant(name+" token", made.Secret)
	}
	pool = c.client(string(kept.Data["credential"]))
	minted, err := pool.MintRunner(ctx, "canary-one")
	c.must(err)
	enrolled, err := c.client("").Enroll(ctx, hubv1.EnrollRequest{Token: minted.Token, Name: "canary-one", Build: "test", Features: []string{hubv1.FeatureRequirements}})
	c.must(err)
	c.plant("the admin token", strings.TrimSpace(string(first)))
	c.plant("the pool's credential", string(kept.Data["credential"]))
	c.plant("a runner's token", minted.Token)
	c.plant("a runner's session", enrolled.Session)
	return pool, c.client(enrolled.Session)
}

func (c *canary) client(token string) *hubclient.Client {
	ca, err := os.ReadFile(c.system.CAFile)
	c.must(err)
	hub, err := hubclient.New(hubclient.Options{URL: c.system.HubURL, Pin: c.system.HubPin, CABundle: ca, Token: secret.New(token)})
	c.must(err)
	return hub
}

// misplace puts each credential into addresses, names, labels and headers, and
// signs in with it where it does not count. No answer shows it.
func (c *canary) misplace() {
	admin := c.planted["the admin token"]
	for what, text := range c.planted {
		key := map[string]string{"Idempotency-Key": text}
		for _, r := range []struct {
			method, path, body, bearer string
			header                     map[string]string
		}{
			{"GET", "/" + text, "", admin, nil},
			{"GET", "/api/v1/pools?token=" + text, "", admin, nil},
			{"GET", "/api/v1/pools/" + text, "", admin, nil},
			{"POST", "/api/v1/pools", `{"maxRunners":1,"name":"` + text + `"}`, admin, nil},
			{"POST", "/api/v1/pools", `{"maxRunners":1,"name":"leaky","labels":{"team":"` + text + `"}}`, admin, nil},
			{"POST", "/api/v1/groups", `{"name":"` + text + `"}`, admin, nil},
			{"POST", "/api/v1/groups", `{"name":"keyed"}`, admin, key},
			{"POST", "/api/v1/runs", `{"project":"` + dev.ProjectName + `","command":["` + text + `"]}`, admin, nil},
			{"GET", "/api/v1/self", "", text + "x", nil},
			{"POST", "/pool/v1/runners", `{"key":"` + text + `"}`, text, nil},
			{"POST", "/runner/v1/heartbeat", `{`, text, nil},
			{"POST", "/runner/v1/enroll", `{"token":"` + text + `x","name":"` + text + `"}`, "", nil},
			{"POST", "/webhooks/fleet", text, "", nil},
		} {
			if strings.HasPrefix(text, "canary") && (r.body != "" || r.header != nil || r.bearer == admin) {
				continue // nobody can tell it from another text
			}
			c.in("the answer to "+r.method+" with "+what, c.ask(r.method, r.path, r.body, r.bearer, r.header))
		}
	}
}

func (c *canary) ask(method, path, body, bearer string, header map[string]string) []byte {
	request, err := http.NewRequestWithContext(c.Context(), method, c.system.HubURL+path, strings.NewReader(body))
	c.must(err)
	request.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	ca, err := os.ReadFile(c.system.CAFile)
	c.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	c.must(err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	c.must(err)
	return answer
}

// report lets a controller, a runner and a person say credentials in sentences.
func (c *canary) report(pool, runner *hubclient.Client) {
	ctx := c.Context()
	all := c.planted["a runner's token"] + " " + c.planted["the pool's credential"] + " " + c.planted["the admin token"]
	c.must(pool.SetRefusal(ctx, hubv1.Refusal{Message: "cannot start: " + all}))
	c.must(pool.SetRefusal(ctx, hubv1.Refusal{}))
	c.must(runner.Bye(ctx, "bye "+all))
	_, err := c.system.Hub.Cordon(ctx, "agents", "because of "+all)
	c.must(err)
	_, err = c.system.Hub.Uncordon(ctx, "agents")
	c.must(err)
	c.must(c.system.Bind(ctx, "agents"))
}

// commit publishes a credential as a label of both halves of a pool. Neither
// half is taken, and what says so does not repeat it.
func (c *canary) commit() {
	fleet, err := c.system.Fleet(c.Context())
	c.must(err)
	c.must(fleet.Replace("hub/agents.yaml", "team: platform", "team: "+c.committed))
	c.must(fleet.Replace("pools/base/agents.yaml", "  minRunners: 1", "  runnerLabels: {team: "+c.committed+"}\n  minRunners: 1"))
	bad, err := fleet.Commit(c.Context(), "Label the runners")
	c.must(err)
	c.publish(fleet)
	expect(c.T, "the hub refuses it", func(ctx context.Context) error {
		sync, err := c.system.Hub.GetSync(ctx, dev.SyncName)
		if err == nil && (sync.LastAttemptedRevision != bad || !strings.Contains(sync.Message, "holds a credential at spec.labels.team")) {
			return fmt.Errorf("the sync is %s: %s", sync.State, sync.Message)
		}
		return err
	})
	expect(c.T, "the controller refuses it", func(ctx context.Context) error {
		return c.agentsAre(ctx, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	})
	for _, arguments := range [][]string{
		{"fleet", "check", "."}, {"fleet", "check", "-o", "json", "."}, {"fleet", "diff", "--base", "HEAD~1"},
		{"fleet", "drift", "--repo", ".", "--cluster", c.context()}, {"fleet", "status"},
	} {
		c.in("what it prints: cloop "+strings.Join(arguments, " "), c.cloop(arguments...))
	}
	c.objects()
	_, err = fleet.Revert(c.Context())
	c.must(err)
	c.publish(fleet)
	expect(c.T, "the pool serves again", func(ctx context.Context) error {
		return c.agentsAre(ctx, metav1.ConditionTrue, v1alpha1.ReasonServing)
	})
}

func (c *canary) agentsAre(ctx context.Context, status metav1.ConditionStatus, reason v1alpha1.Reason) error {
	var pool v1alpha1.ExecutorPool
	if err := c.system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: "agents"}, &pool); err != nil {
		return err
	}
	return hasCondition(pool.Status.Conditions, v1alpha1.ConditionReady, status, reason)
}

func (c *canary) publish(fleet *dev.Repository) {
	c.must(fleet.Push(c.Context()))
	c.must(c.system.Poke(c.Context()))
}

// cloop runs a command as a person does and returns all that it prints.
func (c *canary) cloop(arguments ...string) []byte {
	executable, err := binary()
	c.must(err)
	command := exec.CommandContext(c.Context(), executable, arguments...)
	command.Dir = filepath.Join(c.system.Dir, "work", "fleet")
	command.Env = append(append(os.Environ(), c.system.Environment()...), "CLOOP_TOKEN=")
	printed, err := command.CombinedOutput()
	if command.ProcessState == nil || len(printed) == 0 || command.ProcessState.ExitCode() == 2 {
		c.Fatalf("cloop %s: %v: %s", strings.Join(arguments, " "), err, printed)
	}
	return printed
}

func (c *canary) context() string {
	printed, err := exec.CommandContext(c.Context(), c.system.Kubectl[0], append(c.system.Kubectl[1:],
		"--kubeconfig", c.system.Kubeconfig, "config", "current-context")...).Output()
	c.must(err)
	return strings.TrimSpace(string(printed))
}

// commands are what people ask of a hub.
func (c *canary) commands(run string) {
	for _, arguments := range [][]string{
		{"hub", "doctor", "-o", "json"}, {"hub", "audit", "-o", "jsonl"}, {"executor", "pool", "show", "agents", "-o", "json"},
		{"run", "show", run, "-o", "json"}, {"run", "list", "-o", "json"}, {"hub", "token", "list", "--all", "-o", "json"}, {"project", "show", dev.ProjectName, "-o", "json"},
	} {
		c.in("what it prints: cloop "+strings.Join(arguments, " "), c.cloop(arguments...))
	}
}

// pages are the metrics of all parts.
func (c *canary) pages() {
	c.in("the hub's metrics", c.ask("GET", "/metrics", "", "", nil))
	for _, part := range []string{"executor-controller", "fleet-controller"} {
		request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.system.MetricsURL(part), nil)
		c.must(err)
		response, err := http.DefaultClient.Do(request)
		c.must(err)
		page, err := io.ReadAll(response.Body)
		c.must(err)
		c.must(response.Body.Close())
		c.in("the metrics of the "+part, page)
	}
}

// objects are Pods and Events whole, and what controllers say of our kinds.
func (c *canary) objects() {
	lists := map[string]client.ObjectList{
		"Pod": &corev1.PodList{}, "Event": &corev1.EventList{}, "ConfigMap": &corev1.ConfigMapList{},
		"ExecutorPool": &v1alpha1.ExecutorPoolList{}, "PoolSync": &v1alpha1.PoolSyncList{},
	}
	for kind, list := range lists {
		c.must(c.system.Cluster.List(c.Context(), list))
		items, err := meta.ExtractList(list)
		c.must(err)
		if len(items) == 0 {
			c.Errorf("there is no %s", kind)
		}
		for _, item := range items {
			var shown any = item
			switch item := item.(type) {
			case *v1alpha1.ExecutorPool:
				shown = item.Status
			case *v1alpha1.PoolSync:
				shown = item.Status
			}
			text, err := json.Marshal(shown)
			c.must(err)
			c.in("an object of kind "+kind, text)
		}
	}
}

// belongs says that a file of the system's directory is made to hold a
// credential: that of the first token, the volumes of Pods that Secrets are
// mounted from, and the cluster's own store and keys.
var belongs = regexp.MustCompile(`^(hub/admin-token|node/.*/volumes/.*|cluster/etcd/.*)$`)

// files are all that the system's processes write: databases with their
// journals, logs, clones, workspaces, states.
func (c *canary) files() {
	looked, databases := 0, 0
	c.must(filepath.WalkDir(c.system.Dir, func(path string, entry os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // it went
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(c.system.Dir, path)
		if err != nil || belongs.MatchString(name) {
			return err
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		looked++
		if strings.HasPrefix(filepath.Base(name), "hub.db") {
			databases++
		}
		if strings.Contains(name, ".git") {
			data = bytes.ReplaceAll(data, []byte(c.committed), nil)
		}
		c.in("the file "+name, data)
		return err
	}))
	if looked < 50 || databases < 1 {
		c.Errorf("looked at %d files and %d of databases", looked, databases)
	}
}

// watchProcesses looks at the command lines of all processes, and at the
// environments of those that the system's parts are and start, until the returned
// function is called.
func (c *canary) watchProcesses() (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			c.processes()
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(done); watching.Wait() }
}

func (c *canary) processes() {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range all {
		// One that has ended has neither, and another user's environment is not
		// to be seen.
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(process, "environ"))
		ours := bytes.Contains(line, []byte(c.system.Dir)) || bytes.Contains(environment, []byte(c.system.Dir))
		if ours && filepath.Base(process) != fmt.Sprint(os.Getpid()) {
			c.in("a command line", line)
			c.in("the environment of "+string(bytes.SplitN(line, []byte{0}, 2)[0]), environment)
		}
	}
}

func (c *canary) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}
