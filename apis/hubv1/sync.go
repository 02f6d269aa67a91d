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
	// Pools are the names that the last applied revision defines.
	Pools   []string   `json:"pools,omitempty"`
	LastRun *time.Time `json:"lastRun,omitempty"`
}

// SyncList lists syncs by name.
type SyncList struct {
	Items []Sync `json:"items"`
}
