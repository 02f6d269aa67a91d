package api

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
)

// strange refuses query parameters that the operation does not take, as bodies with
// properties that it does not take are refused: whoever misspells a filter must not
// be answered with everything.
func strange(ctx huma.Context) error {
	address := ctx.URL()
	if address.RawQuery == "" {
		return nil
	}
	const detail = "the request's query is not what it can be"
	given, err := url.ParseQuery(address.RawQuery)
	if err != nil {
		return refuseFields(detail, []hubv1.FieldError{{Location: "query", Message: "must be NAME=VALUE, with & between two and what is special percent-encoded"}})
	}
	// known: name → whether it may be there more than once.
	known := map[string]bool{}
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			known[p.Name] = p.Schema != nil && p.Schema.Type == huma.TypeArray
		}
	}
	takes := "it takes none"
	if len(known) > 0 {
		takes = "it takes " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	}
	var faulty []hubv1.FieldError
	for _, name := range slices.Sorted(maps.Keys(given)) {
		many, takesIt := known[name]
		switch {
		case len(faulty) == maxTextErrors:
			return refuseFields(detail, faulty)
		case !takesIt:
			faulty = append(faulty, hubv1.FieldError{Location: "query." + printable.Clip(name, maxLocation), Message: "is no parameter of the request: " + takes})
		case len(given[name]) > 1 && !many:
			faulty = append(faulty, hubv1.FieldError{Location: "query." + name, Message: "must be given once"})
		}
	}
	return refuseFields(detail, faulty)
}
