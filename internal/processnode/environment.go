package processnode

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Directories that programs look for without being told, and the variables
// that tell them.
const (
	homeVariable = "HOME"
	tempVariable = "TMPDIR"
	imageTemp    = "/tmp"
)

// variables resolves the container's environment in its own paths: name →
// value, and which values are a Secret's.
func variables(ctx context.Context, pod *corev1.Pod, container *corev1.Container, objects *objects) (values map[string]string, secret map[string]bool, err error) {
	values, secret = map[string]string{}, map[string]bool{}
	for _, from := range container.EnvFrom {
		optional := from.SecretRef.Optional != nil && *from.SecretRef.Optional
		data, err := objects.secret(ctx, from.SecretRef.Name, optional)
		if err != nil {
			return nil, nil, fmt.Errorf("environment of container %s: %w", container.Name, err)
		}
		for key, value := range data {
			values[from.Prefix+key], secret[from.Prefix+key] = string(value), true
		}
	}
	for _, variable := range container.Env {
		value, isSecret, present, err := resolve(ctx, pod, variable, values, objects)
		if err != nil {
			return nil, nil, fmt.Errorf("variable %s of container %s: %w", variable.Name, container.Name, err)
		}
		if present {
			values[variable.Name], secret[variable.Name] = value, isSecret
		}
	}
	return values, secret, nil
}

func resolve(ctx context.Context, pod *corev1.Pod, variable corev1.EnvVar, earlier map[string]string, objects *objects) (value string, isSecret, present bool, err error) {
	if variable.ValueFrom == nil {
		return expand(variable.Value, earlier), false, true, nil
	}
	if field := variable.ValueFrom.FieldRef; field != nil {
		return fieldValue(pod, field.FieldPath), false, true, nil
	}
	reference := variable.ValueFrom.SecretKeyRef
	optional := reference.Optional != nil && *reference.Optional
	data, err := objects.secret(ctx, reference.Name, optional)
	if err != nil {
		return "", false, false, err
	}
	key, ok := data[reference.Key]
	if !ok && !optional {
		return "", false, false, fmt.Errorf("secret %s has no key %s", reference.Name, reference.Key)
	}
	return string(key), true, ok, nil
}

// invocation is a process as it is to be started.
type invocation struct {
	argv []string
	env  []string
	dir  string
}

// invoke translates a container into a process: its command, arguments,
// environment and working directory with this machine's paths. A Secret's
// value is passed on as it is, even if it looks like a path.
func invoke(container *corev1.Container, executable string, values map[string]string, secret map[string]bool, m mounts, fallback string) invocation {
	call := invocation{argv: []string{executable}, dir: fallback}
	for _, argument := range slices.Concat(container.Command[1:], container.Args) {
		call.argv = append(call.argv, m.rewrite(expand(argument, values)))
	}
	// The image's PATH would not lead to this machine's programs, nor would
	// one that the Pod sets for it.
	environment := map[string]string{homeVariable: fallback, tempVariable: m.rewrite(imageTemp)}
	for name, value := range values {
		if !secret[name] {
			value = m.rewrite(value)
		}
		environment[name] = value
	}
	environment["PATH"] = os.Getenv("PATH")
	for name, value := range environment {
		call.env = append(call.env, name+"="+value)
	}
	slices.Sort(call.env)
	if container.WorkingDir != "" {
		if dir := m.rewrite(path.Clean(container.WorkingDir)); dir != path.Clean(container.WorkingDir) {
			call.dir = dir
		}
	}
	return call
}
