package schemas

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Validator gives an API server's verdict on documents of the embedded kinds.
// It is safe for concurrent use.
type Validator struct {
	// kinds: kind → how to judge it. Filled at once, each entry loaded when
	// its kind is first met: a check of one file must not pay for all kinds.
	kinds map[string]*kindValidator
}

// kindValidator holds what an API server keeps for one served version.
type kindValidator struct {
	load       func() error
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// NewValidator returns a validator over the embedded definitions. It fails only
// if the binary was built with a definition that does not decode.
func NewValidator() (*Validator, error) {
	v := &Validator{kinds: make(map[string]*kindValidator, len(kinds))}
	for _, kind := range kinds {
		one := &kindValidator{}
		one.load = sync.OnceValue(func() error { return one.compile(kind) })
		v.kinds[kind] = one
	}
	return v, nil
}

func (k *kindValidator) compile(kind string) error {
	definition, err := loadCRD(kind)
	if err != nil {
		return err
	}
	internal := &apiextensions.JSONSchemaProps{}
	external := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, internal, nil); err != nil {
		return fmt.Errorf("convert the schema of %s: %w", kind, err)
	}
	if k.structural, err = structuralschema.NewStructural(internal); err != nil {
		return fmt.Errorf("read the schema of %s: %w", kind, err)
	}
	if k.schema, _, err = validation.NewSchemaValidator(internal); err != nil {
		return fmt.Errorf("prepare the schema of %s: %w", kind, err)
	}
	k.cel = cel.NewValidator(k.structural, true, celconfig.PerCallLimit)
	return nil
}

// Known says whether Validate has a verdict on a kind.
func (v *Validator) Known(gvk schema.GroupVersionKind) bool {
	return gvk.GroupVersion() == v1alpha1.GroupVersion && v.kinds[gvk.Kind] != nil
}

// Default applies the defaults that an API server would, in place. An object
// of another group stays as it is.
func (v *Validator) Default(obj *unstructured.Unstructured) error {
	if !v.Known(obj.GroupVersionKind()) {
		return nil
	}
	kind := v.kinds[obj.GetKind()]
	if err := kind.load(); err != nil {
		return err
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(obj.Object, kind.structural)
	defaulting.Default(obj.Object, kind.structural)
	return nil
}

// Validate gives an API server's verdict on a document that is about to be
// created, sorted by position. Documents of other groups have no problems.
// Unlike a server, which stops at the first group of them, it reports unknown
// fields and everything else in one go. The document is not changed.
func (v *Validator) Validate(d Document) []Problem { return v.ValidateUpdate(nil, d) }

// ValidateUpdate gives an API server's verdict on a document that is about to
// replace old: rules on changes count, and what was wrong before and stays as it
// is counts for nothing, as on a server from Kubernetes 1.30 on. Nil, or an
// object of another kind, stands for none. Old may be what a cluster has or what
// an earlier commit says; neither object is changed.
func (v *Validator) ValidateUpdate(old *unstructured.Unstructured, d Document) []Problem {
	gvk := d.Object.GroupVersionKind()
	if !v.Known(gvk) {
		return v.unknownKind(d, gvk)
	}
	kind := v.kinds[gvk.Kind]
	if err := kind.load(); err != nil {
		return []Problem{d.problem(RuleSchema, "", err.Error(), "this build of cloop is broken; use another")}
	}
	verdict := &verdict{document: &d, kind: kind, object: d.Object.DeepCopy(), old: kind.stored(old, gvk), short: cutShort{}}
	if verdict.decode() {
		verdict.validate()
	}
	sortProblems(verdict.problems)
	return verdict.problems
}

// unknownKind reports a document that means one of our kinds and names none.
func (v *Validator) unknownKind(d Document, gvk schema.GroupVersionKind) []Problem {
	message := fmt.Sprintf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion().String())
	switch {
	case gvk.Group == v1alpha1.Group && v.kinds[gvk.Kind] != nil:
		hint := fmt.Sprintf("this build knows %s; upgrade cloop if the document is newer", v1alpha1.GroupVersion)
		return []Problem{d.problem(RuleUnknownKind, "apiVersion", message, hint)}
	case gvk.Group == v1alpha1.Group:
		hint := Suggest(gvk.Kind, kinds)
		if hint == "" {
			hint = "the kinds of " + v1alpha1.Group + " are " + strings.Join(kinds, ", ")
		}
		return []Problem{d.problem(RuleUnknownKind, "kind", message, hint)}
	case v.kinds[gvk.Kind] != nil:
		warning := d.problem(RuleUnknownKind, "apiVersion", message, fmt.Sprintf("write apiVersion: %s if cloop's %s is meant", v1alpha1.GroupVersion, gvk.Kind))
		warning.Severity = SeverityWarning
		return []Problem{warning}
	}
	return nil
}

// problem makes an error about a field of the document.
func (d *Document) problem(rule, path, message, hint string) Problem {
	line, column := d.positionOf(path)
	return Problem{Rule: rule, Severity: SeverityError, File: d.File, Line: line, Column: column,
		Object: describe(d.Object), Path: path, Message: message, Hint: hint}
}

// verdict is one document on its way through an API server's create handler.
type verdict struct {
	document *Document
	kind     *kindValidator
	object   *unstructured.Unstructured
	// old is what object replaces, as a server stored it; nil: nothing.
	old *unstructured.Unstructured
	// pairs match the object's fields with the old one's; nil without an old one.
	pairs *common.CorrelatedObject
	// short are lists and maps that are too long to be judged whole.
	short    cutShort
	problems []Problem
}

// decode does what the server does before it has an object: metadata must have
// the right types, unknown fields are noted and dropped, defaults come in. It
// says whether there is an object to validate.
func (c *verdict) decode() bool {
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(c.object.Object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		c.add(RuleMetadata, metadataPath(err), err.Error(), "write the value in quotes if it is meant as a string")
		return false
	}
	track := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	unknown = append(unknown, pruning.PruneWithOptions(c.object.Object, c.kind.structural, true, track)...)
	more := len(unknown) - maxAlike
	if more > 0 {
		slices.Sort(unknown)
		unknown = unknown[:maxAlike]
	}
	for _, path := range unknown {
		c.add(RuleUnknownField, path, fmt.Sprintf("unknown field %q", path), c.kind.suggestField(path))
	}
	c.more(RuleUnknownField, more)
	defaulting.PruneNonNullableNullsWithoutDefaults(c.object.Object, c.kind.structural)
	defaulting.Default(c.object.Object, c.kind.structural)
	// The server takes kind, apiVersion and metadata from the strict reading,
	// and status only through its subresource.
	if found {
		if c.old == nil {
			generateName(meta)
		}
		if err := objectmeta.SetObjectMeta(c.object.Object, meta); err != nil {
			c.add(RuleMetadata, "metadata", err.Error(), "")
			return false
		}
	}
	delete(c.object.Object, "status")
	if tooLong(c.object.Object) {
		c.short.cut("", c.object.Object, c.kind.structural)
	}
	if c.old == nil {
		return true
	}
	if status, ok := c.old.Object["status"]; ok {
		c.object.Object["status"] = status
	}
	c.pairs = common.NewCorrelatedObject(c.object.Object, c.old.Object, &model.Structural{Structural: c.kind.structural})
	return true
}

func (c *verdict) validate() {
	ctx := context.Background()
	metadata := c.metadata()
	errs := c.structure(ctx)
	c.short.restore(errs)
	c.addErrors(RuleMetadata, metadata)
	c.addErrors(RuleSchema, errs)
	for path, count := range c.short {
		c.warn(RuleSchema, path, fmt.Sprintf("the other %d entries are not checked", count-maxEntries))
	}
	if c.kind.cel == nil {
		return
	}
	if blocking(metadata) || blocking(errs) {
		c.warn(RuleCEL, "", uncheckedRules)
		return
	}
	c.addErrors(RuleCEL, c.rules(ctx))
}

// structure checks types, bounds, patterns and lists.
func (c *verdict) structure(ctx context.Context) field.ErrorList {
	var errs field.ErrorList
	if c.old == nil {
		errs = validation.ValidateCustomResource(nil, c.object.Object, c.kind.schema)
	} else {
		errs = validation.ValidateCustomResourceUpdate(nil, c.object.Object, c.old.Object, c.kind.schema, validation.WithRatcheting(c.pairs))
	}
	errs = append(errs, objectmeta.Validate(ctx, nil, c.object.Object, c.kind.structural, false)...)
	if c.old == nil || len(listtype.ValidateListSetsAndMaps(nil, c.kind.structural, c.old.Object)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.kind.structural, c.object.Object)...)
	}
	return errs
}

// rules evaluates the CEL rules.
func (c *verdict) rules(ctx context.Context) field.ErrorList {
	const budget = celconfig.RuntimeCELCostBudget
	if c.old == nil {
		broken, _ := c.kind.cel.Validate(ctx, nil, c.kind.structural, c.object.Object, nil, budget)
		return broken
	}
	broken, _ := c.kind.cel.Validate(ctx, nil, c.kind.structural, c.object.Object, c.old.Object, budget, cel.WithRatcheting(c.pairs))
	return broken
}

// blocking says whether an API server evaluates no CEL rule for these errors:
// rules may count on types, sizes and required fields.
func blocking(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

// maxAlike bounds how many problems of one rule a document is told of. Each is
// looked up in the text, and a document of a megabyte has room for a hundred
// thousand unknown fields.
const maxAlike = 200

// more says that there are others beside those that were added.
func (c *verdict) more(rule string, count int) {
	if count > 0 {
		c.add(rule, "", fmt.Sprintf("and %d more problems of this kind", count), "correct the others first")
	}
}

func (c *verdict) addErrors(rule string, errs field.ErrorList) {
	more := len(errs) - maxAlike
	if more > 0 {
		slices.SortFunc(errs, func(a, b *field.Error) int {
			return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Detail, b.Detail))
		})
		errs = errs[:maxAlike]
	}
	defer c.more(rule, more)
	for _, err := range errs {
		path := err.Field
		if path == "<nil>" {
			path = ""
		}
		problem := c.document.problem(rule, path, err.ErrorBody(), c.kind.hint(err))
		problem.At = placeOf(path, err.Detail)
		if rule == RuleCEL {
			problem.Fields = c.kind.looksAt(path, err.Detail)
		}
		problem.Line, problem.Column = c.document.positionOf(problem.Field())
		c.problems = append(c.problems, problem)
	}
}

func (c *verdict) add(rule, path, message, hint string) {
	c.problems = append(c.problems, c.document.problem(rule, path, message, hint))
}

// warn adds what names nothing that is wrong.
func (c *verdict) warn(rule, path, message string) {
	c.add(rule, path, message, "")
	c.problems[len(c.problems)-1].Severity = SeverityWarning
}
