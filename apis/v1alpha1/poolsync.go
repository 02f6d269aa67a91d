package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PoolSync applies one overlay of a fleet repository to this cluster and shows
// where the cluster differs from it.
//
// +kubebuilder:object:root=true
type PoolSync struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PoolSyncSpec   `json:"spec"`
	Status PoolSyncStatus `json:"status,omitempty"`
}

// PoolSyncList is a list of PoolSyncs.
//
// +kubebuilder:object:root=true
type PoolSyncList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PoolSync `json:"items"`
}

// PoolSyncSpec is what a platform engineer writes once per cluster.
type PoolSyncSpec struct {
	// Interval between two syncs without a trigger.
	Interval metav1.Duration `json:"interval"`
	// RetryInterval after a failure. Zero: Interval.
	RetryInterval *metav1.Duration `json:"retryInterval,omitempty"`
	// Timeout of one sync.
	Timeout metav1.Duration `json:"timeout"`
	// Source is where the repository is; empty where SourceRef is set.
	Source PoolSyncSource `json:"source,omitzero"`
	// SourceRef is a source of Flux in place of Source.
	SourceRef *SourceReference `json:"sourceRef,omitempty"`
	// Path of the overlay in the repository.
	Path string `json:"path"`
	// Prune deletes what an earlier revision applied and this one lacks.
	Prune bool `json:"prune"`
	// PruneLimit is how much one sync may prune without approval.
	PruneLimit PruneLimit `json:"pruneLimit,omitzero"`
	// Drift is what to do about differences.
	Drift DriftPolicy `json:"drift,omitzero"`
	// ServiceAccountName in the PoolSync's namespace to apply as. Empty: the
	// controller's own.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// DependsOn names PoolSyncs that must be Ready before this one applies.
	DependsOn []PoolSyncReference `json:"dependsOn,omitempty"`
	// Wait makes Ready follow every applied object's.
	Wait bool `json:"wait,omitempty"`
	// Suspend stops syncing.
	Suspend bool `json:"suspend,omitempty"`
	// SuspendReason says why it is suspended.
	SuspendReason string `json:"suspendReason,omitempty"`
	// SuspendUntil is when a suspended PoolSync syncs again. Nil: never.
	SuspendUntil *metav1.Time `json:"suspendUntil,omitempty"`
	// Substitute has values for ${NAME} in what the overlay builds.
	Substitute *Substitution `json:"substitute,omitempty"`
	// Hub is told what this cluster has applied. Nil: nobody is.
	Hub *HubConnection `json:"hub,omitempty"`
}

// SuspendedAt says whether the PoolSync is suspended at a time: suspendUntil ends it.
func (s *PoolSync) SuspendedAt(now time.Time) bool {
	return s.Spec.Suspend && (s.Spec.SuspendUntil == nil || now.Before(s.Spec.SuspendUntil.Time))
}

// FluxSources is the API of Flux's sources.
var FluxSources = schema.GroupVersion{Group: "source.toolkit.fluxcd.io", Version: "v1"}

// Kinds of Flux's sources.
const (
	SourceGitRepository = "GitRepository"
	SourceOCIRepository = "OCIRepository"
	SourceBucket        = "Bucket"
)

// SourceReference names a source of Flux.
type SourceReference struct {
	// Kind is a Source… constant.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Namespace of the source. Empty: the PoolSync's own.
	Namespace string `json:"namespace,omitempty"`
}

// PoolSyncReference names another PoolSync.
type PoolSyncReference struct {
	Name string `json:"name"`
	// Namespace of the PoolSync. Empty: the referring one's.
	Namespace string `json:"namespace,omitempty"`
}

// Substitution has values for variables.
type Substitution struct {
	// Vars: name → value. They win over those of From.
	Vars map[string]string `json:"vars,omitempty"`
	// From are objects whose data are values; a later one wins.
	From []SubstituteReference `json:"from,omitempty"`
}

// SubstituteReference names an object in the PoolSync's namespace.
type SubstituteReference struct {
	// Kind is "ConfigMap".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Optional goes on without the object if it does not exist.
	Optional bool `json:"optional,omitempty"`
}

// ReadsFrom is what a PoolSync reads, for people: the repository's URL, or a source of
// Flux as "KIND NAMESPACE/NAME".
func (s *PoolSync) ReadsFrom() string {
	from := s.Spec.SourceRef
	if from == nil {
		return s.Spec.Source.Git.URL
	}
	return from.Kind + " " + cmp.Or(from.Namespace, s.Namespace) + "/" + from.Name
}

// PoolSyncSource is where the repository is.
type PoolSyncSource struct {
	Git GitSource `json:"git"`
}

// GitSource is a Git repository that the controller fetches itself.
type GitSource struct {
	// URL of the repository: https or ssh.
	URL string `json:"url"`
	// Ref to follow. Empty: branch main.
	Ref GitRef `json:"ref,omitzero"`
	// SecretRef names a Secret: for https with `username` and `password`, or
	// `bearerToken`, and optionally `ca.crt`; for ssh with `identity`,
	// `known_hosts` and, where the key is encrypted, `identity.password` or
	// `password`.
	SecretRef *LocalObjectReference `json:"secretRef,omitempty"`
	// ProxySecretRef names a Secret with the proxy that an https repository is read
	// over: `address` and optionally `username` and `password`. Nil: that of the
	// process's environment, if it has one.
	ProxySecretRef *LocalObjectReference `json:"proxySecretRef,omitempty"`
	// Webhook has the forge tell of pushes. Nil: nobody is listened to.
	Webhook *GitWebhook `json:"webhook,omitempty"`
	// Verify applies only what somebody known has signed. Nil: anything.
	Verify *GitVerification `json:"verify,omitempty"`
}

// GitWebhook is a forge that tells of pushes.
type GitWebhook struct {
	// Forge is "github", "gitlab" or "gitea".
	Forge string `json:"forge"`
	// SecretRef names what the forge signs with.
	SecretRef SecretKeyRef `json:"secretRef"`
}

// What of a Git repository must be signed.
const (
	// VerifyHead is the commit.
	VerifyHead = "HEAD"
	// VerifyTag is the tag that was followed.
	VerifyTag = "Tag"
	// VerifyTagAndHead is both.
	VerifyTagAndHead = "TagAndHEAD"
)

// GitVerification says what must be signed, and by whom.
type GitVerification struct {
	// Mode is a Verify… constant.
	Mode string `json:"mode"`
	// SecretRef names a Secret whose values are public keys: armored PGP keys, SSH
	// keys and lines as of OpenSSH's allowed_signers.
	SecretRef LocalObjectReference `json:"secretRef"`
}

// GitRef is what to follow. The first that is set of commit, semver, tag and
// branch wins.
type GitRef struct {
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	// Semver is a range of versions whose highest tag is followed.
	Semver string `json:"semver,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	Name string `json:"name"`
}

// PruneLimit bounds one sync's deletions. A prune beyond either bound waits
// for AnnotationApprovePrune.
type PruneLimit struct {
	// Count of objects.
	Count int32 `json:"count"`
	// Percent of the inventory, 0 to 100. Zero: no such bound.
	Percent int32 `json:"percent"`
}

// What to do about drift.
const (
	DriftCorrect = "Correct"
	DriftReport  = "Report"
)

// DriftPolicy says what to do about differences between Git and cluster.
type DriftPolicy struct {
	// Mode is DriftCorrect or DriftReport.
	Mode string `json:"mode"`
	// Ignore names fields that Git does not own.
	Ignore []IgnoreRule `json:"ignore,omitempty"`
}

// IgnoreRule names fields that are neither compared nor applied.
type IgnoreRule struct {
	// Paths are JSON pointers (RFC 6901).
	Paths []string `json:"paths"`
	// Target narrows the rule; absent, it is for every object.
	Target *IgnoreTarget `json:"target,omitempty"`
}

// IgnoreTarget selects objects; what is empty matches all.
type IgnoreTarget struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// PoolSyncStatus is what the fleet controller observed.
type PoolSyncStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// LastAttemptedRevision is the newest revision seen.
	LastAttemptedRevision string `json:"lastAttemptedRevision,omitempty"`
	// LastAppliedRevision is the newest revision applied whole.
	LastAppliedRevision string `json:"lastAppliedRevision,omitempty"`
	// LastAppliedPath is the path that it was applied from.
	LastAppliedPath string `json:"lastAppliedPath,omitempty"`
	// VerifiedBy is who signed it, where Verify asks for that.
	VerifiedBy string `json:"verifiedBy,omitempty"`
	// LastHandledReconcileAt is the last reconcile request that was served.
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// LastHandledForceAt is the last forced request that was served.
	LastHandledForceAt string `json:"lastHandledForceAt,omitempty"`
	// Inventory lists what this PoolSync applied.
	Inventory []InventoryEntry `json:"inventory,omitempty"`
	// Drift lists where cluster and Git disagree, at most 50 entries.
	Drift []DriftEntry `json:"drift,omitempty"`
}

// InventoryEntry is one applied object.
type InventoryEntry struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}
