package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

const (
	// idleWatches are what one hub is to hold.
	idleWatches = 5000
	// watchedPools is how many pools they are of; each has a controller.
	watchedPools = 100
	// idleWindow is how long the processor time is taken over: two keep-alives of
	// each watch.
	idleWindow = 30 * time.Second
)

// BenchmarkIdleWatches opens 5,000 watches of a hub in a process of its own and
// measures what they cost while nothing happens: with a connection each, as
// runners have, and with all of them on fifty connections, as controllers with
// many pools have.
func BenchmarkIdleWatches(b *testing.B) {
	for _, connections := range []int{50, idleWatches} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			for b.Loop() {
				h := serveHub(b)
				before := resident(b, h.pid)
				end := h.watchAll(b, connections)
				began, used := time.Now(), processorTime(b, h.pid)
				pause(b, idleWindow)
				used = processorTime(b, h.pid) - used
				b.ReportMetric(100*used.Seconds()/time.Since(began).Seconds(), "%core")
				b.ReportMetric(resident(b, h.pid), "MiB")
				b.ReportMetric(before, "MiB-before")
				b.ReportMetric(0, "ns/op")
				end()
				h.stop()
			}
		})
	}
}

// serveHub starts a hub whose runners need no heartbeat for a day.
func serveHub(b *testing.B) servedHub {
	b.Helper()
	dir := b.TempDir()
	return startHub(b, filepath.Join(dir, "token"), "--data-dir", filepath.Join(dir, "hub"),
		"--lease", "24h", "--heartbeat-interval", "1h", "--idle-retire", "24h", "--token-ttl", "1h")
}

// watchAll opens the watches, and returns when each has its first snapshot.
func (h servedHub) watchAll(b *testing.B, connections int) (end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	clients := make([]*hubclient.Client, connections)
	for i := range clients {
		clients[i] = h.client(b, "")
	}
	var open, opened sync.WaitGroup
	opened.Add(idleWatches)
	var failed sync.Map
	first := func(err error) {
		if err != nil && ctx.Err() == nil {
			failed.Store(err.Error(), true)
		}
		opened.Done()
	}
	const perPool = idleWatches / watchedPools
	var making sync.WaitGroup
	slots := make(chan struct{}, 64)
	for pool := range watchedPools {
		slots <- struct{}{}
		making.Go(func() {
			defer func() { <-slots }()
			made, err := h.admin.CreatePool(ctx, hubv1.CreatePoolRequest{Name: "pool-" + strconv.Itoa(pool), PoolDefinition: hubv1.PoolDefinition{MaxRunners: perPool}})
			for i := range perPool {
				on := clients[(pool*perPool+i)%connections]
				controller := on.WithToken(secret.New(made.Credential.Secret))
				if err != nil || i == 0 {
					open.Go(func() {
						hold(ctx, err, controller.PoolWatch(ctx, hubclient.Hello{Instance: "c-0", Build: "bench"}), first)
					})
					continue
				}
				session, err := enroll(ctx, controller, fmt.Sprintf("runner-%05d", i))
				open.Go(func() { hold(ctx, err, on.WithToken(secret.New(session)).RunnerWatch(ctx), first) })
			}
		})
	}
	making.Wait()
	opened.Wait()
	failed.Range(func(text, _ any) bool { b.Fatal(text); return false })
	return func() {
		cancel()
		open.Wait()
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	}
}

func enroll(ctx context.Context, controller *hubclient.Client, key string) (string, error) {
	minted, err := controller.MintRunner(ctx, key)
	if err != nil {
		return "", err
	}
	enrolled, err := controller.WithToken(secret.String{}).Enroll(ctx, hubv1.EnrollRequest{Token: minted.Token, Name: key, Build: "bench"})
	return enrolled.Session, err
}

// hold keeps a watch open and says when its first snapshot has come.
func hold[T any](ctx context.Context, err error, snapshots func(func(T, error) bool), first func(error)) {
	if err != nil {
		first(err)
		return
	}
	once := false
	for _, err := range snapshots {
		if !once {
			once = true
			first(err)
		}
		if err != nil {
			return
		}
	}
	if !once {
		first(errors.Join(errors.New("the watch ended at once"), ctx.Err()))
	}
}

// processorTime is what a process has used.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The name stands in parentheses and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ is 100 on Linux
}
