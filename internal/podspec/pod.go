package podspec

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
)

// What the agent in a runner Pod relies on.
const (
	// ContainerName is the runner's container.
	ContainerName = "runner"

	// UserID is the user and group that everything in a runner Pod runs as.
	UserID = 65532

	homeDir         = "/home/cloop"
	workspaceDir    = "/workspace"
	tmpDir          = "/tmp"
	credentialDir   = "/var/run/secrets/cloop.dev/runner" //nolint:gosec // a path, not a credential
	terminationLog  = "/dev/termination-log"
	tokenKey        = "token"
	caKey           = "ca.crt"
	homeLimit       = "512Mi"
	terminationTime = 30 // seconds; the agent needs them to stop a run and to report
)

// Runner is what there is to know of one runner.
type Runner struct {
	Pool *v1alpha1.ExecutorPool
	// Image of the runner where the template names none.
	Image string
	// ID is the hub's id of the runner.
	ID string
	// Key is its mint key.
	Key string
	// AnchorUID is the UID of the pool's anchor.
	AnchorUID types.UID
}

// Pod returns the runner's Pod. It holds no credential.
func Pod(r Runner) *corev1.Pod {
	pod := podOf(r)
	pod.Annotations[v1alpha1.AnnotationTemplate] = Template(r)
	return pod
}

// Template is the same for all Pods that are alike but for whose they are.
func Template(r Runner) string {
	pool := *r.Pool
	pool.Name, pool.UID = "", ""
	data, err := json.Marshal(podOf(Runner{Pool: &pool, Image: r.Image}).Spec)
	if err != nil {
		panic(err) // our own type always encodes
	}
	return digest(string(data))
}

func podOf(r Runner) *corev1.Pod {
	template := r.Pool.Spec.Template
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            PodName(r.Pool.Name, r.Key),
			Namespace:       r.Pool.Namespace,
			Labels:          podLabels(r),
			Annotations:     podAnnotations(r),
			OwnerReferences: podOwners(r),
		},
		Spec: corev1.PodSpec{
			// A runner that is started again would redeem a spent token.
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            template.ServiceAccountName,
			AutomountServiceAccountToken:  new(template.AutomountServiceAccountToken),
			EnableServiceLinks:            new(false),
			RuntimeClassName:              optional(template.RuntimeClassName),
			NodeSelector:                  maps.Clone(template.NodeSelector),
			Tolerations:                   template.Tolerations,
			TerminationGracePeriodSeconds: new(int64(terminationTime)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				RunAsUser:      new(int64(UserID)),
				RunAsGroup:     new(int64(UserID)),
				FSGroup:        new(int64(UserID)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{container(r)},
			Volumes:    volumes(r),
		},
	}
}

func podLabels(r Runner) map[string]string {
	labels := maps.Clone(r.Pool.Spec.RunnerLabels)
	if labels == nil {
		labels = map[string]string{}
	}
	marks, _ := PodMarks(r)
	maps.Copy(labels, marks)
	return labels
}

// PodMarks are the labels and annotations by which the controller, and whoever
// selects runners, finds the runner's Pod: the annotations have what labels cannot
// hold. What is not known of the runner is left out.
func PodMarks(r Runner) (labels, annotations map[string]string) {
	labels, annotations = SecretMarks(r)
	labels[v1alpha1.LabelAppName] = v1alpha1.RunnerAppName
	return labels, annotations
}

// SecretMarks are PodMarks for the runner's Secret.
func SecretMarks(r Runner) (labels, annotations map[string]string) {
	labels = map[string]string{v1alpha1.LabelExecutorPool: LabelValue(r.Pool.Name)}
	annotations = map[string]string{v1alpha1.AnnotationPoolName: r.Pool.Name}
	if r.ID != "" {
		labels[v1alpha1.LabelRunner], annotations[v1alpha1.AnnotationRunnerID] = LabelValue(r.ID), r.ID
	}
	if r.Key != "" {
		annotations[v1alpha1.AnnotationMintKey] = r.Key
	}
	return labels, annotations
}

func podAnnotations(r Runner) map[string]string {
	_, annotations := PodMarks(r)
	// A node that is emptied to save money would take a run with it.
	annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
	annotations["karpenter.sh/do-not-disrupt"] = "true"
	return annotations
}

// podOwners are the pool and its anchor. With the anchor, deleting the pool,
// in the foreground too, leaves a busy Pod alone; neither blocks the other's
// deletion.
func podOwners(r Runner) []metav1.OwnerReference {
	return []metav1.OwnerReference{PoolOwner(r.Pool), AnchorOwner(r.Pool, r.AnchorUID)}
}

// PoolOwner is the pool as an owner of its Pods.
func PoolOwner(pool *v1alpha1.ExecutorPool) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.ExecutorPoolKind,
		Name: pool.Name, UID: pool.UID, Controller: new(true),
	}
}

// AnchorOwner is the pool's anchor as an owner.
func AnchorOwner(pool *v1alpha1.ExecutorPool, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: AnchorName(pool.Name), UID: uid}
}

func container(r Runner) corev1.Container {
	template := r.Pool.Spec.Template
	return corev1.Container{
		Name:    ContainerName,
		Image:   Image(r.Pool, r.Image),
		Command: []string{"cloop", "executor", "runner"},
		// The home directory is the one place that is writable and not the
		// project's, whatever the image says.
		WorkingDir: workspaceDir,
		Env:        environment(r),
		Resources: corev1.ResourceRequirements{
			Requests: template.Resources.Requests, Limits: template.Resources.Limits,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "home", MountPath: homeDir},
			{Name: "workspace", MountPath: workspaceDir},
			{Name: "tmp", MountPath: tmpDir},
			{Name: "credential", MountPath: credentialDir, ReadOnly: true},
		},
		// The log may hold anything a run prints; only the report is quoted.
		TerminationMessagePath:   terminationLog,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Privileged:               new(false),
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			RunAsUser:                new(int64(UserID)),
			RunAsGroup:               new(int64(UserID)),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}

// Image is the image that the pool's runners run: the template's, or the
// default.
func Image(pool *v1alpha1.ExecutorPool, byDefault string) string {
	if image := pool.Spec.Template.Image; image != "" {
		return image
	}
	return byDefault
}

func environment(r Runner) []corev1.EnvVar {
	spec := r.Pool.Spec
	env := []corev1.EnvVar{
		{Name: "HOME", Value: homeDir},
		{Name: "CLOOP_HUB_URL", Value: spec.HubURL},
		{Name: "CLOOP_RUNNER_NAME", Value: PodName(r.Pool.Name, r.Key)},
		{Name: "CLOOP_RUNNER_TOKEN_FILE", Value: credentialDir + "/" + tokenKey},
		{Name: "CLOOP_RUNNER_HOME", Value: homeDir},
		{Name: "CLOOP_RUNNER_WORKSPACE", Value: workspaceDir},
		{Name: "CLOOP_RUNNER_TMP", Value: tmpDir},
		{Name: "CLOOP_TERMINATION_LOG", Value: terminationLog},
	}
	if spec.HubCAPin != "" {
		env = append(env, corev1.EnvVar{Name: "CLOOP_HUB_CA_PIN", Value: spec.HubCAPin})
	}
	if spec.HubCABundle != "" {
		env = append(env,
			corev1.EnvVar{Name: "CLOOP_HUB_CA_FILE", Value: credentialDir + "/" + caKey},
			corev1.EnvVar{Name: "CLOOP_GIT_CA_FILE", Value: credentialDir + "/" + caKey})
	}
	for _, v := range spec.Template.Env {
		env = append(env, corev1.EnvVar{Name: v.Name, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: v.SecretKeyRef.Name},
				Key:                  v.SecretKeyRef.Key,
			},
		}})
	}
	return env
}

func volumes(r Runner) []corev1.Volume {
	scratch := func(name string, source corev1.EmptyDirVolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &source}}
	}
	return []corev1.Volume{
		// Logins live in the home directory: never on a node's disk.
		scratch("home", corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse(homeLimit)),
		}),
		scratch("workspace", corev1.EmptyDirVolumeSource{}),
		scratch("tmp", corev1.EmptyDirVolumeSource{}),
		{Name: "credential", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: SecretName(r.Pool.Name, r.Key), DefaultMode: new(int32(0o440)),
		}}},
	}
}

// Secret returns the Secret with the runner's token and, where the pool has
// one, the hub's CA bundle. The anchor owns it until its Pod exists and takes
// over.
func Secret(r Runner, token secret.String) *corev1.Secret {
	labels, annotations := SecretMarks(r)
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:            SecretName(r.Pool.Name, r.Key),
			Namespace:       r.Pool.Namespace,
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{AnchorOwner(r.Pool, r.AnchorUID)},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{tokenKey: []byte(token.Reveal())},
	}
	if bundle := r.Pool.Spec.HubCABundle; bundle != "" {
		s.Data[caKey] = []byte(bundle)
	}
	return s
}

// SecretOwner is a Pod as the owner of its Secret.
func SecretOwner(pod string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: uid}
}

// Anchor returns the pool's anchor. It has no owner, so it goes only when the
// controller deletes it.
func Anchor(pool *v1alpha1.ExecutorPool) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:        AnchorName(pool.Name),
		Namespace:   pool.Namespace,
		Labels:      map[string]string{v1alpha1.LabelExecutorPool: LabelValue(pool.Name)},
		Annotations: map[string]string{v1alpha1.AnnotationPoolName: pool.Name},
	}}
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
