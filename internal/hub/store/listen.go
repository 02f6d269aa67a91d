package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// quiet is how long nothing is heard before the connection is tried.
	quiet = 10 * time.Second
	// listenAgain is how long to wait after the connection broke.
	listenAgain = time.Second
)

// listen wakes this hub's readers for what other members change, until ctx
// ends.
func (s *Store) listen(ctx context.Context) {
	p, is := s.engine.(*postgres)
	if !is {
		return
	}
	for ctx.Err() == nil {
		if err := s.hear(ctx, p); err != nil && ctx.Err() == nil {
			select {
			case <-time.After(listenAgain):
			case <-ctx.Done():
			}
		}
	}
}

// hear listens until the connection breaks.
func (s *Store) hear(ctx context.Context, p *postgres) error {
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(bounded)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	// Anything may have happened while nobody listened.
	s.heardAll()
	for {
		payload, err := next(ctx, conn)
		if err != nil {
			return err
		}
		if payload != "" {
			s.heard(payload)
		}
	}
}

// next waits for a notification; there is none where nothing was heard for a
// while and the connection works all the same.
func next(ctx context.Context, conn *pgx.Conn) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(bounded)
	switch {
	case err == nil:
		return n.Payload, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return "", err
	}
	bounded, cancel = context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return "", conn.Ping(bounded)
}

// heard passes on what a member has told. What this one told itself the Bus
// knows already.
func (s *Store) heard(payload string) {
	member, text, _ := strings.Cut(payload, "\n")
	if member == s.members.id {
		return
	}
	topics, attached := map[string]struct{}{}, s.attachedPools()
	for topic := range strings.SplitSeq(text, "\n") {
		topics[topic] = struct{}{}
		if topic == membersTopic {
			s.members.hurry()
		}
		if pool, is := strings.CutPrefix(topic, PoolTopic("")); is {
			if _, listens := attached[pool]; listens {
				s.considerLater(pool)
			}
		}
	}
	s.Bus.publish(topics)
}

func (s *Store) heardAll() {
	s.Bus.publishAll()
	s.considerAttached()
}

// attachedPools are those of which a runner has a watch open here.
func (s *Store) attachedPools() map[string]struct{} {
	s.attachedMu.Lock()
	defer s.attachedMu.Unlock()
	pools := map[string]struct{}{}
	for _, a := range s.attached {
		pools[a.pool] = struct{}{}
	}
	return pools
}

// considerAttached looks at every pool of which a runner has a watch open here.
func (s *Store) considerAttached() {
	for pool := range s.attachedPools() {
		s.considerLater(pool)
	}
}

func (s *Store) considerLater(pool string) {
	m := &s.members
	m.mu.Lock()
	m.pending[pool] = struct{}{}
	m.mu.Unlock()
	select {
	case m.settle <- struct{}{}:
	default:
	}
}

// settleHeard hands runs that were queued at another member to runners whose
// watch is here: that member cannot, since it does not know that they listen.
func (s *Store) settleHeard(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.members.settle:
		}
		s.members.mu.Lock()
		pools := s.members.pending
		s.members.pending = map[string]struct{}{}
		s.members.mu.Unlock()
		for pool := range pools {
			// What fails now is tried again with the next sign of life.
			_ = s.settleListening(ctx, pool)
		}
	}
}

// settleListening hands out the pool's runs where one waits and a runner that
// listens here is idle. Looking first costs no turn.
func (s *Store) settleListening(ctx context.Context, pool string) error {
	_, waiting, err := first(ctx, s.reader, scanText, "SELECT id FROM runs WHERE pool_id = ? AND settled_at IS NULL AND state = 'queued' LIMIT 1", pool)
	if err != nil || !waiting {
		return err
	}
	idle, err := collect(ctx, s.reader, scanText, "SELECT id FROM runners WHERE pool_id = ? AND state <> 'retired' AND state = 'idle'", pool)
	if err != nil {
		return err
	}
	for _, runner := range idle {
		if s.isAttached(runner) {
			return s.update(ctx, func(tx *Tx) error { tx.consider(pool); return nil })
		}
	}
	return nil
}
