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
}
