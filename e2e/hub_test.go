package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// servedHub is `cloop hub serve`, alone.
type servedHub struct {
	pid      int
	url, pin string
	admin    *hubclient.Client
	// stop ends it as one should, kill as a crash would; both return what it
	// logged.
	stop, kill func() string
}

// startHub starts a hub on a free port and waits until it serves. The file is
// where the first hub of a database writes the admin token.
func startHub(t testing.TB, tokenFile string, arguments ...string) servedHub {
	t.Helper()
	name, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(name, append([]string{"hub", "serve", "--addr", "127.0.0.1:0", "--admin-token-file", tokenFile}, arguments...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	lines, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	h := servedHub{pid: command.Process.Pid}
	var log strings.Builder
	read := make(chan struct{})
	end := func(signal os.Signal) func() string {
		return sync.OnceValue(func() string {
			_ = command.Process.Signal(signal)
			<-read // before Wait closes the pipe
			_ = command.Wait()
			return log.String()
		})
	}
	h.stop, h.kill = end(os.Interrupt), end(os.Kill)
	t.Cleanup(func() { h.kill() })
	serves := make(chan struct{})
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			log.WriteString(scanner.Text() + "\n")
			var line struct{ Msg, Address, Pin string }
			if h.url == "" && json.Unmarshal(scanner.Bytes(), &line) == nil && line.Msg == "hub serves" {
				h.url, h.pin = "https://"+line.Address, line.Pin
				close(serves)
			}
		}
	}()
	select {
	case <-serves:
	case <-read:
		t.Fatalf("the hub ends: %s", &log)
	}
	text, err := os.ReadFile(tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	h.admin = h.client(t, strings.TrimSpace(string(text)))
	return h
}

func (h servedHub) client(t testing.TB, token string) *hubclient.Client {
	t.Helper()
	c, err := hubclient.New(hubclient.Options{URL: h.url, Pin: h.pin, Token: secret.New(token), Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
