package fleet

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// facts are what is kept of an object that was judged: what the rules between
// objects look at, and where a problem with it would be put. The object, its
// text and its nodes are let go, which for thousands of files makes the
// difference between tens and hundreds of megabytes.
type facts struct {
	// identity is equal for documents that are one object to an API server.
	identity string
	// object is how a Problem names it.
	object string
	// file and line define it.
	file string
	line int
	// ours: it is of cloop.dev.
	ours    bool
	verdict []schemas.Problem
	places  []placed
	// of is the object itself, where it stays anyway: then places are looked for
	// when there is a problem, and are not kept.
	of *renderedObject
	// subject is its index in the report.
	subject int
	// own is what the repository's rules across pools see; nil where there are none.
	own *policy.Input
	// unjudged is a half that was not judged, for want of a variable's value; nil
	// where the object was, or is none.
	unjudged *unjudged
	// half is nil unless the object is one.
	half *half
	// movedFrom is the identity that it says it had, as far as a rename means one: see
	// claim. inHub: the hub reads it.
	movedFrom string
	inHub     bool
	// sync is nil unless the object is a PoolSync or a Kustomization of Flux.
	sync *synced
}

// placed is where a problem with a field is put.
type placed struct {
	path, file   string
	line, column int32
}

// half is one half of a pool.
type half struct {
	*facts
	// executor tells an ExecutorPool from a HubPool.
	executor bool
	// hubPool is the name that both halves share, field the one that says it.
	hubPool, field string
	hubURL         string
	// maximum is spec.maxRunners, where limited says that it is there.
	maximum int64
	limited bool
	// labels are the hub's, or the runner labels; nil where there are none.
	labels map[string]string
	root   string
	// unsure: what of it is compared with others may be otherwise; see leftOut.
	unsure bool
}

// judge keeps the facts of an object with the API server's verdict on it. It is
// safe for concurrent use.
func (c *checker) judge(o *renderedObject, verdict []schemas.Problem) *facts {
	f := &facts{
		identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line,
		ours: o.Object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group, verdict: verdict,
	}
	if c.memo != nil {
		f.of = o
	}
	defer f.claim(o)
	executor := isKind(o.Object, v1alpha1.ExecutorPoolKind)
	// One without a name has a problem already, and speaks of no pool.
	if !executor && !isKind(o.Object, v1alpha1.HubPoolKind) || HubPoolName(o.Object) == "" {
		f.keep(o, "metadata.name")
		if isKind(o.Object, v1alpha1.PoolSyncKind) || isFlux(o.Object) {
			f.sync = syncOf(o.Object)
			f.keepAlso(o, "spec.path")
		}
		return f
	}
	f.half = &half{facts: f, executor: executor, hubPool: HubPoolName(o.Object), field: "metadata.name", unsure: !o.comparable()}
	f.half.maximum, f.half.limited, _ = unstructured.NestedInt64(o.Object.Object, "spec", "maxRunners")
	if !executor {
		f.half.hubURL, _, _ = unstructured.NestedString(o.Object.Object, "spec", "hub", "url")
		f.half.labels = labelsOf(o.Object, "labels")
		f.keep(o, "metadata.name")
		return f
	}
	hub, _, _ := unstructured.NestedString(o.Object.Object, "spec", "hubURL")
	f.half.hubURL = strings.TrimRight(hub, "/")
	f.half.field = hubPoolField(o.Object)
	f.half.labels = labelsOf(o.Object, "runnerLabels")
	paths := []string{"metadata.name", "spec.maxRunners", "spec.hubURL"}
	if f.half.field != "metadata.name" {
		paths = append(paths, f.half.field)
	}
	// No API server takes more labels.
	for key := range f.half.labels {
		if len(f.half.labels) <= maxLabels {
			paths = append(paths, labelPath(key))
		}
	}
	f.keep(o, paths...)
	return f
}

func labelPath(key string) string { return "spec.runnerLabels[" + key + "]" }

// keep notes where problems with fields are put.
func (f *facts) keep(o *renderedObject, paths ...string) {
	if f.of != nil {
		return
	}
	f.places = make([]placed, 0, len(paths))
	f.keepAlso(o, paths...)
}

func (f *facts) keepAlso(o *renderedObject, paths ...string) {
	if f.of != nil {
		return
	}
	for _, path := range paths {
		at := o.locate(schemas.Problem{Path: path})
		f.places = append(f.places, placed{path, at.File, int32(at.Line), int32(at.Column)})
	}
}

// problem is a broken rule about a field that was kept.
func (f *facts) problem(rule, path, message string) schemas.Problem {
	problem := broken(rule, message)
	problem.Object, problem.Path = f.object, path
	return f.place(problem)
}

// place puts a problem where its field was kept to be.
func (f *facts) place(problem schemas.Problem) schemas.Problem {
	if f.of != nil {
		return f.of.locate(problem)
	}
	problem.File, problem.Line, problem.Column = f.file, f.line, 1
	for _, at := range f.places {
		if at.path == problem.Path {
			problem.File, problem.Line, problem.Column = at.file, int(at.line), int(at.column)
		}
	}
	return problem
}

func describe(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(obj.GetKind() + " " + name)
}

// identity is equal for documents that are one object to an API server.
func identity(obj *unstructured.Unstructured) string {
	return strings.Join([]string{obj.GroupVersionKind().Group, obj.GetKind(), obj.GetNamespace(), obj.GetName()}, "|")
}
