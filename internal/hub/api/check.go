package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// unmarshal decodes a body. The decoder would replace what stands for no
// character, and something else than was asked for would be stored and run.
func unmarshal(data []byte, into any) error {
	if faulty := textErrors(data); len(faulty) > 0 {
		return errors.New(faulty[0].Message) // NewError names the fields
	}
	return plainly(json.Unmarshal(data, into))
}

// decodeMark stands between the place and what is wrong there in the text of an
// error, which is all that reaches NewError.
const decodeMark = "\x00"

// plainly says what a decoder refuses in the words of who wrote the document.
func plainly(err error) error {
	var of *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &of) && of.Type.Kind() == reflect.Float64:
		// Decoded for no type yet.
		return errors.New(placeOf(of.Field) + decodeMark + "must not hold a number beyond 1.8e308")
	case errors.As(err, &of):
		return errors.New(placeOf(of.Field) + decodeMark + "must be " + kindOf(of.Type))
	case errors.As(err, &syntax):
		return fmt.Errorf("body%smust be JSON, and is not at byte %d", decodeMark, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("body" + decodeMark + "must be JSON, and breaks off")
	}
	return err
}

// placeOf is a decoder's path without the Go types that it leads through.
func placeOf(field string) string {
	place := "body"
	for step := range strings.SplitSeq(field, ".") {
		if step != "" && !unicode.IsUpper(rune(step[0])) {
			place += "." + step
		}
	}
	return place
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of at most %d bits, without a point or an exponent", t.Bits())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "of another type"
}

// checkDefinition holds a definition that a request makes to the rules of a
// HubPool: what Git may not say of a pool, nobody may.
func (s *server) checkDefinition(name string, definition any) error {
	data, err := json.Marshal(definition)
	if err != nil {
		return fmt.Errorf("encode the definition of pool %s: %w", name, err)
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return fmt.Errorf("encode the definition of pool %s: %w", name, err)
	}
	if _, set := spec["maxRunners"]; !set {
		spec["maxRunners"] = int64(0) // a change that leaves it out
	}
	return s.judge(v1alpha1.HubPoolKind, spec, "body", "the definition of pool %s is not valid", name)
}

// checkInstall holds what is said of the cluster's half to the rules of an
// ExecutorPool, so that the commands that are printed with it are good.
func (s *server) checkInstall(request hubv1.CreatePoolRequest) error {
	hints := request.Install
	if hints == nil {
		return nil
	}
	spec := map[string]any{
		// What the rules want beside it and the request does not say.
		"hubURL": "https://hub.example.com", "poolCredentialSecretRef": map[string]any{"name": "credential"},
		"maxRunners": int64(request.MaxRunners), "minRunners": int64(hints.MinRunners),
	}
	if p := hints.Persistence; p != nil {
		kept := map[string]any{"enabled": true, "size": p.Size}
		for name, value := range map[string]string{"storageClassName": p.StorageClassName, "reclaimPolicy": p.ReclaimPolicy} {
			if value != "" {
				kept[name] = value
			}
		}
		spec["persistence"] = kept
	}
	return s.judge(v1alpha1.ExecutorPoolKind, spec, "body.install", "the installation of pool %s is not valid", request.Name)
}

// judge validates a spec as that of a document. The places of what is wrong begin
// with at.
func (s *server) judge(kind string, spec map[string]any, at, format string, args ...any) error {
	refused := problem.New(hubv1.CodeInvalid, format, args...)
	for _, p := range s.Validator.Validate(schemas.Document{Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind,
		// The request's name has rules of its own.
		"metadata": map[string]any{"name": "pool", "namespace": "hub"}, "spec": spec,
	}}}) {
		if p.Severity == schemas.SeverityError {
			refused.Errors = append(refused.Errors, hubv1.FieldError{Location: at + strings.TrimPrefix(p.Path, "spec"), Message: messageOf(p)})
		}
	}
	if len(refused.Errors) > 0 {
		return refused
	}
	return nil
}

func messageOf(p schemas.Problem) string {
	if p.Hint != "" {
		return p.Hint
	}
	return p.Message
}

// lineMessage says what keeps a text from being shown as one line.
func lineMessage(text string) string {
	switch {
	case printable.Blank(text):
		return "must hold something that can be seen"
	case printable.Disguises(text):
		return "must be one line without control characters and without characters that nobody sees"
	}
	return ""
}

// reported holds what a machine says of itself to what a person's terminal may be
// shown: pairs of where a text is and the text.
func reported(what string, texts ...[2]string) error {
	var faulty []hubv1.FieldError
	for _, text := range texts {
		if !utf8.ValidString(text[1]) || printable.Disguises(text[1]) {
			faulty = append(faulty, hubv1.FieldError{Location: text[0], Message: "must be UTF-8 without control characters and without characters that nobody sees"})
		}
	}
	return refuseFields(what, faulty)
}
