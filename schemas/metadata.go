package schemas

import (
	"cmp"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// stored returns an object as a server that stored it would read it back: a copy
// without unknown fields and with defaults. Nil where there is none, or one that
// no server can have stored as this kind.
func (k *kindValidator) stored(object *unstructured.Unstructured, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	if object == nil || object.GroupVersionKind() != gvk {
		return nil
	}
	object = object.DeepCopy()
	meta, found, err := objectmeta.GetObjectMeta(object.Object, false)
	if err != nil {
		return nil
	}
	pruning.PruneWithOptions(object.Object, k.structural, true, structuralschema.UnknownFieldPathOptions{})
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, k.structural)
	defaulting.Default(object.Object, k.structural)
	if found {
		if err := objectmeta.SetObjectMeta(object.Object, meta); err != nil {
			return nil
		}
	}
	return object
}

// metadata checks what holds for every object. A document without a namespace
// is meant for the one it will be applied to, as for kubectl.
func (c *verdict) metadata() field.ErrorList {
	at := field.NewPath("metadata")
	meta, err := metaOf(c.object)
	if err != nil {
		return field.ErrorList{field.Invalid(at, nil, err.Error())}
	}
	if c.old != nil {
		return c.metadataChange(meta, at)
	}
	meta.Namespace = cmp.Or(meta.Namespace, metav1.NamespaceDefault)
	return metavalidation.ValidateObjectMeta(meta, true, metavalidation.NameIsDNSSubdomain, at)
}

// generateName gives a new object the name that a server would, with the same
// letters each time: everything else is judged with it.
func generateName(meta *metav1.ObjectMeta) {
	const longest, letters = 58, "xxxxx"
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = meta.GenerateName[:min(len(meta.GenerateName), longest)] + letters
	}
}

// metadataChange checks the metadata against the old object's. What a server
// fills in, and what kubectl carries over, is filled in.
func (c *verdict) metadataChange(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	old, err := metaOf(c.old)
	if err != nil {
		return field.ErrorList{field.Invalid(at, nil, err.Error())}
	}
	old.Namespace = cmp.Or(old.Namespace, metav1.NamespaceDefault)
	meta.Namespace = cmp.Or(meta.Namespace, old.Namespace)
	meta.UID = cmp.Or(meta.UID, old.UID)
	// Whether the document is of the newest version is not a matter of its text.
	meta.ResourceVersion = cmp.Or(meta.ResourceVersion, old.ResourceVersion, "1")
	meta.Generation = old.Generation
	meta.CreationTimestamp = old.CreationTimestamp
	meta.DeletionTimestamp = old.DeletionTimestamp
	if meta.DeletionGracePeriodSeconds == nil {
		meta.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	}
	// It has the name of what is stored, or is refused for that.
	anyName := func(string, bool) []string { return nil }
	errs := metavalidation.ValidateObjectMeta(meta, true, anyName, at)
	return distinct(append(errs, metavalidation.ValidateObjectMetaUpdate(meta, old, at)...))
}

func metaOf(object *unstructured.Unstructured) (*metav1.ObjectMeta, error) {
	meta, _, err := objectmeta.GetObjectMeta(object.Object, false)
	if meta == nil {
		meta = &metav1.ObjectMeta{}
	}
	return meta, err
}

// distinct drops what is said a second time: labels are checked as an object's
// and as a change's.
func distinct(errs field.ErrorList) field.ErrorList {
	said := map[string]bool{}
	var kept field.ErrorList
	for _, err := range errs {
		if text := err.Error(); !said[text] {
			said[text] = true
			kept = append(kept, err)
		}
	}
	return kept
}

// metadataPath finds the field in encoding/json's words for a wrong type:
// "… into Go struct field ObjectMeta.labels of type string".
func metadataPath(err error) string {
	_, after, ok := strings.Cut(err.Error(), "Go struct field ObjectMeta.")
	if !ok {
		return "metadata"
	}
	name, _, _ := strings.Cut(after, " ")
	return "metadata." + name
}
