package released

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Cause says in which way a change breaks what was good.
type Cause string

// Causes of a Break.
const (
	// KindRemoved is a definition that is gone, or has another group, kind,
	// plural or scope: its objects are reached no more.
	KindRemoved Cause = "KindRemoved"
	// NameRemoved is a short name or category that scripts may use.
	NameRemoved Cause = "NameRemoved"
	// VersionRemoved is a version that is gone or no longer served.
	VersionRemoved Cause = "VersionRemoved"
	// SubresourceRemoved is a status that is no subresource any more.
	SubresourceRemoved Cause = "SubresourceRemoved"
	// FieldRemoved is a field that a server would drop.
	FieldRemoved Cause = "FieldRemoved"
	// TypeChanged is another type or format, or a null that means something else.
	TypeChanged Cause = "TypeChanged"
	// BoundTightened is a length, number or count with less room.
	BoundTightened Cause = "BoundTightened"
	// EnumNarrowed is a word that is no longer allowed.
	EnumNarrowed Cause = "EnumNarrowed"
	// PatternChanged is another pattern; whether it allows all that the old one
	// did, no program can say.
	PatternChanged Cause = "PatternChanged"
	// RequiredAdded is a field that must be written and has no default.
	RequiredAdded Cause = "RequiredAdded"
	// DefaultChanged is a default that is another or gone: what is committed
	// means something else.
	DefaultChanged Cause = "DefaultChanged"
	// RuleAdded is a new or another CEL rule on a field that was there before.
	// A transition rule, one with oldSelf, judges only changes and is none.
	RuleAdded Cause = "RuleAdded"
	// MergeChanged is a list or map that merges in another way.
	MergeChanged Cause = "MergeChanged"
	// ConstraintChanged is any other keyword that may refuse a value.
	ConstraintChanged Cause = "ConstraintChanged"
)

// Break is one thing that was good and would not be.
type Break struct {
	Kind    string
	Version string
	// Path of the field: dots, [] for an element, .* for a map's value.
	Path  string
	Cause Cause
	// Message says what was, and what is.
	Message string
}

// String is how an exception names the break, and what it is.
func (b Break) String() string { return b.ID() + ": " + b.Message }

// ID tells the break from every other in the same comparison.
func (b Break) ID() string {
	return strings.Join([]string{b.Kind, b.Version, cmp.Or(b.Path, "."), string(b.Cause)}, " ")
}

// Breaks says what the definitions in after break of those in before, sorted.
// What after has more breaks nothing.
func Breaks(before, after []*apiextensionsv1.CustomResourceDefinition) []Break {
	var all []Break
	for _, old := range before {
		at := slices.IndexFunc(after, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Name == old.Name })
		if at < 0 {
			all = append(all, Break{Kind: old.Spec.Names.Kind, Cause: KindRemoved, Message: old.Name + " is gone"})
			continue
		}
		c := comparison{kind: old.Spec.Names.Kind}
		c.definitions(old, after[at])
		all = append(all, c.breaks...)
	}
	slices.SortFunc(all, func(a, b Break) int {
		return cmp.Or(cmp.Compare(a.ID(), b.ID()), cmp.Compare(a.Message, b.Message))
	})
	return all
}

// comparison collects the breaks of one kind.
type comparison struct {
	kind, version string
	breaks        []Break
}

func (c *comparison) add(path string, cause Cause, message string, args ...any) {
	c.breaks = append(c.breaks, Break{Kind: c.kind, Version: c.version, Path: strings.TrimPrefix(path, "."), Cause: cause, Message: fmt.Sprintf(message, args...)})
}

func (c *comparison) definitions(old, now *apiextensionsv1.CustomResourceDefinition) {
	names, others := old.Spec.Names, now.Spec.Names
	for _, one := range []struct{ what, old, now string }{
		{"group", old.Spec.Group, now.Spec.Group}, {"scope", string(old.Spec.Scope), string(now.Spec.Scope)},
		{"kind", names.Kind, others.Kind}, {"plural", names.Plural, others.Plural}, {"list kind", names.ListKind, others.ListKind},
	} {
		if one.old != one.now {
			c.add("", KindRemoved, "the %s was %s and is %s", one.what, one.old, one.now)
		}
	}
	for _, name := range gone(append(slices.Clone(names.ShortNames), names.Categories...), append(slices.Clone(others.ShortNames), others.Categories...)) {
		c.add("", NameRemoved, "%s is gone", name)
	}
	for i := range old.Spec.Versions {
		c.versions(&old.Spec.Versions[i], now.Spec.Versions)
	}
}

func (c *comparison) versions(old *apiextensionsv1.CustomResourceDefinitionVersion, all []apiextensionsv1.CustomResourceDefinitionVersion) {
	c.version = old.Name
	at := slices.IndexFunc(all, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == old.Name })
	switch {
	case at < 0:
		c.add("", VersionRemoved, "the version is gone")
		return
	case old.Served && !all[at].Served:
		c.add("", VersionRemoved, "the version is no longer served")
	}
	now := &all[at]
	if hasStatus(old) && !hasStatus(now) {
		c.add("status", SubresourceRemoved, "status is no subresource any more")
	}
	c.schemas("", old.Schema.OpenAPIV3Schema, now.Schema.OpenAPIV3Schema)
}

func hasStatus(v *apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Subresources != nil && v.Subresources.Status != nil
}

type props = apiextensionsv1.JSONSchemaProps

// schemas compares one field and what is below it.
func (c *comparison) schemas(path string, old, now *props) {
	if !c.types(path, old, now) {
		return
	}
	c.bounds(path, old, now)
	c.words(path, old, now)
	c.defaults(path, old, now)
	c.rules(path, old, now)
	c.merging(path, old, now)
	c.others(path, old, now)
	c.fields(path, old, now)
	if old.Items != nil && now.Items != nil {
		c.schemas(path+"[]", old.Items.Schema, now.Items.Schema)
	}
}

// types says whether the rest can be compared.
func (c *comparison) types(path string, old, now *props) bool {
	was, is := typeOf(old), typeOf(now)
	if was == "integer" && is == "integer or string" {
		is = was
	}
	if was != is {
		c.add(path, TypeChanged, "the type was %s and is %s", was, is)
		return false
	}
	if now.Format != "" && now.Format != old.Format {
		c.add(path, TypeChanged, "the format was %q and is %q", old.Format, now.Format)
	}
	switch {
	case old.Nullable && !now.Nullable:
		c.add(path, TypeChanged, "a null was kept and is dropped")
	case !old.Nullable && now.Nullable:
		c.add(path, TypeChanged, "a null was dropped and is kept")
	}
	return true
}

func typeOf(p *props) string {
	switch {
	case p.XIntOrString:
		return "integer or string"
	case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
		return "map"
	}
	return p.Type
}

func (c *comparison) bounds(path string, old, now *props) {
	for _, bound := range []struct {
		name     string
		old, now *int64
		upper    bool
	}{
		{"minLength", old.MinLength, now.MinLength, false}, {"maxLength", old.MaxLength, now.MaxLength, true},
		{"minItems", old.MinItems, now.MinItems, false}, {"maxItems", old.MaxItems, now.MaxItems, true},
		{"minProperties", old.MinProperties, now.MinProperties, false}, {"maxProperties", old.MaxProperties, now.MaxProperties, true},
	} {
		c.bound(path, bound.name, asFloat(bound.old), asFloat(bound.now), bound.upper)
	}
	c.bound(path, "minimum", old.Minimum, now.Minimum, false)
	c.bound(path, "maximum", old.Maximum, now.Maximum, true)
	if now.ExclusiveMinimum && !old.ExclusiveMinimum || now.ExclusiveMaximum && !old.ExclusiveMaximum {
		c.add(path, BoundTightened, "a bound was allowed itself and is not")
	}
}

func (c *comparison) bound(path, name string, old, now *float64, upper bool) {
	switch {
	case now == nil, !upper && *now <= 0 && name != "minimum":
		return
	case old == nil:
		c.add(path, BoundTightened, "there was no %s and it is %v", name, *now)
	case upper && *now < *old, !upper && *now > *old:
		c.add(path, BoundTightened, "%s was %v and is %v", name, *old, *now)
	}
}

func asFloat(value *int64) *float64 {
	if value == nil {
		return nil
	}
	number := float64(*value)
	return &number
}

func (c *comparison) words(path string, old, now *props) {
	if len(now.Enum) > 0 {
		if len(old.Enum) == 0 {
			c.add(path, EnumNarrowed, "any value was allowed and only some are")
		}
		for _, word := range gone(raw(old.Enum), raw(now.Enum)) {
			c.add(path, EnumNarrowed, "%s is no longer allowed", word)
		}
	}
	if now.Pattern != "" && now.Pattern != old.Pattern {
		c.add(path, PatternChanged, "the pattern was %q and is %q", old.Pattern, now.Pattern)
	}
}

func raw(values []apiextensionsv1.JSON) []string {
	all := make([]string, len(values))
	for i := range values {
		all[i] = string(values[i].Raw)
	}
	return all
}

func (c *comparison) defaults(path string, old, now *props) {
	switch {
	case old.Default == nil:
		// What was left out may now be filled in; it is as good as before.
	case now.Default == nil:
		c.add(path, DefaultChanged, "the default was %s and there is none", old.Default.Raw)
	case !bytes.Equal(old.Default.Raw, now.Default.Raw):
		c.add(path, DefaultChanged, "the default was %s and is %s", old.Default.Raw, now.Default.Raw)
	}
}

func (c *comparison) rules(path string, old, now *props) {
	for _, rule := range now.XValidations {
		known := slices.ContainsFunc(old.XValidations, func(o apiextensionsv1.ValidationRule) bool { return o.Rule == rule.Rule })
		if !known && !isTransition(rule) {
			c.add(path, RuleAdded, "there was no rule %q", rule.Rule)
		}
	}
}

// isTransition says whether a rule judges only a change: one with oldSelf is
// not evaluated where there is no old value, unless it asks for that.
func isTransition(rule apiextensionsv1.ValidationRule) bool {
	optional := rule.OptionalOldSelf != nil && *rule.OptionalOldSelf
	return strings.Contains(rule.Rule, "oldSelf") && !optional
}

func (c *comparison) merging(path string, old, now *props) {
	list := func(p *props) string {
		if p.XListType == nil {
			return "atomic"
		}
		return strings.TrimSpace(*p.XListType + " " + strings.Join(p.XListMapKeys, " "))
	}
	object := func(p *props) string {
		if p.XMapType == nil {
			return "granular"
		}
		return *p.XMapType
	}
	if was, is := list(old), list(now); was != is {
		c.add(path, MergeChanged, "the list was %s and is %s", was, is)
	}
	if was, is := object(old), object(now); was != is {
		c.add(path, MergeChanged, "the object was %s and is %s", was, is)
	}
}

// others are keywords that the sources do not use today.
func (c *comparison) others(path string, old, now *props) {
	for _, keyword := range []struct {
		name     string
		old, now any
	}{
		{"multipleOf", old.MultipleOf, now.MultipleOf}, {"not", old.Not, now.Not}, {"uniqueItems", old.UniqueItems, now.UniqueItems},
		{"allOf", old.AllOf, now.AllOf}, {"oneOf", old.OneOf, now.OneOf}, {"anyOf", old.AnyOf, now.AnyOf},
		{"x-kubernetes-embedded-resource", old.XEmbeddedResource, now.XEmbeddedResource},
	} {
		if !reflect.ValueOf(keyword.now).IsZero() && !reflect.DeepEqual(keyword.old, keyword.now) && !now.XIntOrString {
			c.add(path, ConstraintChanged, "%s was added or changed", keyword.name)
		}
	}
}

func (c *comparison) fields(path string, old, now *props) {
	if preserves(old) && !preserves(now) {
		c.add(path, FieldRemoved, "unknown fields were kept and are not")
	}
	for name := range old.Properties {
		was := old.Properties[name]
		is, ok := now.Properties[name]
		switch {
		case ok:
			c.schemas(path+"."+name, &was, &is)
		case !preserves(now):
			c.add(path+"."+name, FieldRemoved, "the field is gone")
		}
	}
	for _, name := range now.Required {
		field := now.Properties[name]
		if !slices.Contains(old.Required, name) && field.Default == nil {
			c.add(path+"."+name, RequiredAdded, "the field was optional and is required without a default")
		}
	}
	if typeOf(old) == "map" {
		c.schemas(path+".*", old.AdditionalProperties.Schema, now.AdditionalProperties.Schema)
	}
}

func preserves(p *props) bool {
	return p.XPreserveUnknownFields != nil && *p.XPreserveUnknownFields
}

// gone is what of old is not in now.
func gone(old, now []string) []string {
	return slices.DeleteFunc(slices.Clone(old), func(one string) bool { return slices.Contains(now, one) })
}
