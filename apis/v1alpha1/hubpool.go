package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HubPool is the hub's half of a pool. The hub reads these documents from Git.
//
// +kubebuilder:object:root=true
type HubPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HubPoolSpec   `json:"spec"`
	Status HubPoolStatus `json:"status,omitempty"`
}

// HubPoolList is a list of HubPools.
//
// +kubebuilder:object:root=true
type HubPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []HubPool `json:"items"`
}

// What the hub does with a pool whose HubPool document is gone.
const (
	// DeletionOrphan leaves the pool at the hub, no longer managed by Git.
	DeletionOrphan = "Orphan"
	// DeletionRevoke cordons the pool, lets busy runners finish and revokes it.
	DeletionRevoke = "Revoke"
)

// HubPoolSpec is what a committer writes.
type HubPoolSpec struct {
	// MaxRunners is the most runners that the pool may have at once, over all
	// clusters.
	MaxRunners int32 `json:"maxRunners"`
	// Labels count for grants and requirements.
	Labels map[string]string `json:"labels,omitempty"`
	// Audience may start runs on the pool: "user:…", "group:…", "role:…".
	// Empty: any project bound to the pool.
	Audience []string `json:"audience,omitempty"`
	// Owner must be able to read a project that runs here.
	Owner string `json:"owner,omitempty"`
	// Harness that the pool's runners carry, by a name of the user's. This version
	// executes a run's command whatever it says.
	Harness string `json:"harness"`
	// Capabilities that the pool's runners are declared to have.
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	// Cordon stops hand-off. Absent: Git has no opinion.
	Cordon *Cordon `json:"cordon,omitempty"`
	// DeletionPolicy is DeletionOrphan or DeletionRevoke.
	DeletionPolicy string `json:"deletionPolicy"`
	// Hub is where the HubPool controller pushes the pool to. Nil: the hub
	// reads the document from Git itself.
	Hub *HubConnection `json:"hub,omitempty"`
	// Credential is minted by the HubPool controller. Nil: by a person.
	Credential *HubPoolCredential `json:"credential,omitempty"`
}

// HubConnection is how a controller of the cluster reaches a hub.
type HubConnection struct {
	// URL is the hub's base URL, https only, without user information.
	URL string `json:"url"`
	// CAPin pins the hub's key: "sha256:" and the base64 of the SHA-256 of its
	// SubjectPublicKeyInfo. Empty: no pin.
	CAPin string `json:"caPin,omitempty"`
	// CABundle is PEM certificates that alone are trusted for the hub.
	CABundle string `json:"caBundle,omitempty"`
	// TokenSecretRef names the Secret with the management token.
	TokenSecretRef SecretKeyRef `json:"tokenSecretRef"`
}

// HubPoolCredential is a pool credential that the HubPool controller mints.
type HubPoolCredential struct {
	// SecretRef is where the credential is written to.
	SecretRef NamespacedSecretKeyRef `json:"secretRef"`
	// RotateEvery is how old a credential gets. Nil: it is not rotated.
	RotateEvery *metav1.Duration `json:"rotateEvery,omitempty"`
}

// NamespacedSecretKeyRef names one key of a Secret.
type NamespacedSecretKeyRef struct {
	// Namespace of the Secret. Empty: the object's own.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Key defaults to "credential".
	Key string `json:"key"`
}

// Cordon stops the hub from handing runs to a pool's runners.
type Cordon struct {
	// Reason is shown to whoever waits.
	Reason string `json:"reason"`
}

// HubPoolStatus mirrors what the hub says of the pool.
type HubPoolStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// LastHandledReconcileAt is the last reconcile request that was served.
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
	// Hub is nil while nothing is known of the pool.
	Hub *HubPoolAtHub `json:"hub,omitempty"`
	// Credential is nil where the controller minted none.
	Credential *MintedCredential `json:"credential,omitempty"`
	// Drift is where Git and hub disagree, at most 50 entries.
	Drift []DriftEntry `json:"drift,omitempty"`
}

// HubPoolAtHub is a pool as the hub has it.
type HubPoolAtHub struct {
	// ID never changes.
	ID string `json:"id"`
	// State is active, draining or revoked.
	State string `json:"state"`
	// MaxRunners is other than the spec's while an override lasts.
	MaxRunners int32 `json:"maxRunners,omitempty"`
	// Cordon is why the hub hands out no runs; empty while it does.
	Cordon string `json:"cordon,omitempty"`
	// Source is nil where nobody but the hub owns the definition.
	Source *HubPoolSource `json:"source,omitempty"`
}

// HubPoolSource is where the hub's definition comes from.
type HubPoolSource struct {
	// Owner is a sync of the hub's configuration, or
	// "cluster:CLUSTER/NAMESPACE/NAME" for a HubPool.
	Owner      string `json:"owner"`
	Repository string `json:"repository,omitempty"`
	// Path of the file, relative to the repository's root.
	Path     string `json:"path,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Digest of the normalised definition.
	Digest string `json:"digest,omitempty"`
}

// MintedCredential says which pool credential the controller minted, never what it
// is.
type MintedCredential struct {
	// ID of the credential that the Secret has.
	ID        string       `json:"id,omitempty"`
	CreatedAt *metav1.Time `json:"createdAt,omitempty"`
	// Replaces are the ids of earlier ones that the hub still accepts.
	Replaces []string `json:"replaces,omitempty"`
}
