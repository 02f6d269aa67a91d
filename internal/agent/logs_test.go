package agent

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
)

// appendOnly is the hub's log endpoint with faults.
type appendOnly struct {
	session
	mu    sync.Mutex
	log   []byte
	rnd   *rand.Rand
	fault float64
	sizes []int
}

func (a *appendOnly) AppendLog(_ context.Context, _ string, offset int64, data []byte) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rnd.Float64() < a.fault {
		return 0, errNetwork
	}
	if have := int64(len(a.log)); offset != have {
		return 0, &hubv1.Problem{Status: 409, Code: hubv1.CodeLogOffset, Offset: &have}
	}
	a.sizes = append(a.sizes, len(data))
	if a.rnd.Float64() < a.fault/2 {
		// Only a part arrived before the connection broke.
		a.log = append(a.log, data[:a.rnd.IntN(len(data)+1)]...)
		return 0, errNetwork
	}
	a.log = append(a.log, data...)
	if a.rnd.Float64() < a.fault {
		return 0, errNetwork // the answer is lost
	}
	return int64(len(a.log)), nil
}

// jumpClock is a real clock whose timers fire at once, so that faults cost no
// time.
type jumpClock struct{ clock.RealClock }

func (jumpClock) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

func testRunner(s session) *runner {
	o := Options{Clock: jumpClock{}}.withDefaults()
	return &runner{
		options: o, clock: o.Clock, log: o.Log, session: s, heartbeat: time.Second,
		lease: &lease{clock: o.Clock, life: time.Hour, last: momentOf(o.Clock)},
	}
}

// Whatever is written in whatever pieces, over whatever faults and through
// however small a spool: the hub gets it once, whole and in order.
func TestTheLogArrivesOnceAndWhole(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 1))
			remote := &appendOnly{rnd: rand.New(rand.NewPCG(seed, 2)), fault: 0.5 * rnd.Float64()}
			size := 1 + rnd.Int64N(1<<uint(rnd.IntN(18)))
			spool, err := newSpool(t.TempDir(), size)
			if err != nil {
				t.Fatal(err)
			}
			defer spool.close()
			want := make([]byte, rnd.Int64N(min(200_000, 300*size)))
			for i := range want {
				want[i] = byte(rnd.Uint32())
			}
			if seed%5 == 0 {
				_ = spool.file.Close() // a disk that takes nothing
			}
			sent := make(chan error, 1)
			go func() { sent <- newSender(testRunner(remote), "run1", spool).send(t.Context()) }()
			if seed%5 == 0 {
				want = want[:min(len(want), 2000)]
			}
			for rest := want; len(rest) > 0; {
				n := 1 + rnd.IntN(len(rest))
				_, _ = spool.Write(rest[:n])
				rest = rest[n:]
			}
			spool.end()
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(remote.log, want) {
				t.Errorf("the hub has %d bytes of %d, or others", len(remote.log), len(want))
			}
		})
	}
}

func TestAVeryLongLineIsCutIntoAppendsTheHubTakes(t *testing.T) {
	remote := &appendOnly{rnd: rand.New(rand.NewPCG(1, 1))}
	spool, err := newSpool(t.TempDir(), defaultSpoolBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.close()
	line := bytes.Repeat([]byte("0123456789"), 1<<20)
	copyOutput(bytes.NewReader(line), nil, spool)
	if err := newSender(testRunner(remote), "run1", spool).send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(remote.log, line) {
		t.Errorf("the hub has %d bytes of %d, or others", len(remote.log), len(line))
	}
	for _, size := range remote.sizes {
		if size > 1<<20 {
			t.Errorf("an append of %d bytes", size)
		}
	}
}

func TestALogThatTheHubRefusesDoesNotHoldTheCommandUp(t *testing.T) {
	spool, err := newSpool(t.TempDir(), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.close()
	go func() {
		_, _ = spool.Write(make([]byte, 1000))
		spool.end()
	}()
	remote := refusing{}
	if err := newSender(testRunner(remote), "run1", spool).send(t.Context()); err == nil {
		t.Error("a refused log counts as delivered")
	}
	_, _ = spool.Write(make([]byte, 1000)) // would wait for ever
}

type refusing struct{ session }

func (refusing) AppendLog(context.Context, string, int64, []byte) (int64, error) {
	return 0, refused(409, hubv1.CodeRunNotHeld)
}

func TestAHubThatLostMoreThanIsKeptEndsTheLog(t *testing.T) {
	spool, err := newSpool(t.TempDir(), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer spool.close()
	_, _ = spool.Write(make([]byte, 10))
	spool.ack(10)
	_, _ = spool.Write(make([]byte, 5))
	s := newSender(testRunner(&appendOnly{rnd: rand.New(rand.NewPCG(1, 1))}), "run1", spool)
	s.next = 15 - 1
	if err := s.send(t.Context()); err == nil || !strings.Contains(err.Error(), "not kept") {
		t.Errorf("got %v", err)
	}
}

// Secrets are masked however the stream is cut, and nothing else is touched.
func TestMasking(t *testing.T) {
	keys := [][]byte{[]byte("abcabd"), []byte("abc"), []byte("zz")}
	for text, want := range map[string]string{
		"":                  "",
		"nothing here":      "nothing here",
		"abcabd":            "[redacted]",
		"abcab":             "[redacted]ab",
		"xabcabcabdx":       "x[redacted][redacted]x",
		"ends with a and z": "ends with a and z",
		"zzz":               "[redacted]z",
		"a\xffb\x00abc":     "a\xffb\x00[redacted]",
	} {
		if got := maskText(keys, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		spool, err := newSpool(t.TempDir(), 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		// A stream in single bytes may cut a secret that begins like another.
		copyOutput(iotest.OneByteReader(strings.NewReader(text)), [][]byte{[]byte("abcabd"), []byte("zz")}, spool)
		buffer := make([]byte, 1<<10)
		n, err := spool.read(0, buffer)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(buffer[:n]), maskText([][]byte{[]byte("abcabd"), []byte("zz")}, text); got != want {
			t.Errorf("%q byte by byte: got %q, want %q", text, got, want)
		}
		spool.close()
	}
}

func TestTheFirstBytesGoAtOnceAndTheRestInBatches(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	l.run("echo first; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done")
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(h.logText(), "\n"); lines != 2001 || h.appends > 200 {
		t.Errorf("%d lines in %d appends", lines, h.appends)
	}
}

func BenchmarkMask(b *testing.B) {
	m := masker{secrets: [][]byte{[]byte(testToken), []byte(testSession)}}
	data := bytes.Repeat([]byte("a line of a log as builds write it, cloop_ included\n"), 1300)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		m.pass(data)
	}
}
