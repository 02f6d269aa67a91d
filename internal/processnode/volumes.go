package processnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// errNever says that no waiting will make a Pod run here. Whatever else is
// wrong with a Pod's Secrets and volumes may be mended while it waits.
var errNever = errors.New("cannot be run on this node")

// objects reads what Pods of a namespace refer to, each object once for a Pod.
type objects struct {
	client    kubernetes.Interface
	namespace string
	secrets   map[string]map[string][]byte
}

func newObjects(client kubernetes.Interface, namespace string) *objects {
	return &objects{client: client, namespace: namespace, secrets: map[string]map[string][]byte{}}
}

// secret returns a Secret's data; an optional one that is missing is empty.
func (o *objects) secret(ctx context.Context, name string, optional bool) (map[string][]byte, error) {
	if data, ok := o.secrets[name]; ok {
		return data, nil
	}
	found, err := o.client.CoreV1().Secrets(o.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && optional:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	o.secrets[name] = found.Data
	return found.Data, nil
}

// claim returns the directory of a claim's volume.
func (o *objects) claim(ctx context.Context, name, claims string) (string, error) {
	claim, err := o.client.CoreV1().PersistentVolumeClaims(o.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read claim %s: %w", name, err)
	}
	if claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound {
		return "", fmt.Errorf("claim %s is not bound yet", name)
	}
	volume, err := o.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read volume %s: %w", claim.Spec.VolumeName, err)
	}
	dir, ours := volumeDir(volume, claims)
	if !ours {
		return "", fmt.Errorf("claim %s is bound to volume %s, which is not one of the StorageClass %s: %w",
			name, volume.Name, StorageClass, errNever)
	}
	return dir, nil
}

// materialise makes the Pod's volumes and returns volume → directory.
func materialise(ctx context.Context, pod *corev1.Pod, dir podDir, claims string, objects *objects) (map[string]string, error) {
	directories := map[string]string{}
	for _, volume := range pod.Spec.Volumes {
		target := dir.volume(volume.Name)
		var err error
		switch {
		case volume.Secret != nil:
			err = writeSecret(ctx, volume.Secret, target, objects)
		case volume.EmptyDir != nil:
			err = os.MkdirAll(target, 0o700)
		default:
			target, err = objects.claim(ctx, volume.PersistentVolumeClaim.ClaimName, claims)
			if err == nil {
				err = os.MkdirAll(target, 0o700)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", volume.Name, err)
		}
		directories[volume.Name] = target
	}
	return directories, nil
}

// writeSecret writes a Secret's keys as files that only the user can read,
// whatever mode the Pod asks for: there is no other user who could need them.
func writeSecret(ctx context.Context, source *corev1.SecretVolumeSource, target string, objects *objects) error {
	optional := source.Optional != nil && *source.Optional
	data, err := objects.secret(ctx, source.SecretName, optional)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	if len(source.Items) == 0 {
		maps.Copy(files, data)
	}
	for _, item := range source.Items {
		value, ok := data[item.Key]
		if !ok && !optional {
			return fmt.Errorf("secret %s has no key %s", source.SecretName, item.Key)
		}
		if ok {
			files[item.Path] = value
		}
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory that was only written below
	for name, value := range files {
		if parent := filepath.Dir(name); parent != "." {
			if err := root.MkdirAll(parent, 0o700); err != nil {
				return err
			}
		}
		if err := root.WriteFile(name, value, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// containerMounts returns what stands for each of the container's mounts.
func containerMounts(container *corev1.Container, volumes map[string]string, variables map[string]string, terminationLog string) (mounts, error) {
	list := []mount{{path: terminationPath(container), host: terminationLog}}
	for _, m := range container.VolumeMounts {
		host := volumes[m.Name]
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, variables)
		}
		if sub != "" {
			var err error
			if host, err = subDirectory(host, sub); err != nil {
				return nil, fmt.Errorf("mount %s: %w", m.MountPath, err)
			}
		}
		list = append(list, mount{path: m.MountPath, host: host})
	}
	return newMounts(list...), nil
}

// subDirectory is the directory or file in a volume, made as a directory where
// nothing is. A link that an earlier run left must not lead out of the volume.
func subDirectory(volume, sub string) (string, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close() //nolint:errcheck // a directory that was only looked into
	sub = strings.TrimPrefix(filepath.Clean(sub), "/")
	_, err = root.Stat(sub)
	if errors.Is(err, fs.ErrNotExist) {
		err = root.MkdirAll(sub, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("subPath %s: %w", sub, err)
	}
	return filepath.Join(volume, sub), nil
}

func terminationPath(container *corev1.Container) string {
	if container.TerminationMessagePath == "" {
		return corev1.TerminationMessagePathDefault
	}
	return container.TerminationMessagePath
}
