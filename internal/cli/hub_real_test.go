package cli_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// realHub serves a hub in this process; the environment points at it.
func realHub(t *testing.T, build string) *testclock.FakeClock {
	t.Helper()
	dir := t.TempDir()
	clock := testclock.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan [2]string, 1), make(chan error, 1)
	file := filepath.Join(dir, "admin-token")
	go func() {
		done <- hub.Run(ctx, hub.Options{
			Addr: "127.0.0.1:0", DataDir: filepath.Join(dir, "hub"), AdminTokenFile: file, Build: build, Clock: clock,
			Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
			Ready: func(addr, pin string) { ready <- [2]string{addr, pin} },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	})
	select {
	case at := <-ready:
		t.Setenv("CLOOP_HUB", "https://"+at[0])
		t.Setenv("CLOOP_HUB_PIN", at[1])
	case err := <-done:
		done <- nil
		t.Fatalf("the hub does not start: %v", err)
	}
	t.Setenv("CLOOP_HUB_CA_FILE", "")
	t.Setenv("CLOOP_TOKEN", "")
	t.Setenv("CLOOP_TOKEN_FILE", file)
	return clock
}

// ok runs a command that must succeed.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	got := cloop(t, args...)
	if got.code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, got.code, got.stderr)
	}
	return got.stdout
}

// A pool's life from the command line, at a hub that keeps it.
func TestAPoolFromTheCommandLine(t *testing.T) {
	clock := realHub(t, "0.0.8")
	pool := func(args ...string) []string { return append([]string{"executor", "pool"}, args...) }
	file := filepath.Join(t.TempDir(), "credential")
	text := ok(t, pool("create", "gpu", "--max-runners", "2", "--namespace", "ml", "--persistence", "--size", "50Gi", "--audience", "group:ml",
		"--capability", "kernelIsolated", "--credential-file", file)...)
	if last := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]; !strings.HasPrefix(last, "Bind projects to pool:pool_") {
		t.Errorf("the last line is %q", last)
	}
	controller := controllerOf(t, file)
	if _, err := controller.PoolSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := cloop(t, pool("create", "other", "--max-runners", "1", "--persistence", "--size", "large")...); got.code != 1 ||
		!strings.Contains(got.stderr, "body.install.persistence.size") {
		t.Errorf("a size that is none: exit code %d, %s", got.code, got.stderr)
	}
	ok(t, pool("update", "gpu", "--max-runners", "3", "--harness", "claude")...)
	shown := ok(t, pool("show", "gpu")...)
	for _, want := range []string{"Max runners:    3\n", "Harness:        claude\n", "Capabilities:   kernelIsolated\n", "namespace ml, release gpu, a volume of 50Gi per project"} {
		if !strings.Contains(shown, want) {
			t.Errorf("it shows no %q:\n%s", want, shown)
		}
	}

	clock.Step(time.Hour)
	next := filepath.Join(t.TempDir(), "credential")
	rotated := ok(t, pool("rotate-credential", "gpu", "--credential-file", next)...)
	if !strings.Contains(rotated, "kubectl -n ml create secret generic gpu-pool-credential --from-file=credential="+next) {
		t.Errorf("it prints\n%s", rotated)
	}
	got := cloop(t, pool("rotate-credential", "gpu", "--finish")...)
	if got.code != 1 || !strings.Contains(got.stderr, "the newest was never used") || !strings.Contains(got.stderr, "--force") {
		t.Errorf("finished too early: exit code %d, %s", got.code, got.stderr)
	}
	if _, err := controllerOf(t, next).PoolSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done := ok(t, pool("rotate-credential", "gpu", "--finish")...); !strings.HasPrefix(done, "Revoked 1 older credential of pool gpu; ") {
		t.Errorf("it prints\n%s", done)
	}
	if _, err := controller.PoolSnapshot(t.Context()); err == nil {
		t.Error("the older credential works")
	}
	var list hubv1.CredentialList
	if err := json.Unmarshal([]byte(ok(t, pool("credentials", "gpu", "-o", "json")...)), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("listed as %+v %v", list, err)
	}
	ok(t, pool("revoke-credential", "gpu", list.Items[0].ID)...)
	if got := cloop(t, pool("rotate-credential", "gpu", "--finish")...); got.code != 1 || !strings.Contains(got.stderr, "no live credential") {
		t.Errorf("with none left: exit code %d, %s", got.code, got.stderr)
	}
	ok(t, pool("revoke", "gpu")...)
}

func controllerOf(t *testing.T, file string) *hubclient.Client {
	t.Helper()
	credential, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := hubclient.New(hubclient.Options{URL: os.Getenv("CLOOP_HUB"), Pin: os.Getenv("CLOOP_HUB_PIN"), Token: secret.New(string(credential))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}
