package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// KeyPrefix begins every mint key of the ExecutorPool with this UID. It tells
// a pool's own runners from those of another ExecutorPool that was given the
// same credential, whose Pods this controller cannot see.
func KeyPrefix(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:6]) + "-"
}

// keys returns the next n unused mint keys. They follow from the pool and the
// hub's revision alone: a process that repeats a decision on the same
// snapshot, after a lost answer or a crash, mints the same keys and so gets the
// same runners. Minting raises the revision, so a key never comes back.
func (o *observed) keys(n int) []string {
	stem := KeyPrefix(o.Pool.UID) + strconv.FormatInt(o.Hub.Revision, 36) + "-"
	keys := make([]string, 0, n)
	for i := int64(0); len(keys) < n; i++ {
		key := stem + strconv.FormatInt(i, 36)
		if !o.taken(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// taken says whether a mint key has been used.
func (o *observed) taken(key string) bool {
	if o.Memory.Burnt[key] {
		return true
	}
	if _, ok := o.Memory.Started[key]; ok {
		return true
	}
	_, runner := o.runners[key]
	_, pod := o.pods[key]
	_, secret := o.secrets[key]
	return runner || pod || secret
}
