package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

const (
	// maxDeliveries and deliveryAge bound what is remembered of one sync's events.
	// A replay after that does no more than have Git asked once.
	maxDeliveries = 1000
	deliveryAge   = time.Hour
)

// Pushed notes that a forge has something new for a sync, and wakes whichever hub
// follows it. Any of the identities tells the event from others: where a hub
// acted on one of them before, nothing happens and first is false.
func (s *Store) Pushed(ctx context.Context, sync string, identities []string) (first bool, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		if first, err = tx.remembers(sync, identities); err != nil || !first {
			return err
		}
		tx.wake(PushTopic(sync))
		return nil
	})
	return first && err == nil, err
}

// remembers keeps the identities and says whether all of them are new.
func (tx *Tx) remembers(sync string, identities []string) (fresh bool, err error) {
	if err := tx.send("DELETE FROM webhook_deliveries WHERE received_at <= ?", nano(tx.now.Add(-deliveryAge))); err != nil {
		return false, err
	}
	added := int64(0)
	for _, identity := range identities {
		sum := sha256.Sum256([]byte(identity))
		n, err := tx.exec("INSERT INTO webhook_deliveries (sync, identity, received_at) VALUES (?, ?, ?) ON CONFLICT (sync, identity) DO NOTHING",
			sync, hex.EncodeToString(sum[:]), nano(tx.now))
		if err != nil {
			return false, err
		}
		added += n
	}
	return added == int64(len(identities)), tx.send(`DELETE FROM webhook_deliveries WHERE sync = ? AND identity NOT IN
		(SELECT d.identity FROM webhook_deliveries d WHERE d.sync = ? ORDER BY d.received_at DESC, d.identity LIMIT ?)`, sync, sync, maxDeliveries)
}
