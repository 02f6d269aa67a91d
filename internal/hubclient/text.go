package hubclient

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"cloop.dev/cloop/apis/hubv1"
)

// checkText refuses a body with a text that is not UTF-8. Encoding it would
// replace what stands for no character, and the hub would keep and run
// something else than was asked for.
func checkText(body any) error {
	var faulty []hubv1.FieldError
	for _, location := range notUTF8(reflect.ValueOf(body), "body") {
		faulty = append(faulty, hubv1.FieldError{Location: location, Message: "must be UTF-8"})
	}
	if len(faulty) == 0 {
		return nil
	}
	return &hubv1.Problem{
		Title: "The request is not valid", Status: 422, Code: hubv1.CodeInvalid, Detail: "the request is not valid",
		Errors: faulty, Remedy: "correct the named fields and send it again",
	}
}

// notUTF8 are the locations of the texts in a request that are not UTF-8.
func notUTF8(v reflect.Value, location string) (found []string) {
	switch v.Kind() { //nolint:exhaustive // no other kind holds text
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			found = append(found, location)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return notUTF8(v.Elem(), location)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			found = append(found, notUTF8(v.Index(i), fmt.Sprintf("%s[%d]", location, i))...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			found = append(found, notUTF8(key, location)...)
			found = append(found, notUTF8(v.MapIndex(key), location+"."+strings.ToValidUTF8(key.String(), "?"))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case field.Anonymous && name == "":
				found = append(found, notUTF8(v.Field(i), location)...)
			case field.IsExported():
				found = append(found, notUTF8(v.Field(i), location+"."+name)...)
			}
		}
	}
	return found
}
