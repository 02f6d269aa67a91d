package fleet

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
)

// Imported are the documents that define what is live, and what whoever has Git
// define it is to know.
type Imported struct {
	// Documents say what is live, in order: what only a server says is not in them,
	// nor is what a server fills in by default.
	Documents []*unstructured.Unstructured
	// Notes name what was left out, and who else manages what is there.
	Notes []string
	// Secrets are fields that hold what looks like a credential, which Git must not
	// have.
	Secrets []string
}

func (i *Imported) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

func (i *Imported) add(obj *unstructured.Unstructured) {
	gvk := obj.GroupVersionKind()
	if spec, ok := shapes()[gvk.Kind].field("spec").withoutDefaults(obj.Object["spec"], fieldType(goTypes[gvk.GroupKind()], "spec")).(map[string]any); ok {
		obj.Object["spec"] = spec
	}
	for _, place := range credentialsIn("", obj.Object) {
		i.Secrets = append(i.Secrets, fmt.Sprintf("%s %s: %s", obj.GetKind(), obj.GetName(), strings.TrimPrefix(place, ".")))
	}
	i.Documents = append(i.Documents, obj)
}

// ImportHub makes HubPools of the hub's pools, by name. A pool that is being revoked,
// or is, is left out.
func ImportHub(pools []hubv1.Pool) Imported {
	var out Imported
	pools = slices.SortedFunc(slices.Values(pools), func(a, b hubv1.Pool) int { return strings.Compare(a.Name, b.Name) })
	for i := range pools {
		pool := &pools[i]
		if pool.State != hubv1.PoolActive {
			if pool.State == hubv1.PoolDraining {
				out.note("hub pool %s is being revoked and was left out", pool.Name)
			}
			continue
		}
		if pool.Source != nil {
			out.note("hub pool %s is defined by %s of %s already: delete it there, with deletionPolicy Orphan, before the hub follows this repository",
				pool.Name, pool.Source.Path, pool.Source.Repository)
		}
		if pool.Cordon != nil {
			out.note("hub pool %s is cordoned, and stays so: the cordon remains an operator's", pool.Name)
		}
		obj := hubPoolObject(pool.PoolDefinition)
		obj.SetName(pool.Name)
		out.add(obj)
	}
	return out
}

// ImportCluster makes documents of the ExecutorPools of a cluster, by namespace and
// name. One that is being deleted is left out.
func ImportCluster(cluster string, live []unstructured.Unstructured) Imported {
	var out Imported
	live = slices.SortedFunc(slices.Values(live), func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	appliers := map[string]int{}
	for i := range live {
		have := &live[i]
		if have.GetDeletionTimestamp() != nil {
			out.note("ExecutorPool %s/%s of cluster %s is being deleted and was left out", have.GetNamespace(), have.GetName(), cluster)
			continue
		}
		if applier := appliedBy(have); applier != "" {
			appliers[applier]++
		}
		obj := &unstructured.Unstructured{Object: map[string]any{"spec": have.DeepCopy().Object["spec"]}}
		obj.SetAPIVersion(have.GetAPIVersion())
		obj.SetKind(have.GetKind())
		obj.SetNamespace(have.GetNamespace())
		obj.SetName(have.GetName())
		obj.SetLabels(ownMarks(have.GetLabels()))
		obj.SetAnnotations(ownMarks(have.GetAnnotations()))
		out.add(obj)
	}
	for _, applier := range slices.Sorted(maps.Keys(appliers)) {
		out.note("%s applies %d of the ExecutorPools of cluster %s: have it let go of them, without deleting them, before this repository is applied there", applier, appliers[applier], cluster)
	}
	return out
}

// machineMarks begin the labels and annotations that the machinery around an object
// writes: who applied it, and what it was asked.
var machineMarks = []string{
	"poolsync.cloop.dev/", "cloop.dev/", "kubectl.kubernetes.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"reconcile.fluxcd.io/", "argocd.argoproj.io/", "meta.helm.sh/", "config.kubernetes.io/", "internal.config.kubernetes.io/",
}

// ownMarks are the labels or annotations that a person gave; nil: none.
func ownMarks(marks map[string]string) map[string]string {
	own := maps.Clone(marks)
	maps.DeleteFunc(own, func(key, value string) bool {
		return slices.ContainsFunc(machineMarks, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) ||
			key == "app.kubernetes.io/managed-by" && value == "Helm"
	})
	return notEmpty(own)
}

// appliedBy is who keeps an object as some source says, by the marks that it leaves;
// empty: nobody that is known.
func appliedBy(obj *unstructured.Unstructured) string {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	named := func(kind, namespace, name string) string {
		if name == "" {
			return ""
		}
		if namespace == "" {
			return kind + " " + name
		}
		return kind + " " + namespace + "/" + name
	}
	for _, applier := range []string{
		named(v1alpha1.PoolSyncKind, labels[v1alpha1.LabelPoolSyncNamespace], labels[v1alpha1.LabelPoolSyncName]),
		named("Flux Kustomization", labels["kustomize.toolkit.fluxcd.io/namespace"], labels["kustomize.toolkit.fluxcd.io/name"]),
		named("Flux HelmRelease", labels["helm.toolkit.fluxcd.io/namespace"], labels["helm.toolkit.fluxcd.io/name"]),
		named("Argo CD Application", "", strings.Split(annotations["argocd.argoproj.io/tracking-id"], ":")[0]),
		named("Helm release", annotations["meta.helm.sh/release-namespace"], annotations["meta.helm.sh/release-name"]),
	} {
		if applier != "" {
			return applier
		}
	}
	return ""
}

// withoutDefaults returns the value without what withDefaults fills in again. It
// copies what it changes. t is the Go type, as for normal.
func (s *shape) withoutDefaults(value any, t reflect.Type) any {
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch node := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(node))
		for name, child := range node {
			field, inner := s.field(name), fieldType(t, name)
			if !field.isDefault(child, inner) {
				out[name] = field.withoutDefaults(child, inner)
			}
		}
		return out
	case []any:
		var element reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			element = t.Elem()
		}
		out := make([]any, len(node))
		for i, child := range node {
			out[i] = s.element().withoutDefaults(child, element)
		}
		return out
	}
	return value
}

// isDefault says whether a field has what an API server makes of it where it is absent.
func (s *shape) isDefault(value any, t reflect.Type) bool {
	if s == nil || s.fallback == nil {
		return false
	}
	return canonical(normal(s.withDefaults(value), t, s)) == canonical(normal(s.withDefaults(s.fallback), t, s))
}

// credentialsIn are the places below at where a text holds what looks like a
// credential, sorted.
func credentialsIn(at string, value any) []string {
	var places []string
	switch value := value.(type) {
	case string:
		if secret.Redact(value) != value {
			return []string{at}
		}
	case []any:
		for i := range value {
			places = append(places, credentialsIn(fmt.Sprintf("%s[%d]", at, i), value[i])...)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			places = append(places, credentialsIn(at+"."+secret.Redact(key), value[key])...)
		}
	}
	return places
}
