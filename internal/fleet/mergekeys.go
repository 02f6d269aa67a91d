package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	manifests "cloop.dev/cloop/kustomize"
)

// knowledge is which kinds a run of kustomize knows: of those it merges the entries
// of lists by their keys where a strategic merge patch has some, and replaces the
// lists of others.
//
// On the first such patch kyaml parses the OpenAPI document of all of Kubernetes.
// That allocates 43 MiB, grows the process by 30 MiB, and takes a tenth of a second
// in each run, against 80 MiB that a process may have when idle. (Measured with Go
// 1.26 and kustomize 0.21 on the objects of TestBuildMemory.) So most runs know the
// kinds that Git sync applies alone, and afterwards nothing: a build then allocates
// 6 MiB and leaves nothing. Other kinds of Kubernetes are for a root that patches
// lists of them: what is rendered here is what kubectl, Flux and Argo CD render.
type knowledge uint8

const (
	// ofAppliedKinds: the kinds that Git sync applies.
	ofAppliedKinds knowledge = iota
	// ofAllKinds: what the library knows by itself, of which the merge keys are kept
	// from the first run on.
	ofAllKinds
	// ofTheLibrary: the root brings a document of its own, which takes the place of
	// the library's.
	ofTheLibrary
)

// knowledge is what kustomize needs to know to render the root.
func (s *scan) knowledge() knowledge {
	if s.knows == nil {
		knows := s.need()
		s.knows = &knows
	}
	return *s.knows
}

func (s *scan) need() knowledge {
	needs := slices.ContainsFunc(s.layers, func(l layer) bool { return l.resource() && isBuiltIn(l.document.Object.GroupVersionKind()) }) &&
		slices.ContainsFunc(s.layers, func(l layer) bool {
			return l.patch && l.document != nil && isBuiltIn(l.document.Object.GroupVersionKind()) && hasList(l.whole().Object.Object)
		})
	switch {
	case !needs:
		return ofAppliedKinds
	case s.ownKinds:
		return ofTheLibrary
	}
	return ofAllKinds
}

// isBuiltIn says whether a kind is one of Kubernetes' own beyond those that Git sync
// applies. A patch with a target may leave its kind out.
func isBuiltIn(gvk schema.GroupVersionKind) bool {
	return !Applicable(gvk) && (!strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io"))
}

func hasList(value any) bool {
	switch node := value.(type) {
	case []any:
		return true
	case map[string]any:
		for _, child := range node {
			if hasList(child) {
				return true
			}
		}
	}
	return false
}

// teach has kyaml, whose knowledge is global, know of kinds. The caller holds
// kustomizeLock, and resets what it knows in the end.
func (k knowledge) teach() {
	openapi.ResetOpenAPI()
	switch k {
	case ofAppliedKinds:
		openapi.SuppressBuiltInSchemaUse()
		openapi.AddDefinitions(appliedMergeKeys())
	case ofAllKinds:
		keys := allMergeKeys()
		openapi.ResetOpenAPI()
		openapi.SuppressBuiltInSchemaUse()
		openapi.AddDefinitions(keys)
	}
}

// appliedMergeKeys are the lists that a strategic merge patch merges rather than
// replaces in the kinds that Git sync applies, as Kubernetes' OpenAPI document
// has them. The cloop.dev kinds have none unless the kustomization brings the
// component with the rest of the document.
var appliedMergeKeys = sync.OnceValue(func() spec.Definitions {
	var document spec.Swagger
	if err := document.UnmarshalJSON(manifests.OpenAPI()); err != nil {
		// It is compiled in, and a test builds with it.
		panic(fmt.Sprintf("read the embedded OpenAPI document: %v", err))
	}
	maps.DeleteFunc(document.Definitions, func(name string, _ spec.Schema) bool {
		return strings.HasPrefix(name, "dev.cloop.")
	})
	return document.Definitions
})

// allMergeKeys are those of all kinds that the library knows.
var allMergeKeys = sync.OnceValue(func() spec.Definitions {
	return onlyMergeKeys(openapi.Schema().Definitions)
})

const patchStrategy = "x-kubernetes-patch-strategy"

// kept are the extensions that tell how lists are merged, and whose.
var kept = []string{patchStrategy, "x-kubernetes-patch-merge-key", "x-kubernetes-list-map-keys", "x-kubernetes-group-version-kind"}

// onlyMergeKeys cuts definitions down to what leads to lists that are merged.
func onlyMergeKeys(all spec.Definitions) spec.Definitions {
	c := cutting{all: all, leads: map[string]bool{}}
	// A definition may refer to others, also in a circle.
	for before := -1; before < len(c.leads); {
		before = len(c.leads)
		for name := range all {
			if definition := all[name]; !c.leads[name] && c.merges(&definition) {
				c.leads[name] = true
			}
		}
	}
	out := spec.Definitions{}
	for name := range c.leads {
		definition := all[name]
		out[name] = *c.cut(&definition)
	}
	return out
}

type cutting struct {
	all spec.Definitions
	// leads: definition → a list that is merged is in it, or in one it refers to.
	leads map[string]bool
}

// merges says whether a list that is merged is in a schema.
func (c *cutting) merges(of *spec.Schema) bool {
	if _, is := of.Extensions[patchStrategy]; is {
		return true
	}
	if ref := of.Ref.String(); ref != "" {
		return c.leads[strings.TrimPrefix(ref, "#/definitions/")]
	}
	for name := range of.Properties {
		if property := of.Properties[name]; c.merges(&property) {
			return true
		}
	}
	return of.Items != nil && of.Items.Schema != nil && c.merges(of.Items.Schema) ||
		of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil && c.merges(of.AdditionalProperties.Schema)
}

// cut is a schema without what leads to no such list.
func (c *cutting) cut(of *spec.Schema) *spec.Schema {
	out := &spec.Schema{}
	out.Type, out.Ref = of.Type, of.Ref
	for _, name := range kept {
		if value, is := of.Extensions[name]; is {
			out.AddExtension(name, value)
		}
	}
	for name := range of.Properties {
		if property := of.Properties[name]; c.merges(&property) {
			out.SetProperty(name, *c.cut(&property))
		}
	}
	if of.Items != nil && of.Items.Schema != nil && c.merges(of.Items.Schema) {
		out.Items = &spec.SchemaOrArray{Schema: c.cut(of.Items.Schema)}
	}
	if of.AdditionalProperties != nil && of.AdditionalProperties.Schema != nil && c.merges(of.AdditionalProperties.Schema) {
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: c.cut(of.AdditionalProperties.Schema)}
	}
	return out
}
