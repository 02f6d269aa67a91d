package hub_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/internal/hub"
)

func TestAHandshakeThatStandsStillKeepsNobodyWaiting(t *testing.T) {
	r := serve(t, nil)
	silent, err := net.Dial("tcp", r.addr)
	check(t, err)
	defer func() { _ = silent.Close() }()
	must(t)(r.admin.ListPools(r.ctx()))
	r.stop() // which does not wait for it either
	check(t, silent.SetReadDeadline(time.Now().Add(patience)))
	if data, err := io.ReadAll(silent); err != nil || len(data) > 0 {
		t.Errorf("the hub has stopped, and its connection says %q, %v", data, err)
	}
}

func TestWhoSpeaksNoTLSIsToldSo(t *testing.T) {
	r := serve(t, nil)
	plain, err := net.Dial("tcp", r.addr)
	check(t, err)
	defer func() { _ = plain.Close() }()
	check(t, plain.SetDeadline(time.Now().Add(patience)))
	must(t)(io.WriteString(plain, "GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n"))
	if answer, err := io.ReadAll(plain); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 400") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}

func TestBothVersionsOfHTTPAreSpoken(t *testing.T) {
	r := serve(t, nil)
	for version, two := range map[int]bool{1: false, 2: true} {
		transport := pinned(t, r.pin)
		transport.ForceAttemptHTTP2 = two
		answer, err := (&http.Client{Transport: transport}).Get("https://" + r.addr + "/healthz")
		check(t, err)
		check(t, answer.Body.Close())
		if answer.ProtoMajor != version || answer.StatusCode != http.StatusOK {
			t.Errorf("version %d is answered %s %s", version, answer.Proto, answer.Status)
		}
		transport.CloseIdleConnections()
	}
}

func TestTheSystemEndsConnectionsToMachinesThatAreGone(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	check(t, err)
	defer func() { _ = client.Close() }()
	conn, err := listener.Accept()
	check(t, err)
	defer func() { _ = conn.Close() }()
	hub.EndInSilence(conn)
	raw, err := conn.(*net.TCPConn).SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		after, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		check(t, err)
		asks, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		check(t, err)
		if time.Duration(after)*time.Millisecond != hub.Silence || asks == 0 {
			t.Errorf("a connection ends after %d ms without a word, and is asked: %d", after, asks)
		}
	}))
}
