package store

import (
	"slices"
	"sync"
)

// PoolTopic wakes for every change that a watcher of the pool may see.
func PoolTopic(id string) string { return "pool/" + id }

// PoolNameTopic wakes when a pool has come to have the name.
func PoolNameTopic(name string) string { return "pool-name/" + name }

// RunnerTopic wakes for what its runner needs to know.
func RunnerTopic(id string) string { return "runner/" + id }

// RunTopic wakes for every change of the run but the growth of its log.
func RunTopic(id string) string { return "run/" + id }

// LogTopic wakes when the run's log has grown or ended.
func LogTopic(run string) string { return "log/" + run }

// PokeTopic wakes a Git sync that is to run now, and PushTopic one whose forge
// has something new.
func PokeTopic(sync string) string { return "poke/" + sync }

// PushTopic is like PokeTopic.
func PushTopic(sync string) string { return "push/" + sync }

// SyncTopic wakes when the Git sync has run.
func SyncTopic(name string) string { return "sync/" + name }

// RevokedTopic wakes when a pool has become revoked, so that a sync whose
// document came back meanwhile goes on.
const RevokedTopic = "revoked"

// Bus tells readers that something has changed, never what: they read it
// themselves. Wake-ups of a slow reader coalesce; nobody waits for it.
type Bus struct {
	mu sync.Mutex
	// readers: topic → its subscriptions.
	readers map[string]map[*Subscription]struct{}
}

// Subscription is one reader's place on the Bus.
type Subscription struct {
	// C has one value while there is something new. Nobody closes it.
	C   chan struct{}
	bus *Bus
	// topics is guarded by the Bus' lock.
	topics []string
}

// Subscribe begins to wake for the topics. Read the state after it, not before,
// and Close it in the end.
func (b *Bus) Subscribe(topics ...string) *Subscription {
	s := &Subscription{C: make(chan struct{}, 1), bus: b, topics: topics}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, topic := range topics {
		b.add(topic, s)
	}
	return s
}

// add is for whoever holds the lock.
func (b *Bus) add(topic string, s *Subscription) {
	if b.readers == nil {
		b.readers = map[string]map[*Subscription]struct{}{}
	}
	if b.readers[topic] == nil {
		b.readers[topic] = map[*Subscription]struct{}{}
	}
	b.readers[topic][s] = struct{}{}
}

// Also begins to wake for more topics, and says whether some of them are new to it: the
// state is to be read again then.
func (s *Subscription) Also(topics ...string) bool {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	more := false
	for _, topic := range topics {
		if slices.Contains(s.topics, topic) {
			continue
		}
		s.topics, more = append(s.topics, topic), true
		s.bus.add(topic, s)
	}
	return more
}

// Close ends the wake-ups.
func (s *Subscription) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	for _, topic := range s.topics {
		delete(s.bus.readers[topic], s)
		if len(s.bus.readers[topic]) == 0 {
			delete(s.bus.readers, topic)
		}
	}
}

func (b *Bus) publish(topics map[string]struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for topic := range topics {
		for s := range b.readers[topic] {
			s.wake()
		}
	}
}

// publishAll wakes everybody.
func (b *Bus) publishAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, subscriptions := range b.readers {
		for s := range subscriptions {
			s.wake()
		}
	}
}

func (s *Subscription) wake() {
	select {
	case s.C <- struct{}{}:
	default: // it is awake already
	}
}
