package api

import (
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/secret"
)

const messageCredential = "must not hold a credential: nobody can read it there unseen, so revoke it"

// taken are the texts of bodies in which a credential is no reason to refuse:
// where it belongs, and what machines report and people explain, which is kept
// without it.
var taken = []string{"body.token", "body.credential", "body.reason", "body.message", "body.error"}

// misplaced refuses a request with a credential of cloop's where names and the
// like go: it would be kept, shown and logged there. Bodies are looked at as they
// are decoded.
func misplaced(ctx huma.Context) error {
	var faulty []hubv1.FieldError
	found := func(location, text string) {
		if secret.Held(text) {
			faulty = append(faulty, hubv1.FieldError{Location: location, Message: messageCredential})
		}
	}
	address := ctx.URL()
	found("path", address.Path)
	if query, err := url.QueryUnescape(address.RawQuery); err == nil {
		found("query", query)
	}
	ctx.EachHeader(func(name, value string) {
		if !strings.HasSuffix(strings.ToLower(name), "authorization") {
			found("header."+name, value)
		}
	})
	return refuseFields("the request holds a credential where none belongs", faulty)
}

// withoutCredentials is the problem for whoever reads it: what it quotes of a
// request may be a credential.
func withoutCredentials(p *hubv1.Problem) *hubv1.Problem {
	out := *p
	out.Detail, out.Remedy = secret.Redact(p.Detail), secret.Redact(p.Remedy)
	out.Errors = slices.Clone(p.Errors)
	for i, field := range out.Errors {
		out.Errors[i] = hubv1.FieldError{Location: secret.Redact(field.Location), Message: secret.Redact(field.Message)}
	}
	return &out
}
