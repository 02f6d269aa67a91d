package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
)

// HubReads says whether an object is a HubPool that the hub reads from Git. No
// cluster has it; one that says in spec.hub where to push it is applied to a cluster
// as an ExecutorPool is.
func HubReads(object *unstructured.Unstructured) bool {
	_, pushed, _ := unstructured.NestedMap(object.Object, "spec", "hub")
	return isKind(object, v1alpha1.HubPoolKind) && !pushed
}

// Observed says whether a document is only to be compared with what there is. A
// HubPool that a cluster pushes to its hub is applied to the cluster all the same: the
// pool that it is about is the hub's, and whoever pushes it only compares.
func Observed(object *unstructured.Unstructured) bool {
	return ToObserve(object) && (!isKind(object, v1alpha1.HubPoolKind) || HubReads(object))
}

// ToObserve says whether an object has the annotation for it.
func ToObserve(object metav1.Object) bool {
	return object.GetAnnotations()[v1alpha1.AnnotationObserve] == "true"
}

// MisObserved says whether an object has the annotation with a value that is neither.
func MisObserved(object metav1.Object) bool {
	value, there := object.GetAnnotations()[v1alpha1.AnnotationObserve]
	return there && value != "true" && value != "false"
}

// DefinitionOf is a HubPool as the hub keeps it, normalised: defaults filled in,
// the audience sorted and without repetitions, nothing empty. The cordon is no
// part of it: it is an operator's act unless Git sets it.
func DefinitionOf(hp *v1alpha1.HubPool) hubv1.PoolDefinition {
	return normalDefinition(hubv1.PoolDefinition{
		MaxRunners:     hp.Spec.MaxRunners,
		Labels:         hp.Spec.Labels,
		Audience:       hp.Spec.Audience,
		Owner:          hp.Spec.Owner,
		Harness:        hp.Spec.Harness,
		Capabilities:   hp.Spec.Capabilities,
		DeletionPolicy: hp.Spec.DeletionPolicy,
	})
}

// normalDefinition copies what it changes.
func normalDefinition(def hubv1.PoolDefinition) hubv1.PoolDefinition {
	def.Audience = slices.Compact(slices.Sorted(slices.Values(def.Audience)))
	def.Labels = notEmpty(def.Labels)
	def.Capabilities = notEmpty(def.Capabilities)
	spec := shapes()[v1alpha1.HubPoolKind].field("spec")
	def.Harness = orDefault(def.Harness, spec.field("harness"))
	def.DeletionPolicy = orDefault(def.DeletionPolicy, spec.field("deletionPolicy"))
	return def
}

func orDefault(text string, s *shape) string {
	if fallback, ok := s.fallback.(string); ok && text == "" {
		return fallback
	}
	return text
}

func notEmpty[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// Digest is "sha256:" and the hexadecimal SHA-256 of the normalised definition's
// canonical JSON: equal for definitions between which CompareHub finds nothing.
func Digest(def hubv1.PoolDefinition) string {
	data, err := json.Marshal(normalDefinition(def))
	if err != nil {
		// A struct of texts, numbers and maps of them always encodes.
		panic(fmt.Sprintf("encode a pool definition: %v", err))
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CompareHub lists where the hub's definition differs from Git's; paths are as
// in a HubPool document, such as /spec/maxRunners.
func CompareHub(git, hub hubv1.PoolDefinition) []FieldDiff {
	return CompareSpecs(hubPoolObject(git), hubPoolObject(hub), nil)
}

// HubDrift is CompareHub as the hub shows it: the paths and the values, of which
// none is a secret's.
func HubDrift(git, hub hubv1.PoolDefinition) []hubv1.Drift {
	var entries []hubv1.Drift
	for _, diff := range CompareHub(git, hub) {
		entries = append(entries, hubv1.Drift{Path: secret.Redact(diff.Path), Git: shownAtHub(diff.Want), Hub: shownAtHub(diff.Have)})
	}
	return entries
}

func shownAtHub(value any) string {
	if value == nil {
		return ""
	}
	return canonical(secret.RedactValue(value))
}

func hubPoolObject(def hubv1.PoolDefinition) *unstructured.Unstructured {
	data, err := json.Marshal(normalDefinition(def))
	spec := map[string]any{}
	if err == nil {
		err = json.Unmarshal(data, &spec)
	}
	if err != nil {
		panic(fmt.Sprintf("encode a pool definition: %v", err))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.HubPoolKind, "spec": spec,
	}}
}

// CrossSurface lists the rules between hub and cluster that a pool breaks: the
// cluster's maximum is above the hub's, a runner label contradicts the hub's, or
// the credential belongs to another hub pool than the object names. What somebody has
// set aside at the hub is BreakGlass. The caller sets Since.
func CrossSurface(pool *v1alpha1.ExecutorPool, hub hubv1.Pool) []v1alpha1.DriftEntry {
	var entries []v1alpha1.DriftEntry
	add := func(path string, atHub, inCluster any) {
		entry := v1alpha1.DriftEntry{
			Kind: v1alpha1.ExecutorPoolKind, Namespace: pool.Namespace, Name: pool.Name,
			Path: secret.Redact(path), Cause: v1alpha1.DriftRuleBroken,
			Hub: secret.Redact(canonical(atHub)), Cluster: secret.Redact(canonical(inCluster)),
			Outcome: v1alpha1.OutcomeReportOnly, Message: "nobody changes either side for a rule between the two: change one of them in Git",
		}
		if o := hub.Override; o != nil && path != "/spec/hubPool" {
			entry.Cause, entry.Outcome, entry.Manager = v1alpha1.DriftBreakGlass, v1alpha1.OutcomeWaiting, secret.Redact(o.By)
			entry.Message = fmt.Sprintf("it ends with the override at the hub, until %s: %s", o.Until.UTC().Format(time.RFC3339), secret.Redact(o.Reason))
		}
		entries = append(entries, entry)
	}
	if name := pool.HubPoolName(); name != hub.Name {
		add("/spec/hubPool", hub.Name, name)
	}
	if pool.Spec.MaxRunners > hub.MaxRunners {
		add("/spec/maxRunners", hub.MaxRunners, pool.Spec.MaxRunners)
	}
	for _, key := range slices.Sorted(maps.Keys(pool.Spec.RunnerLabels)) {
		value := pool.Spec.RunnerLabels[key]
		if of, ok := hub.Labels[key]; ok && of != value {
			add("/spec/runnerLabels/"+escape(key), of, value)
		}
	}
	return entries
}
