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
	Name       string    `json:"name" doc:"Name in the hub's configuration."`
	Repository string    `json:"repository" doc:"URL of the Git repository."`
	Path       string    `json:"path" doc:"Path in it that is applied."`
	State      SyncState `json:"state" doc:"Where the last try ended."`
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
	// Observed are the documents of the newest revision that are only compared, by
	// pool.
	Observed []Observed `json:"observed,omitempty"`
	// PruneWaits is what the newest revision lacks and the hub keeps, because it is
	// more than one sync takes away without somebody's word.
	PruneWaits *PruneWaits `json:"pruneWaits,omitempty"`
	LastRun    *time.Time  `json:"lastRun,omitempty" doc:"When it was tried last."`
}

// PruneWaits are pools that stay as they are, until an ApprovePruneRequest or a commit
// that has them again.
type PruneWaits struct {
	// Revision that lacks them, the whole commit.
	Revision string `json:"revision"`
	// Pools that it lacks, by name.
	Pools []string `json:"pools"`
	// Of is how many pools the sync has, these included.
	Of int `json:"of"`
	// Since is when a revision lacked more than the limit first, without one in between
	// that did not.
	Since time.Time `json:"since"`
}

// ApprovePruneRequest lets the pools go that wait for it.
type ApprovePruneRequest struct {
	// Revision that lacks them, the whole commit: a yes to one is none to another.
	Revision string `json:"revision" minLength:"1" maxLength:"128"`
}

// Observed is a document that is compared with the pool of its name, and not applied.
// The pool's Drift says in what the two differ.
type Observed struct {
	Pool string `json:"pool" doc:"Name of the pool."`
	// Path of the file in the repository.
	Path string `json:"path"`
	// Definition and CordonReason are what the document says; an empty reason is no
	// cordon.
	Definition   PoolDefinition `json:"definition"`
	CordonReason string         `json:"cordonReason,omitempty"`
	// Since is when the document was observed first, whatever commits came since.
	Since time.Time `json:"since"`
}

// HeldBack is a document that is not applied. The pool stays as it is.
type HeldBack struct {
	Pool string `json:"pool" doc:"Name of the pool."`
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
