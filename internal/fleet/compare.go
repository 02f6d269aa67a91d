package fleet

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// FieldDiff is one field on which two objects disagree.
type FieldDiff struct {
	// Path is a JSON pointer (RFC 6901) into the object, such as
	// /spec/maxRunners; empty when one object is not there at all.
	Path string `json:"path"`
	// Want and Have are the values as they are written, the default where a
	// field is left out, and nil where it is absent.
	Want any `json:"want"`
	Have any `json:"have"`
	// Manager is the field manager that wrote Have, where that is known and not
	// the PoolSync's own.
	Manager string `json:"manager,omitempty"`
}

// CompareSpecs lists where have differs from want, by path. It compares
// everything but apiVersion, kind, metadata and status, by meaning: how a quantity or a
// duration is spelt, a default, null or empty value that is written or left out,
// and the order of maps and of lists that are sets, are no difference. Of a
// cloop.dev kind a field that only have sets is a difference; of other kinds,
// which others default, it is not. ignore lists JSON pointers; a pointer covers
// what lies below it. Where one of the two is nil the whole object differs.
func CompareSpecs(want, have *unstructured.Unstructured, ignore []string) []FieldDiff {
	if want == nil || have == nil {
		return compareWhole(want, have)
	}
	gvk := want.GroupVersionKind()
	c := &comparison{ignore: ignore, owned: gvk.Group == v1alpha1.GroupVersion.Group}
	var s *shape
	if c.owned {
		s = shapes()[gvk.Kind]
	}
	t := goTypes[gvk.GroupKind()]
	wanted, had := s.withDefaults(body(want)), s.withDefaults(body(have))
	c.want, c.have = wanted, had
	c.compare("", normal(wanted, t, s), normal(had, t, s), s)
	for i := range c.found {
		c.found[i].Manager = FieldManager(have, c.found[i].Path, v1alpha1.FieldManagerPoolSync)
	}
	slices.SortFunc(c.found, func(a, b FieldDiff) int { return cmp.Compare(a.Path, b.Path) })
	return c.found
}

func compareWhole(want, have *unstructured.Unstructured) []FieldDiff {
	diff := FieldDiff{}
	switch {
	case want == nil && have == nil:
		return nil
	case want != nil:
		diff.Want = body(want)
	default:
		diff.Have = body(have)
	}
	return []FieldDiff{diff}
}

// body is what an author writes of an object.
func body(obj *unstructured.Unstructured) map[string]any {
	fields := maps.Clone(obj.Object)
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(fields, name)
	}
	return fields
}

// comparison walks two normalised objects.
type comparison struct {
	ignore []string
	// owned: a field that only have sets counts.
	owned bool
	// want and have as written, for what is reported.
	want, have any
	found      []FieldDiff
}

func (c *comparison) compare(pointer string, want, have any, s *shape) {
	if c.ignored(pointer) || want == nil && have == nil || want == nil && !c.owned {
		return
	}
	wantMap, wantIsMap := want.(map[string]any)
	haveMap, haveIsMap := have.(map[string]any)
	// A map that one side lacks is compared field by field, so that what is
	// reported, ignored and looked up is a field.
	if wantIsMap && (haveIsMap || have == nil && len(wantMap) > 0) || haveIsMap && want == nil && len(haveMap) > 0 {
		c.maps(pointer, wantMap, haveMap, s)
		return
	}
	wantList, wantIsList := want.([]any)
	haveList, haveIsList := have.([]any)
	if wantIsList && haveIsList && c.lists(pointer, wantList, haveList, s) {
		return
	}
	if !reflect.DeepEqual(want, have) {
		c.found = append(c.found, FieldDiff{Path: pointer, Want: c.written(c.want, pointer, want), Have: c.written(c.have, pointer, have)})
	}
}

// written is the value as its author spelt it; the walk has seen it normalised.
func (c *comparison) written(object any, pointer string, normalised any) any {
	if value, ok := lookup(object, pointer); ok {
		return value
	}
	return normalised
}

func (c *comparison) maps(pointer string, want, have map[string]any, s *shape) {
	names := slices.Collect(maps.Keys(want))
	for name := range have {
		if _, both := want[name]; !both {
			names = append(names, name)
		}
	}
	for _, name := range names {
		c.compare(pointer+"/"+escape(name), want[name], have[name], s.field(name))
	}
}

// lists compares element by element where the elements correspond: by their
// keys, or by position where there are as many. It says whether they do.
func (c *comparison) lists(pointer string, want, have []any, s *shape) bool {
	if s != nil && s.set {
		return false
	}
	if s != nil && len(s.keys) > 0 {
		return c.keyed(pointer, want, have, s)
	}
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		c.compare(pointer+"/"+strconv.Itoa(i), want[i], have[i], s.element())
	}
	return true
}

// keyed compares a list of objects that are told apart by keys, in any order.
// Where an element is missing or twice, the list as a whole differs.
func (c *comparison) keyed(pointer string, want, have []any, s *shape) bool {
	if len(want) != len(have) {
		return false
	}
	index := make(map[string]int, len(have))
	for i, element := range have {
		index[s.key(element)] = i
	}
	pairs := make([]int, len(want))
	seen := make(map[int]bool, len(want))
	for i, element := range want {
		at, ok := index[s.key(element)]
		if !ok || seen[at] {
			return false
		}
		pairs[i], seen[at] = at, true
	}
	for i, at := range pairs {
		if i != at && !reflect.DeepEqual(want[i], have[at]) {
			// A pointer with an index would mean another element on each side.
			return false
		}
	}
	for i, at := range pairs {
		if i == at {
			c.compare(pointer+"/"+strconv.Itoa(i), want[i], have[at], s.element())
		}
	}
	return true
}

func (s *shape) key(element any) string {
	fields, _ := element.(map[string]any)
	values := make([]any, len(s.keys))
	for i, name := range s.keys {
		values[i] = fields[name]
	}
	return canonical(values)
}

func (c *comparison) ignored(pointer string) bool {
	for _, rule := range c.ignore {
		rule = strings.TrimSuffix(rule, "/")
		if rule != "" && (pointer == rule || strings.HasPrefix(pointer, rule+"/")) {
			return true
		}
	}
	return false
}
