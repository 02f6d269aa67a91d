package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/hub/store"
)

func TestAnEventIsActedOnOnce(t *testing.T) { both(t, testAnEventIsActedOnOnce) }

func testAnEventIsActedOnOnce(t *testing.T) {
	w := newWorld(t, 1)
	told := w.s.Bus.Subscribe(store.PushTopic("fleet"))
	defer told.Close()
	// A member that listens for the first time wakes everybody, at some moment.
	quiet := !onPostgres(t)
	push := func(want bool, sync string, identities ...string) {
		t.Helper()
		first, err := w.s.Pushed(background, sync, identities)
		check(t, err)
		woken := false
		select {
		case <-told.C:
			woken = true
		default:
		}
		wakes := want && sync == "fleet"
		if first != want || wakes && !woken || !wakes && woken && quiet {
			t.Fatalf("%q of %s is new: %t, and the sync is woken: %t", identities, sync, first, woken)
		}
	}
	push(true, "fleet", "delivery 1", "signature 1")
	push(false, "fleet", "delivery 1", "signature 1")
	// One identity is enough, and of what came with it nothing is kept: who replays
	// an event chooses that.
	push(false, "fleet", "delivery 2", "signature 1")
	push(true, "fleet", "delivery 2", "signature 2")
	push(true, "other", "delivery 1", "signature 1")
	// What has no identity is never known.
	push(true, "fleet")
	push(true, "fleet")
	// It is remembered over a start of the hub.
	told.Close()
	check(t, w.s.Close())
	w.s = open(t, w.dir, w.clock)
	told = w.s.Bus.Subscribe(store.PushTopic("fleet"))
	push(false, "fleet", "delivery 1")
	w.clock.Step(time.Hour + time.Second)
	push(true, "fleet", "delivery 1")

	remembered := func() (n int) {
		check(t, looking(t, w.dir).QueryRow("SELECT COUNT(*) FROM webhook_deliveries").Scan(&n))
		return n
	}
	if n := remembered(); n != 1 {
		t.Errorf("after an hour %d identities are remembered", n)
	}
	// A captured event does not make the hub forget it, however often it comes.
	push(true, "fleet", "delivery 3", "signature 3")
	for i := range 1200 {
		push(false, "fleet", fmt.Sprintf("delivery %d", 4+i), "signature 3")
	}
	if n := remembered(); n != 3 {
		t.Errorf("%d identities are remembered", n)
	}
}

func TestOneSyncsEventsAreBounded(t *testing.T) { both(t, testOneSyncsEventsAreBounded) }

// Whoever knows the secret can send any number of events.
func testOneSyncsEventsAreBounded(t *testing.T) {
	w := newWorld(t, 1)
	many := make([]string, 50_000)
	for i := range many {
		many[i] = fmt.Sprintf("('fleet', 'seeded %d', %d)", i, w.clock.Now().UnixNano()+int64(i))
	}
	db := looking(t, w.dir)
	_, err := db.Exec("INSERT INTO webhook_deliveries (sync, identity, received_at) VALUES " + strings.Join(many, ", "))
	check(t, err)
	w.clock.Step(time.Second)
	if first, err := w.s.Pushed(background, "fleet", []string{"the last"}); err != nil || !first {
		t.Fatalf("new: %t, %v", first, err)
	}
	var n int
	check(t, db.QueryRow("SELECT COUNT(*) FROM webhook_deliveries").Scan(&n))
	if n != 45_000 {
		t.Errorf("%d identities are remembered", n)
	}
	if first, err := w.s.Pushed(background, "fleet", []string{"the last"}); err != nil || first {
		t.Fatalf("new again: %t, %v", first, err)
	}
}

// About PostgreSQL: a replay at another member is one.
func TestAReplayAtAnotherMemberIsKnown(t *testing.T) {
	h := twoHubs(t, 1)
	told := h.s.Bus.Subscribe(store.PushTopic("fleet"))
	defer told.Close()
	if first, err := h.second.Pushed(background, "fleet", []string{"delivery 1"}); err != nil || !first {
		t.Fatalf("new: %t, %v", first, err)
	}
	woken(t, "the member that follows the sync", told)
	if first, err := h.s.Pushed(background, "fleet", []string{"delivery 1"}); err != nil || first {
		t.Fatalf("new at the first: %t, %v", first, err)
	}
}
