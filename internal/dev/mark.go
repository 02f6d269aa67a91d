package dev

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/schemas"
)

// systemLabel tells which system put an object into a cluster: others may stand
// there, and what was installed by hand for work.
const systemLabel = "cloop.dev/dev-system"

// markOf is the value of systemLabel for the system in dir. It comes from the
// certificate of the system's authority, which outlives a lost state file;
// empty without one: then nothing was ever installed.
func markOf(dir string) (string, error) {
	certificate, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	block, _ := pem.Decode(certificate)
	if block == nil {
		return "", nil
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:10]), nil
}

// ours says whether this system installed an object.
func (s *System) ours(object client.Object) bool {
	return s.mark != "" && object.GetLabels()[systemLabel] == s.mark
}

// claim refuses a cluster with objects that install would replace and a later
// Down remove, although this system did not make them.
func (s *System) claim(ctx context.Context) error {
	objects, err := s.installed()
	if err != nil {
		return err
	}
	for _, object := range objects {
		switch err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(object), object); {
		case absent(err):
			continue
		case err != nil:
			return err
		case s.ours(object):
			continue
		}
		gvk, err := s.Cluster.GroupVersionKindFor(object)
		if err != nil {
			return err
		}
		return fmt.Errorf("the cluster of %s has a %s %s already, which this system did not make: cloop may be at work there; "+
			"use another cluster, or remove what is there (`cloop dev down --dir DIR`, if it is the system of a directory DIR)",
			s.Kubeconfig, gvk.Kind, object.GetName())
	}
	return nil
}

// installed are all objects that install makes, the definitions first.
func (s *System) installed() ([]client.Object, error) {
	definitions, err := schemas.CRDs()
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, definition := range definitions {
		objects = append(objects, definition)
	}
	others, err := s.wanted()
	return append(objects, others...), err
}

// ownNamespaces are those of our two namespaces that this system made.
func (s *System) ownNamespaces(ctx context.Context) ([]string, error) {
	var own []string
	for _, name := range []string{PoolNamespace, FleetNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		switch {
		case absent(err):
		case err != nil:
			return nil, err
		case s.ours(namespace):
			own = append(own, name)
		}
	}
	return own, nil
}
