package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExecutorPool is the cluster's half of a pool: how runners look and how many
// this cluster may start.
//
// +kubebuilder:object:root=true
type ExecutorPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExecutorPoolSpec   `json:"spec"`
	Status ExecutorPoolStatus `json:"status,omitempty"`
}

// ExecutorPoolList is a list of ExecutorPools.
//
// +kubebuilder:object:root=true
type ExecutorPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExecutorPool `json:"items"`
}

// ExecutorPoolSpec is what a committer writes.
type ExecutorPoolSpec struct {
	// HubURL is the hub's base URL, https only, without user information.
	HubURL string `json:"hubURL"`
	// HubCAPin pins the hub's key: "sha256:" and the base64 of the SHA-256 of
	// its SubjectPublicKeyInfo. Empty: no pin.
	HubCAPin string `json:"hubCAPin,omitempty"`
	// HubCABundle is PEM certificates that alone are trusted for the hub.
	HubCABundle string `json:"hubCABundle,omitempty"`
	// PoolCredentialSecretRef names the Secret with the pool credential.
	PoolCredentialSecretRef SecretKeyRef `json:"poolCredentialSecretRef"`
	// HubPool is the hub pool's name that offline checks join on. Empty: the
	// object's own name.
	HubPool string `json:"hubPool,omitempty"`
	// MinRunners is how many idle runners are kept beyond the demand.
	MinRunners int32 `json:"minRunners"`
	// MaxRunners bounds the runners that this cluster starts.
	MaxRunners int32 `json:"maxRunners"`
	// ScaleDownDelay is how long a runner is idle before it is given back.
	ScaleDownDelay metav1.Duration `json:"scaleDownDelay"`
	// RunnerLabels are for people and metrics; grants use the hub's labels.
	RunnerLabels map[string]string `json:"runnerLabels,omitempty"`
	// Template shapes the runner Pods.
	Template RunnerTemplate `json:"template,omitzero"`
	// Persistence gives runners volumes that outlive them. Nil: none.
	Persistence *Persistence `json:"persistence,omitempty"`
}

// HubPoolName is the hub pool that the object names: its own name unless
// spec.hubPool names another. The pool that is served follows from the
// credential alone.
func (p *ExecutorPool) HubPoolName() string {
	if p.Spec.HubPool != "" {
		return p.Spec.HubPool
	}
	return p.Name
}

// SecretKeyRef names one key of a Secret in the object's own namespace.
type SecretKeyRef struct {
	Name string `json:"name"`
	// Key defaults to "credential" for a pool credential.
	Key string `json:"key"`
}

// RunnerTemplate shapes the runner Pods. What it does not name the controller
// decides.
type RunnerTemplate struct {
	// Image of the runner container. Empty: the controller's default image.
	Image string `json:"image,omitempty"`
	// RuntimeClassName puts runners under gVisor, Kata or another runtime.
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// ServiceAccountName the runners run as.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// AutomountServiceAccountToken gives a run's code that account's authority.
	AutomountServiceAccountToken bool `json:"automountServiceAccountToken,omitempty"`
	// Resources of the runner container.
	Resources ResourceRequirements `json:"resources,omitzero"`
	// NodeSelector of the runner Pods.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations of the runner Pods.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Env are variables taken from Secrets, never values.
	Env []SecretEnvVar `json:"env,omitempty"`
}

// ResourceRequirements are the requests and limits of the runner container.
type ResourceRequirements struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
}

// SecretEnvVar is an environment variable whose value is a Secret's.
type SecretEnvVar struct {
	Name         string       `json:"name"`
	SecretKeyRef SecretKeyRef `json:"secretKeyRef"`
}

// What becomes of a volume that the pool no longer needs.
const (
	// ReclaimDelete deletes it.
	ReclaimDelete = "Delete"
	// ReclaimRetain keeps it, with the record of whose data it holds.
	ReclaimRetain = "Retain"
)

// Directories that a volume keeps.
const (
	// MountWorkspace is the project's checkout.
	MountWorkspace = "workspace"
	// MountGitCache is a bare repository for each upstream.
	MountGitCache = "gitCache"
	// MountToolCache is caches of compilers and package managers.
	MountToolCache = "toolCache"
)

// Persistence gives runners volumes that outlive them, one project a volume.
type Persistence struct {
	// Enabled turns volumes on.
	Enabled bool `json:"enabled"`
	// Size of each volume, more than nothing; there when Enabled.
	Size *resource.Quantity `json:"size,omitempty"`
	// StorageClassName of the volumes. Empty: the cluster's default class.
	StorageClassName string `json:"storageClassName,omitempty"`
	// AccessModes of the claims.
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes"`
	// Mounts are Mount… constants.
	Mounts []string `json:"mounts"`
	// ReclaimPolicy is ReclaimDelete or ReclaimRetain.
	ReclaimPolicy string `json:"reclaimPolicy"`
	// MaxClaims bounds the volumes, at least MaxRunners. Nil: MaxRunners.
	MaxClaims *int32 `json:"maxClaims,omitempty"`
	// MinFree is what a volume must have free before a runner starts on it.
	MinFree resource.Quantity `json:"minFree"`
}

// ExecutorPoolStatus is what the executor controller observed.
type ExecutorPoolStatus struct {
	// ObservedGeneration is the generation that this status speaks of.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, Degraded and Invalid.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Desired is how many runners the pool should have now.
	Desired int32 `json:"desired"`
	// Runners is how many runners this cluster has, in any state.
	Runners int32 `json:"runners"`
	// Busy is how many of them execute a run.
	Busy int32 `json:"busy"`
	// Idle is how many of them wait for a run.
	Idle int32 `json:"idle"`
	// Queued is how many runs wait at the hub for this pool.
	Queued int32 `json:"queued"`
	// Volumes is how many volumes the pool keeps.
	Volumes int32 `json:"volumes"`
	// Hub is the hub pool that the credential belongs to.
	Hub *HubPoolReference `json:"hub,omitempty"`
	// Drift lists where hub and cluster disagree, at most 50 entries.
	Drift []DriftEntry `json:"drift,omitempty"`
}

// HubPoolReference identifies a pool at the hub and what it was synced from.
type HubPoolReference struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// MaxRunners is the hub's maximum.
	MaxRunners int32 `json:"maxRunners"`
	// Revision is the Git revision that the hub synced the pool from, empty
	// for a pool that a person made.
	Revision string `json:"revision,omitempty"`
}

// DriftEntry is one field on which two surfaces disagree.
type DriftEntry struct {
	// Kind, Namespace and Name of the object.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Path is the field as a JSON pointer (RFC 6901), empty for a whole object.
	Path string `json:"path,omitempty"`
	// Cause is one of the Drift… constants.
	Cause string `json:"cause"`
	// Git, Hub and Cluster are the values as JSON, empty where absent and
	// never the value of a secret.
	Git     string `json:"git,omitempty"`
	Hub     string `json:"hub,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Manager is the field manager or hub actor that wrote the differing value.
	Manager string `json:"manager,omitempty"`
	// Since is when the difference was first seen.
	Since metav1.Time `json:"since"`
	// Outcome is one of the Outcome… constants.
	Outcome string `json:"outcome,omitempty"`
	// Message says why that is the outcome.
	Message string `json:"message,omitempty"`
	// Corrected is when the difference was removed; such an entry is kept for
	// ten minutes and then dropped.
	Corrected *metav1.Time `json:"corrected,omitempty"`
}
