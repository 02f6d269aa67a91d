package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

const (
	// deliveryAge is how long one sync's events are remembered. A replay after
	// that does no more than have Git asked once.
	deliveryAge = time.Hour
	// maxDeliveries bounds how many are, whoever knows the secret: 14 a second.
	maxDeliveries = 50_000
)

// Pushed notes that a forge has something new for a sync, and wakes whichever hub
// follows it. Any of the identities tells the event from others: where a hub
// acted on one of them before, nothing happens and first is false. Nothing is kept
// of such an event either: whoever has captured one can send it as often as he likes,
// each time with another identity that is not signed.
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

// remembers says whether all of the identities are new, and keeps them if so.
func (tx *Tx) remembers(sync string, identities []string) (fresh bool, err error) {
	if _, err := tx.exec("DELETE FROM webhook_deliveries WHERE received_at <= ?", nano(tx.now.Add(-deliveryAge))); err != nil {
		return false, err
	}
	sums := make([]string, 0, len(identities))
	for _, identity := range identities {
		sum := sha256.Sum256([]byte(identity))
		sums = append(sums, hex.EncodeToString(sum[:]))
		_, known, err := first(tx.ctx, tx, scanInt, "SELECT 1 FROM webhook_deliveries WHERE sync = ? AND identity = ?", sync, sums[len(sums)-1])
		if err != nil || known {
			return false, err
		}
	}
	for _, sum := range sums {
		if err := tx.send("INSERT INTO webhook_deliveries (sync, identity, received_at) VALUES (?, ?, ?) ON CONFLICT (sync, identity) DO NOTHING",
			sync, sum, nano(tx.now)); err != nil {
			return false, err
		}
	}
	return true, tx.forgetDeliveries(sync)
}

// forgetDeliveries keeps the newest of a sync's events where there are too many.
func (tx *Tx) forgetDeliveries(sync string) error {
	n, _, err := first(tx.ctx, tx, scanInt, "SELECT COUNT(*) FROM webhook_deliveries WHERE sync = ?", sync)
	if err != nil || n <= maxDeliveries {
		return err
	}
	// A tenth at a time: not with every event from then on.
	return tx.send(`DELETE FROM webhook_deliveries WHERE sync = ? AND identity IN
		(SELECT d.identity FROM webhook_deliveries d WHERE d.sync = ? ORDER BY d.received_at, d.identity LIMIT ?)`, sync, sync, n-maxDeliveries*9/10)
}
