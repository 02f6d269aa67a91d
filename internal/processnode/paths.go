package processnode

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount is a path in the container and what stands for it on this machine.
type mount struct{ path, host string }

// mounts are a container's, the longest path first.
type mounts []mount

func newMounts(list ...mount) mounts {
	sorted := make(mounts, 0, len(list))
	for _, m := range list {
		sorted = append(sorted, mount{path: path.Clean(m.path), host: m.host})
	}
	slices.SortStableFunc(sorted, func(a, b mount) int { return len(b.path) - len(a.path) })
	return sorted
}

// rewrite replaces a value that is, or begins with, the path of a mount. The
// deepest mount wins, as it does in a container. A value that merely contains
// a path is left alone: what it means is for its reader to say.
func (m mounts) rewrite(value string) string {
	for _, mount := range m {
		if value == mount.path {
			return mount.host
		}
		prefix := mount.path
		if !strings.HasSuffix(prefix, "/") {
			prefix += "/"
		}
		if strings.HasPrefix(value, prefix) {
			return mount.host + "/" + value[len(prefix):]
		}
	}
	return value
}

// expand replaces $(NAME) by the variable's value, as the kubelet does: an
// unknown name stays as it is written, $$ is a dollar sign.
func expand(value string, variables map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '$' || i+1 == len(value) {
			out.WriteByte(value[i])
			continue
		}
		switch value[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(value[i:], ')')
			if end < 0 {
				out.WriteByte('$')
				continue
			}
			reference := value[i : i+end+1]
			if known, ok := variables[reference[2:end]]; ok {
				reference = known
			}
			out.WriteString(reference)
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// programName is what the runner's image calls the program that
// Options.Executable stands for.
const programName = "cloop"

// refusal says why this node cannot run a runner, or nothing.
func refusal(pod *corev1.Pod) string {
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if len(container.Command) == 0 || path.Base(container.Command[0]) != programName {
			return "container " + container.Name + ": this node has no images; it runs the command " + programName + " only"
		}
		if container.RestartPolicy != nil {
			return "container " + container.Name + ": a container's own restartPolicy is not supported"
		}
		for _, from := range container.EnvFrom {
			if from.SecretRef == nil {
				return "container " + container.Name + ": envFrom takes Secrets only on this node"
			}
		}
		for _, variable := range container.Env {
			if from := variable.ValueFrom; from != nil && from.SecretKeyRef == nil &&
				(from.FieldRef == nil || !slices.Contains(fieldPaths, from.FieldRef.FieldPath)) {
				return "container " + container.Name + ": variable " + variable.Name + ": its source is not supported on this node"
			}
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil && volume.EmptyDir == nil && volume.PersistentVolumeClaim == nil {
			return "volume " + volume.Name + ": this node has Secret, emptyDir and persistentVolumeClaim only " +
				"(a token volume comes from automountServiceAccountToken)"
		}
	}
	return ""
}

// Fields of a Pod that a variable may come from.
const (
	fieldName           = "metadata.name"
	fieldNamespace      = "metadata.namespace"
	fieldUID            = "metadata.uid"
	fieldNode           = "spec.nodeName"
	fieldServiceAccount = "spec.serviceAccountName"
	fieldPodIP          = "status.podIP"
	fieldHostIP         = "status.hostIP"
)

var fieldPaths = []string{fieldName, fieldNamespace, fieldUID, fieldNode, fieldServiceAccount, fieldPodIP, fieldHostIP}

func fieldValue(pod *corev1.Pod, field string) string {
	switch field {
	case fieldName:
		return pod.Name
	case fieldNamespace:
		return pod.Namespace
	case fieldUID:
		return string(pod.UID)
	case fieldNode:
		return pod.Spec.NodeName
	case fieldServiceAccount:
		return pod.Spec.ServiceAccountName
	case fieldPodIP, fieldHostIP:
		return nodeIP
	default:
		return ""
	}
}
