package hubv1

import "time"

// SyncState is how a sync stands.
type SyncState string

// States of a sync.
const (
	SyncPending SyncState = "pending"
	SyncReady   SyncState = "ready"
	SyncFailed  SyncState = "failed"
)

// Sync is one fleet repository that the hub follows.
type Sync struct {
	Name       string    `json:"name"`
	Repository string    `json:"repository"`
	Path       string    `json:"path"`
	State      SyncState `json:"state"`
	// Message says what failed and what to do, or what was applied.
	Message string `json:"message,omitempty"`
	// LastAttemptedRevision is the newest revision seen.
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`
	// LastAppliedRevision is the newest revision applied whole.
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`
	// Pools are the names that the revision defines that was applied last, whole
	// or in part.
	Pools []string `json:"pools,omitempty"`
	// HeldBack are the documents of the newest revision that are not applied
	// although others of it are, by pool.
	HeldBack []HeldBack `json:"heldBack,omitempty"`
	LastRun  *time.Time `json:"lastRun,omitempty"`
}

// HeldBack is a document that is not applied. The pool stays as it is.
type HeldBack struct {
	Pool string `json:"pool"`
	// Path of the file in the repository.
	Path string `json:"path"`
	// Problems say what to correct, each in one line.
	Problems []string `json:"problems"`
	// Since is when the document was held back first, whatever commits came since.
	Since time.Time `json:"since"`
}

// SyncList lists syncs by name.
type SyncList struct {
	Items []Sync `json:"items"`
}
