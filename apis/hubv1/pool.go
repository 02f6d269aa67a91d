package hubv1

import (
	"fmt"
	"strings"
	"time"
)

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

// DefaultHarness is that of a pool of which nobody said another, as in a HubPool.
const DefaultHarness = "command"

// PoolDefinition is what an operator or Git says of a pool.
type PoolDefinition struct {
	MaxRunners   int32             `json:"maxRunners" minimum:"0" maximum:"100000" doc:"The most runners that the pool may have at once."`
	Labels       map[string]string `json:"labels,omitempty" maxProperties:"64" doc:"Labels that runners enroll with."`
	Audience     []string          `json:"audience,omitempty" maxItems:"256" maxLength:"320" doc:"Who may start runs: user:, group: or role: entries. Empty: anyone."`
	Owner        string            `json:"owner,omitempty" maxLength:"320" doc:"The owner, as user:, group: or role:. Only projects that the owner may read run on the pool."`
	Harness      string            `json:"harness,omitempty" maxLength:"63" doc:"The harness that runners carry, by a name of your own: this version executes a run's command whatever it says."`
	Capabilities map[string]bool   `json:"capabilities,omitempty" maxProperties:"64" doc:"Capabilities that runners are declared to have."`
	// DeletionPolicy is what Git sync does when the document goes: Orphan or
	// Revoke. Empty for a pool that no document made.
	DeletionPolicy string `json:"deletionPolicy,omitempty" enum:"Orphan,Revoke"`
}

// Provenance says who keeps a definition as Git has it, and which commit and file
// it came from.
type Provenance struct {
	// Sync is the name of the sync entry in the hub's configuration, or the
	// ClusterOwner of a HubPool in a cluster.
	Sync string `json:"sync" maxLength:"512" doc:"Name of the hub's Git sync, or cluster:CLUSTER/NAMESPACE/NAME of a HubPool in a cluster."`
	// Repository, Path and Revision are empty for a HubPool that came from no
	// repository. Path is relative to the repository's root.
	Repository string `json:"repository" maxLength:"1024"`
	Path       string `json:"path" maxLength:"1024"`
	Revision   string `json:"revision" maxLength:"256"`
	// Digest of the normalised definition, "sha256:…", as the hub computes it.
	Digest string `json:"digest,omitempty" maxLength:"128"`
}

// clusterOwner begins a ClusterOwner; no sync of the configuration is named so.
const clusterOwner = "cluster:"

// ClusterOwner is the Provenance.Sync of a HubPool in a cluster, which has a name
// of its own there: letters, digits, dots and dashes, at most 128.
func ClusterOwner(cluster, namespace, name string) string {
	return clusterOwner + cluster + "/" + namespace + "/" + name
}

// Cluster is where the HubPool is that a definition came from; ok is false where
// the hub itself reads it from Git.
func (p Provenance) Cluster() (cluster, namespace, name string, ok bool) {
	text, ok := strings.CutPrefix(p.Sync, clusterOwner)
	parts := strings.SplitN(text, "/", 3)
	if !ok || len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0], parts[1], parts[2], true
}

// String says in words where a definition is kept, for people who want to change
// it there.
func (p Provenance) String() string {
	git := ""
	if p.Path != "" {
		git = strings.TrimSpace(p.Repository+" "+p.Path) + " at " + p.Revision
	}
	cluster, namespace, name, ok := p.Cluster()
	switch {
	case !ok:
		return "Git: " + git
	case git == "":
		return fmt.Sprintf("HubPool %s/%s of cluster %s", namespace, name, cluster)
	}
	return fmt.Sprintf("HubPool %s/%s of cluster %s, from Git: %s", namespace, name, cluster, git)
}

// Bounds of an Override.
const (
	// DefaultOverride is how long one is where nobody says.
	DefaultOverride = 8 * time.Hour
	// MaxOverride is how long one may be at most.
	MaxOverride = 7 * 24 * time.Hour
)

// Override is an act by which somebody sets aside what Git says of a pool, for a
// time. It ends when that is up or Git says something else; what Git says holds
// again then.
type Override struct {
	// Reason that was given.
	Reason string `json:"reason"`
	// By is who gave it, as the audit trail names them.
	By string `json:"by"`
	// At is when it was given, and Since when the first was of several that
	// followed one another: since then the hub differs from Git.
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until" doc:"When it ends by itself."`
	// Git is what Git said last.
	Git PoolDefinition `json:"git"`
	// GitCordon is Git's cordon, where that is set aside too.
	GitCordon *Cordon `json:"gitCordon,omitempty"`
}

// Causes of a Drift.
const (
	// CauseBreakGlass: somebody set aside what Git says, with an Override.
	CauseBreakGlass = "BreakGlass"
	// CauseCommitNotApplied: the pool's document is held back.
	CauseCommitNotApplied = "CommitNotApplied"
)

// Outcomes of a Drift.
const (
	// OutcomeWaiting: it ends by itself, at Until.
	OutcomeWaiting = "Waiting"
	// OutcomeRefused: what Git says is not applied.
	OutcomeRefused = "Refused"
	// OutcomeObserved: the document says that it is only to be compared.
	OutcomeObserved = "Observed"
)

// Drift is one field in which the hub has a pool otherwise than Git.
type Drift struct {
	// Path is a JSON pointer into the HubPool document, such as /spec/maxRunners;
	// empty for a document that is held back, of which nothing is compared.
	Path string `json:"path"`
	// Git and Hub are the values as JSON; empty where absent.
	Git string `json:"git,omitempty"`
	Hub string `json:"hub,omitempty"`
	// Cause is BreakGlass or CommitNotApplied.
	Cause string `json:"cause"`
	// By is who made the difference, and Since when it began.
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	// Until is when it ends by itself; nil where it does not.
	Until *time.Time `json:"until,omitempty"`
	// Outcome is Waiting, Refused or Observed.
	Outcome string `json:"outcome"`
	// Message says why there is a difference.
	Message string `json:"message"`
}

// InstallHints are what whoever made a pool said of its half in a cluster. The
// hub keeps them for the commands that are printed for the pool, in which its
// name stands for what is left out; nothing else follows from them.
type InstallHints struct {
	Namespace  string `json:"namespace,omitempty" maxLength:"63" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" doc:"Namespace of the controller."`
	Release    string `json:"release,omitempty" maxLength:"53" pattern:"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$" doc:"Helm release of the controller."`
	MinRunners int32  `json:"minRunners,omitempty" minimum:"0" maximum:"100000" doc:"Runners that the cluster keeps beyond the demand."`
	// Persistence is set where the pool keeps a volume per project.
	Persistence *PersistenceHints `json:"persistence,omitempty"`
}

// PersistenceHints are the volumes that a pool keeps, as in an ExecutorPool's
// spec.persistence.
type PersistenceHints struct {
	Size             string `json:"size" minLength:"1" maxLength:"64" doc:"Request of each claim, such as 50Gi."`
	StorageClassName string `json:"storageClassName,omitempty" maxLength:"253" doc:"Storage class; empty: the cluster's default."`
	ReclaimPolicy    string `json:"reclaimPolicy,omitempty" enum:"Delete,Retain" doc:"What becomes of volumes that are not needed any more."`
}

// Cordon says why a pool hands out no runs.
type Cordon struct {
	Reason string    `json:"reason" doc:"Why, as whoever waits is told."`
	By     string    `json:"by" doc:"Who cordoned the pool."`
	At     time.Time `json:"at" doc:"When."`
}

// Pool is a pool as people see it.
type Pool struct {
	// ID never changes, also when the pool is revoked and created again.
	ID    string    `json:"id"`
	Name  string    `json:"name" doc:"Name, unique on the hub."`
	State PoolState `json:"state" doc:"active, draining or revoked."`
	PoolDefinition
	// End is set while the pool drains, and once it is revoked.
	End *PoolEnd `json:"end,omitempty"`
	// Cordon is set while the pool is cordoned.
	Cordon *Cordon `json:"cordon,omitempty"`
	// Source is set while Git owns the definition.
	Source *Provenance `json:"source,omitempty"`
	// Override is set while somebody has set aside what Git says.
	Override *Override `json:"override,omitempty"`
	// Drift lists where the hub differs from what Git says of the pool.
	Drift []Drift `json:"drift,omitempty"`
	// Install is set where whoever made the pool said how it is installed.
	Install *InstallHints `json:"install,omitempty"`
	// Revision counts the changes of this pool; it is its ETag.
	Revision int64        `json:"revision"`
	Runners  RunnerCounts `json:"runners" doc:"Runners by state."`
	// Queued is how many runs wait for the pool.
	Queued int32 `json:"queued"`
	// Controllers are the controllers seen, those in contact first.
	Controllers []ControllerContact `json:"controllers,omitempty"`
	CreatedAt   time.Time           `json:"createdAt" doc:"When it was made."`
	// Findings are what the doctor finds wrong with the pool, where pools are
	// listed or shown. A watch does not carry them: they come of time alone.
	Findings []Finding `json:"findings,omitempty"`
}

// PoolEnd is why a pool drains or is revoked.
type PoolEnd struct {
	By     string `json:"by" doc:"Who ended it."`
	Reason string `json:"reason" doc:"Why."`
	// Drained says that it was not ended at once, by hand, with the runs in it.
	Drained bool `json:"drained" doc:"Its document says that it is to go, so that busy runners finish before it is revoked."`
}

// RunnerCounts counts a pool's runners by state.
type RunnerCounts struct {
	Starting int32 `json:"starting" doc:"Minted and not enrolled yet."`
	Idle     int32 `json:"idle" doc:"Waiting for a run."`
	Busy     int32 `json:"busy" doc:"Holding a run."`
	Retiring int32 `json:"retiring" doc:"Told to exit."`
}

// ControllerContact is the last that the hub heard of a controller.
type ControllerContact struct {
	CredentialID string   `json:"credentialId" doc:"Id of the credential that it signs in with."`
	Build        string   `json:"build" doc:"Its build."`
	Instance     string   `json:"instance" doc:"Name of the process, such as its Pod's."`
	Features     []string `json:"features,omitempty" doc:"What it can do, as it said when it connected."`
	// ExecutorPool is the object that the controller serves, "namespace/name";
	// empty for a controller that does not say.
	ExecutorPool string `json:"executorPool,omitempty"`
	// Rival names the ExecutorPool that serves with the same credential already,
	// so that this one does not.
	Rival string `json:"rival,omitempty"`
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
	Install *InstallHints `json:"install,omitempty"`
}

// CreatePoolResponse is the new pool. Credential is shown this once, and is
// empty when the request repeats an Idempotency-Key.
type CreatePoolResponse struct {
	Pool       Pool       `json:"pool" doc:"The new pool."`
	Credential Credential `json:"credential" doc:"Its first credential, shown this once."`
}

// UpdatePoolRequest changes the fields that it sets.
type UpdatePoolRequest struct {
	MaxRunners   *int32             `json:"maxRunners,omitempty" minimum:"0" maximum:"100000"`
	Labels       *map[string]string `json:"labels,omitempty" maxProperties:"64"`
	Audience     *[]string          `json:"audience,omitempty" maxItems:"256" maxLength:"320"`
	Owner        *string            `json:"owner,omitempty" maxLength:"320"`
	Harness      *string            `json:"harness,omitempty" maxLength:"63"`
	Capabilities *map[string]bool   `json:"capabilities,omitempty" maxProperties:"64"`
}

// DefinePoolRequest is what a HubPool of a cluster says of a pool.
type DefinePoolRequest struct {
	Definition PoolDefinition `json:"definition"`
	// Cordon cordons the pool; nil: the document has no opinion.
	Cordon *CordonRequest `json:"cordon,omitempty"`
	// Provenance has the HubPool's ClusterOwner as its Sync.
	Provenance Provenance `json:"provenance"`
	// MovedFrom is the pool's name until now, as the HubPool of that name in the same
	// namespace defined it: the pool is renamed and keeps its id. Empty, or of what the
	// hub does not have so, it means nothing.
	MovedFrom string `json:"movedFrom,omitempty" maxLength:"63" doc:"The pool's name until now, where another HubPool of the same namespace had it under that one."`
}

// CordonRequest cordons a pool.
type CordonRequest struct {
	Reason string `json:"reason" minLength:"1" maxLength:"1024"`
}

// Credential is a controller credential.
type Credential struct {
	ID string `json:"id" doc:"Id, which is no secret."`
	// Secret begins with "cloop_pool1_"; shown once, empty ever after.
	Secret    string    `json:"secret,omitempty"`
	CreatedAt time.Time `json:"createdAt" doc:"When it was minted."`
	// UsedAt is when a controller used it last, to the minute; absent: never.
	UsedAt *time.Time `json:"usedAt,omitempty"`
	// RevokedAt is absent while the credential is live.
	RevokedAt *time.Time `json:"revokedAt,omitempty"`
	// Runners are those that were started with it.
	Runners RunnerCounts `json:"runners"`
	// Controllers are those seen with it, those in contact first.
	Controllers []ControllerContact `json:"controllers,omitempty"`
}

// CredentialList lists a pool's credentials, the newest first.
type CredentialList struct {
	Items []Credential `json:"items"`
}

// FinishRotationRequest revokes credentials of a pool that another has replaced:
// where nothing else is said, every one but the newest.
type FinishRotationRequest struct {
	// To and From leave the credentials of other clusters alone.
	To    string   `json:"to,omitempty" maxLength:"128" doc:"The credential that replaces them; the newest where left out."`
	From  []string `json:"from,omitempty" maxItems:"64" maxLength:"128" doc:"Those that are replaced; every other where left out."`
	Force bool     `json:"force,omitempty" doc:"Do so although an older one is in use, and stop the runs of its runners."`
}

// FinishRotationResponse is the credential that stays, and those that were
// revoked now.
type FinishRotationResponse struct {
	Kept    Credential   `json:"kept" doc:"The newest credential, which stays."`
	Revoked []Credential `json:"revoked" doc:"The older ones, which are refused now."`
}

// HubInfo says which hub answers.
type HubInfo struct {
	// Build is the hub's release, or "edge" and what it was built from.
	Build string `json:"build"`
	// Features are what the hub does for controllers that ask for it.
	Features []string `json:"features"`
	// Chart is the path of the Helm chart that the hub serves; empty: none.
	Chart string `json:"chart,omitempty"`
}

// PoolList lists pools by name.
type PoolList struct {
	Items []Pool `json:"items"`
}
