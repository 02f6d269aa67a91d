package controllers

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

// countingHub answers every watch with the pool that its credential names, and counts
// the connections that it is asked over.
type countingHub struct {
	server *httptest.Server

	mu          sync.Mutex // guards what follows
	connections int
	watched     []string // credentials, in the order in which their watches began
}

func newCountingHub(t *testing.T) *countingHub {
	h := &countingHub{}
	h.server = httptest.NewUnstartedServer(http.HandlerFunc(h.watch))
	h.server.EnableHTTP2 = true
	h.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if state == http.StateNew {
			h.connections++
		}
	}
	h.server.StartTLS()
	t.Cleanup(h.server.Close)
	return h
}

func (h *countingHub) watch(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.watched = append(h.watched, bearer(r))
	h.mu.Unlock()
	data, _ := json.Marshal(hubv1.PoolSnapshot{Pool: hubv1.Pool{Name: bearer(r)}})
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "id: 1\nevent: snapshot\ndata: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func (h *countingHub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connections
}

func (h *countingHub) watches() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.watched)
}

// target is the hub's for a pool whose credential is its name.
func (h *countingHub) target(name string) hubTarget {
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	return hubTarget{url: h.server.URL, bundle: string(bundle), credential: secret.New(name)}
}

func poolName(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint("pool-", i)}
}

// connectedPools has a number of pools of the hub connected.
func connectedPools(t *testing.T, h *countingHub, number int) *hubConnections {
	t.Helper()
	hubs := newHubConnections(hubclient.Hello{Build: "v1"}, nil, clock.RealClock{})
	t.Cleanup(func() { hubs.cancel(); hubs.wg.Wait() })
	for i := range number {
		name := poolName(i)
		conn, err := hubs.ensure(name, h.target(name.Name), hubTarget{})
		if err != nil {
			t.Fatal(err)
		}
		up(t, hubs, conn, name.Name)
	}
	return hubs
}

// up waits until a connection has the snapshot that the credential is for.
func up(t *testing.T, hubs *hubConnections, conn *hubConnection, credential string) {
	t.Helper()
	for {
		link, snapshot := conn.state()
		if link.State == pool.LinkUp {
			if snapshot.Pool.Name != credential {
				t.Fatalf("the pool of %s is told of %s", credential, snapshot.Pool.Name)
			}
			return
		}
		select {
		case <-hubs.changed:
		case <-time.After(30 * time.Second):
			t.Fatalf("no snapshot: %+v", link)
		}
	}
}

func TestPoolsOfOneHubShareAConnection(t *testing.T) {
	h := newCountingHub(t)
	const pools = 20
	hubs := connectedPools(t, h, pools)
	if connections := h.count(); connections != 1 {
		t.Errorf("%d pools of one hub have %d connections", pools, connections)
	}
	// A new credential is shown on the same connection, and ends no other watch.
	conn, err := hubs.ensure(poolName(3), h.target("rotated"), hubTarget{})
	if err != nil {
		t.Fatal(err)
	}
	up(t, hubs, conn, "rotated")
	if connections := h.count(); connections != 1 || len(h.watches()) != pools+1 {
		t.Errorf("after a rotation there were %d connections and the watches %v", connections, h.watches())
	}
	for i := range pools {
		hubs.close(poolName(i))
	}
	hubs.wg.Wait()
	if len(hubs.hubs) > 0 {
		t.Errorf("without a pool it keeps %v", hubs.hubs)
	}
}

// What tells hubs apart keeps their connections apart: no pool trusts a key because
// another one does.
func TestPoolsOfOtherTrustShareNothing(t *testing.T) {
	h := newCountingHub(t)
	hubs := connectedPools(t, h, 1)
	pinned := h.target("pinned")
	pinned.pin = hubclient.Pin(h.server.Certificate())
	conn, err := hubs.ensure(poolName(7), pinned, hubTarget{})
	if err != nil {
		t.Fatal(err)
	}
	up(t, hubs, conn, "pinned")
	if connections := h.count(); connections != 2 {
		t.Errorf("two kinds of trust make %d connections", connections)
	}
}
