package hubv1

import "time"

// PoolState is where a pool is in its life.
type PoolState string

// States of a pool. Draining and Revoked are never left, except that creating
// a revoked pool's name again makes it Active under the same id.
const (
	// PoolActive serves runs.
	PoolActive PoolState = "active"
	// PoolDraining hands out no run, mints no token, lets busy runners finish
	// and then becomes revoked.
	PoolDraining PoolState = "draining"
	// PoolRevoked has no live credential, token or runner.
	PoolRevoked PoolState = "revoked"
)

// PoolDefinition is what an operator or Git says of a pool.
type PoolDefinition struct {
	MaxRunners   int32             `json:"maxRunners" minimum:"0" maximum:"100000" doc:"The most runners that the pool may have at once."`
	Labels       map[string]string `json:"labels,omitempty" doc:"Labels that runners enroll with."`
	Audience     []string          `json:"audience,omitempty" doc:"Who may start runs: user:, group: or role: entries. Empty: anyone."`
	Owner        string            `json:"owner,omitempty" doc:"The owner, as user:, group: or role:. Only projects that the owner may read run on the pool."`
	Harness      string            `json:"harness,omitempty" doc:"The harness that runners carry, by a name of your own: this version executes a run's command whatever it says."`
	Capabilities map[string]bool   `json:"capabilities,omitempty" doc:"Capabilities that runners are declared to have."`
	// DeletionPolicy is what Git sync does when the document goes: Orphan or
	// Revoke. Empty for a pool that no document made.
	DeletionPolicy string `json:"deletionPolicy,omitempty" enum:"Orphan,Revoke"`
}

// Provenance says which commit and file a definition was synced from.
type Provenance struct {
	// Sync is the name of the sync entry in the hub's configuration.
	Sync       string `json:"sync"`
	Repository string `json:"repository"`
	// Path of the file in the repository, relative to its root.
	Path     string `json:"path"`
	Revision string `json:"revision"`
	// Digest of the normalised definition, "sha256:…".
	Digest string `json:"digest"`
}

// Cordon says why a pool hands out no runs.
type Cordon struct {
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Pool is a pool as people see it.
type Pool struct {
	// ID never changes, also when the pool is revoked and created again.
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	State PoolState `json:"state"`
	PoolDefinition
	// Cordon is set while the pool is cordoned.
	Cordon *Cordon `json:"cordon,omitempty"`
	// Source is set while Git owns the definition.
	Source *Provenance `json:"source,omitempty"`
	// Revision counts the changes of this pool; it is its ETag.
	Revision int64        `json:"revision"`
	Runners  RunnerCounts `json:"runners"`
	// Queued is how many runs wait for the pool.
	Queued int32 `json:"queued"`
	// Controllers are the controllers seen, those in contact first.
	Controllers []ControllerContact `json:"controllers,omitempty"`
	CreatedAt   time.Time           `json:"createdAt"`
}

// RunnerCounts counts a pool's runners by state.
type RunnerCounts struct {
	Starting int32 `json:"starting"`
	Idle     int32 `json:"idle"`
	Busy     int32 `json:"busy"`
	Retiring int32 `json:"retiring"`
}

// ControllerContact is the last that the hub heard of a controller.
type ControllerContact struct {
	CredentialID string `json:"credentialId"`
	Build        string `json:"build"`
	Instance     string `json:"instance"`
	// Connected says that the controller has its watch open: it is in contact.
	Connected bool `json:"connected"`
	// LastContact is the last sign of life: the present while Connected, and
	// when the watch closed afterwards.
	LastContact time.Time `json:"lastContact"`
}

// CreatePoolRequest makes a pool and its first credential.
type CreatePoolRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
	PoolDefinition
}

// CreatePoolResponse is the new pool. Credential is shown this once, and is
// empty when the request repeats an Idempotency-Key.
type CreatePoolResponse struct {
	Pool       Pool       `json:"pool"`
	Credential Credential `json:"credential"`
}

// UpdatePoolRequest changes the fields that it sets.
type UpdatePoolRequest struct {
	MaxRunners *int32             `json:"maxRunners,omitempty" minimum:"0" maximum:"100000"`
	Labels     *map[string]string `json:"labels,omitempty"`
	Audience   *[]string          `json:"audience,omitempty"`
	Owner      *string            `json:"owner,omitempty"`
}

// CordonRequest cordons a pool.
type CordonRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024"`
}

// Credential is a controller credential.
type Credential struct {
	ID string `json:"id"`
	// Secret begins with "cloop_pool1_"; shown once, empty ever after.
	Secret    string    `json:"secret,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// PoolList lists pools by name.
type PoolList struct {
	Items []Pool `json:"items"`
}
