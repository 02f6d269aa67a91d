package schemas

import (
	"fmt"
	"maps"
	"slices"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxEntries is how many entries of one list or map are judged. No definition
// admits as many where somebody writes them, and the library compares each
// error with all before it: 60,000 bad labels take it more than a minute.
const maxEntries = 2000

// cutShort are the lists and maps of an object that have more than maxEntries
// entries: path, as the library writes it → how many there were.
type cutShort map[string]int

// tooLong says whether a list or a map in a value has more than maxEntries
// entries. Of hardly any document it is true, so that is asked first.
func tooLong(value any) bool {
	switch value := value.(type) {
	case []any:
		return len(value) > maxEntries || slices.ContainsFunc(value, tooLong)
	case map[string]any:
		if len(value) > maxEntries {
			return true
		}
		for _, child := range value {
			if tooLong(child) {
				return true
			}
		}
	}
	return false
}

// cut takes what is beyond maxEntries out of the lists and maps of a value, in
// place: the last items of a list, the last keys of a map. Whatever is beyond
// the bound of its schema is refused all the same, since maxEntries is too.
func (c cutShort) cut(path string, value any, schema *structuralschema.Structural) any {
	if schema == nil {
		return value
	}
	switch value := value.(type) {
	case []any:
		if len(value) > maxEntries {
			c[path] = len(value)
			value = value[:maxEntries]
		}
		for i := range value {
			value[i] = c.cut(fmt.Sprintf("%s[%d]", path, i), value[i], schema.Items)
		}
		return value
	case map[string]any:
		if len(value) > maxEntries {
			c[path] = len(value)
			for _, key := range slices.Sorted(maps.Keys(value))[maxEntries:] {
				delete(value, key)
			}
		}
		for key := range value {
			of := schema.AdditionalProperties
			var entry *structuralschema.Structural
			if property, ok := schema.Properties[key]; ok {
				entry = &property
			} else if of != nil {
				entry = of.Structural
			}
			value[key] = c.cut(joinPath(path, key), value[key], entry)
		}
	}
	return value
}

// restore puts the true number of entries into the errors about it.
func (c cutShort) restore(errs field.ErrorList) {
	for _, err := range errs {
		if count, ok := c[err.Field]; ok && err.Type == field.ErrorTypeTooMany {
			err.BadValue = count
		}
	}
}
