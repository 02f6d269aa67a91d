package fleet

import (
	"encoding/json"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	durationType = reflect.TypeFor[metav1.Duration]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// normal is a value in the one spelling that all values of its meaning have:
// quantities and durations are written canonically, numbers are one type, and
// what means "not set" is nil. t is the Go type, nil where none is known; a zero
// value under a pointer is kept, because there it differs from an absent one.
func normal(value any, t reflect.Type, s *shape) any {
	keepZero := t == nil || s != nil && s.fallback != nil
	if t != nil && t.Kind() == reflect.Pointer {
		t, keepZero = t.Elem(), true
	}
	value = spelled(value, t)
	switch node := value.(type) {
	case map[string]any:
		out := normalMap(node, t, s)
		if len(out) == 0 && (t == nil || !keepZero) {
			return nil
		}
		return out
	case []any:
		if len(node) == 0 {
			return nil
		}
		return normalList(node, t, s)
	case nil:
		return nil
	}
	if !keepZero && reflect.ValueOf(value).IsZero() {
		return nil
	}
	return value
}

func normalMap(node map[string]any, t reflect.Type, s *shape) map[string]any {
	out := make(map[string]any, len(node))
	for name, child := range node {
		if normalised := normal(child, fieldType(t, name), s.field(name)); normalised != nil {
			out[name] = normalised
		}
	}
	return out
}

// fieldType is the Go type of a struct's field by its JSON name, or of a map's entry;
// nil where none is known.
func fieldType(t reflect.Type, name string) reflect.Type {
	switch {
	case t == nil:
		return nil
	case t.Kind() == reflect.Struct:
		return goField(t, name)
	case t.Kind() == reflect.Map:
		// An entry of a map is there, whatever its value: a label may be "".
		return reflect.PointerTo(t.Elem())
	}
	return nil
}

func normalList(node []any, t reflect.Type, s *shape) []any {
	var element reflect.Type
	if t != nil && t.Kind() == reflect.Slice {
		// An element is there, whatever its value: an empty rule allows all.
		element = reflect.PointerTo(t.Elem())
	}
	out := make([]any, len(node))
	for i, child := range node {
		out[i] = normal(child, element, s.element())
		if _, object := child.(map[string]any); object && out[i] == nil {
			out[i] = map[string]any{}
		}
	}
	if s != nil && s.set {
		slices.SortFunc(out, func(a, b any) int { return strings.Compare(canonical(a), canonical(b)) })
		out = slices.CompactFunc(out, reflect.DeepEqual)
	}
	return out
}

// spelled rewrites one scalar.
func spelled(value any, t reflect.Type) any {
	value = number(value)
	switch t {
	case durationType:
		if text, ok := value.(string); ok {
			if duration, err := time.ParseDuration(text); err == nil {
				if duration == 0 {
					return ""
				}
				return duration.String()
			}
		}
	case quantityType:
		return quantity(value)
	}
	return value
}

// number makes whole numbers int64 and others float64, as their JSON is equal.
func number(value any) any {
	switch n := value.(type) {
	case int:
		return int64(n)
	case int32:
		return int64(n)
	case float64:
		if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			return int64(n)
		}
	case json.Number:
		if whole, err := n.Int64(); err == nil {
			return whole
		}
		if float, err := n.Float64(); err == nil {
			return number(float)
		}
	}
	return value
}

// plainQuantity is what is parsed as one. Beyond it stand exponents that take a
// gigabyte to write out; no API server stores them.
var plainQuantity = regexp.MustCompile(`^[+-]?[0-9.]{1,40}([eE][+-]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$`)

// quantity writes an amount as a fraction, which every spelling of it shares.
func quantity(value any) any {
	if amount := Amount(value); amount != nil {
		return amount.RatString()
	}
	return value
}

// Amount is a number or a quantity as a number; nil where the value is neither.
func Amount(value any) *big.Rat {
	var text string
	switch amount := value.(type) {
	case string:
		text = amount
	case int64:
		text = strconv.FormatInt(amount, 10)
	case float64:
		text = strconv.FormatFloat(amount, 'f', -1, 64)
	}
	if !plainQuantity.MatchString(text) {
		return nil
	}
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return nil
	}
	amount, ok := new(big.Rat).SetString(parsed.AsDec().String())
	if !ok {
		return nil
	}
	return amount
}

// canonical is a value as JSON with sorted keys; equal values have equal texts.
func canonical(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		// Only NaN, infinities and Go values that no document holds get here.
		return "unprintable"
	}
	return string(data)
}
