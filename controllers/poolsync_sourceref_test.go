package controllers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// fluxStage serves artifacts as Flux's source-controller does.
type fluxStage struct {
	*syncStage
	url     string
	archive atomic.Pointer[[]byte]
	fetched atomic.Int32
}

func newFluxStage(t *testing.T) *fluxStage {
	f := &fluxStage{syncStage: newSyncStage(t, nil)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.fetched.Add(1)
		_, _ = w.Write(*f.archive.Load())
	}))
	t.Cleanup(server.Close)
	f.url = server.URL + "/fleet.tar.gz"
	return f
}

// define gives the cluster a kind of Flux's, with as much of it as matters.
func (f *fluxStage) define(kind, plural string) {
	f.t.Helper()
	name := plural + "." + v1alpha1.FluxSources.Group
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": v1alpha1.FluxSources.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind), "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": v1alpha1.FluxSources.Version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if err := f.client.Create(f.ctx, definition); err != nil && !apierrors.IsAlreadyExists(err) {
		f.t.Fatal(err)
	}
	f.until("the cluster has "+kind, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.FluxSources.WithKind(kind + "List"))
		return f.client.List(f.ctx, list, client.InNamespace(f.ns)) == nil
	})
}

// offer has the source offer files at a revision; digest "" is theirs.
func (f *fluxStage) offer(kind, revision string, files map[string]string, digest string) {
	f.t.Helper()
	archive := fleettest.Archive(f.t, files)
	f.archive.Store(&archive)
	if sum := sha256.Sum256(archive); digest == "" {
		digest = "sha256:" + hex.EncodeToString(sum[:])
	}
	source := f.source(kind)
	err := unstructured.SetNestedMap(source.Object, map[string]any{"url": f.url, "revision": revision, "digest": digest}, "status", "artifact")
	if err == nil {
		err = f.client.Status().Update(f.ctx, source)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// source is the source that the PoolSync names, made where it is not there.
func (f *fluxStage) source(kind string) *unstructured.Unstructured {
	f.t.Helper()
	source := fluxSource(kind)
	err := f.client.Get(f.ctx, client.ObjectKey{Namespace: f.ns, Name: "fleet"}, source)
	if apierrors.IsNotFound(err) {
		source = fluxSource(kind)
		source.SetNamespace(f.ns)
		source.SetName("fleet")
		f.create(source)
		return source
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return source
}

func (f *fluxStage) follow(kind string) {
	f.t.Helper()
	f.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Source, spec.SourceRef = v1alpha1.PoolSyncSource{}, &v1alpha1.SourceReference{Kind: kind, Name: "fleet"}
	})
}

func TestASyncFollowsASourceOfFlux(t *testing.T) {
	t.Parallel()
	f := newFluxStage(t)
	f.define(v1alpha1.SourceOCIRepository, "ocirepositories")
	f.follow(v1alpha1.SourceOCIRepository)
	f.says(f.ready(v1alpha1.ReasonArtifactFailed), "there is no OCIRepository "+f.ns+"/fleet", "nothing was changed")
	f.source(v1alpha1.SourceOCIRepository)
	f.until("it waits for an artifact", func() bool {
		return strings.Contains(condition(f.get(), v1alpha1.ConditionReady).Message, "has no artifact yet")
	})
	f.offer(v1alpha1.SourceOCIRepository, "latest@sha256:aa", overlay("gpu"), "")
	sync := f.ready(v1alpha1.ReasonReconciliationSucceeded)
	if revision := f.pool("gpu").Annotations[v1alpha1.AnnotationRevision]; sync.Status.LastAppliedRevision != "latest@sha256:aa" || revision != "latest@sha256:aa" {
		t.Errorf("applied is %s, and the pool says %s", sync.Status.LastAppliedRevision, revision)
	}
	// Nobody asks it to look again: the source's change does.
	more := overlay("gpu", "batch")
	more["pools/gpu.yaml"] = poolFile("gpu", 7)
	f.offer(v1alpha1.SourceOCIRepository, "latest@sha256:bb", more, "")
	f.until("it follows", func() bool { return f.hasPool("batch") && f.pool("gpu").Spec.MaxRunners == 7 })
	f.ready(v1alpha1.ReasonReconciliationSucceeded)

	// What is known is not fetched again, by whatever name.
	before := f.fetched.Load()
	f.offer(v1alpha1.SourceOCIRepository, "latest@sha256:cc", more, "")
	f.until("it is there", func() bool { return f.get().Status.LastAppliedRevision == "latest@sha256:cc" })
	f.sync()
	if now := f.fetched.Load(); now != before {
		t.Errorf("fetched %d times", now-before)
	}
	// An artifact that is not what the source says changes nothing.
	f.offer(v1alpha1.SourceOCIRepository, "latest@sha256:dd", overlay("gpu"), "sha256:"+strings.Repeat("0", 64))
	f.says(f.ready(v1alpha1.ReasonArtifactFailed), "its digest ends with")
	f.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	f.until("an edit is taken back meanwhile", func() bool { return f.pool("gpu").Spec.MaxRunners == 7 })
	// The same revision may be packed anew.
	more["pools/gpu.yaml"] = poolFile("gpu", 8)
	f.offer(v1alpha1.SourceOCIRepository, "latest@sha256:cc", more, "")
	f.until("it follows", func() bool { return f.pool("gpu").Spec.MaxRunners == 8 })
	f.ready(v1alpha1.ReasonReconciliationSucceeded)

	// A process that was started anew looks for what happened meanwhile.
	f.stop()
	f.kubectlEdit("gpu", `{"spec":{"maxRunners":2}}`)
	f.startController()
	f.until("the edit is taken back", func() bool { return f.pool("gpu").Spec.MaxRunners == 8 })
	f.drift("and shows", isEdit("gpu"))
}

func TestASourceOfFluxThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := newFluxStage(t)
	f.follow(v1alpha1.SourceBucket)
	f.says(f.ready(v1alpha1.ReasonArtifactFailed), "the cluster has no Bucket of source.toolkit.fluxcd.io/v1: install Flux's source-controller")
	f.define(v1alpha1.SourceBucket, "buckets")
	f.source(v1alpha1.SourceBucket)
	f.offer(v1alpha1.SourceBucket, "sha256:aa", overlay("gpu"), "")
	f.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !f.hasPool("gpu") {
		t.Error("nothing is applied")
	}
}
