package hook

import (
	"net/http"
	"time"

	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/secret"
)

// PushedRef is what is read of a push event.
var PushedRef = pushedRef

// Genuine says whether an event proves that its sender knows the secret.
func Genuine(kind forge.Kind, text string, header http.Header, body []byte, now time.Time) (bool, error) {
	key, err := NewSecret(kind, secret.New(text))
	if err != nil {
		return false, err
	}
	v := newVerifier(kind, key, header, now)
	_, _ = v.Write(body)
	return v.genuine(), nil
}
