package api

import (
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/internal/hub/problem"
)

// maxLabelValue is the most characters that Kubernetes takes as a label's value.
const maxLabelValue = 63

// describe adds to the description what no handler's types say.
func (s *server) describe() {
	document := s.huma.OpenAPI()
	if schema := document.Components.Schemas.Map()["Document"]; schema != nil {
		code := schema.Properties["code"]
		code.Description = "Stable; docs/reference/reasons.md says what each means and what to do."
		for _, known := range problem.Codes() {
			code.Enum = append(code.Enum, string(known))
		}
	}
	// No tag reaches what is behind a map's keys.
	for _, name := range []string{"CreatePoolRequest", "UpdatePoolRequest", "PoolDefinition"} {
		if schema := document.Components.Schemas.Map()[name]; schema != nil {
			value := schema.Properties["labels"].AdditionalProperties.(*huma.Schema)
			value.MaxLength = new(maxLabelValue)
			value.PrecomputeMessages()
		}
	}
	document.AddOperation(webhook())
}

// webhook describes what forges send. It is served beside this API, by whoever
// follows the repositories, because its body is the forge's and is judged by its
// signature before it is read.
func webhook() *huma.Operation {
	refusal := func(description string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/Document"}},
		}}
	}
	return &huma.Operation{
		OperationID: "receive-webhook", Method: http.MethodPost, Path: "/webhooks/{sync}",
		Summary:     "Take an event of the sync's forge",
		Description: "A push to the ref that the sync follows makes it look at its repository. The event's signature, made with the sync's webhook secret as the forge makes it, is all that counts: without it the answer is the same as for a sync that there is not.",
		Parameters: []*huma.Param{{
			Name: "sync", In: "path", Required: true, Description: "The sync's name.", Schema: &huma.Schema{Type: huma.TypeString, MaxLength: new(63)},
		}},
		RequestBody: &huma.RequestBody{
			Description: "The event as the forge writes it, at most 25 MiB.",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}},
		},
		Responses: map[string]*huma.Response{
			strconv.Itoa(http.StatusAccepted):              {Description: "The event was taken; the answer says what came of it."},
			strconv.Itoa(http.StatusNotFound):              refusal("There is no such webhook, or the signature is not that of its secret."),
			strconv.Itoa(http.StatusRequestEntityTooLarge): refusal("The event is too large."),
		},
	}
}
