package api

import (
	"context"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

const (
	keyHeader = "Idempotency-Key"
	// maxKey bounds a key, in characters.
	maxKey = 128
)

// takesKey says whether an operation takes an Idempotency-Key: every one by which
// people may change something does. Machines' calls have what tells a repetition
// in their bodies and paths.
func takesKey(o huma.Operation) bool { return ofUsers(o.Path) && o.Method != http.MethodGet }

// describeKey adds the key to an operation's description.
func describeKey(o *huma.Operation) {
	if !takesKey(*o) {
		return
	}
	most := maxKey
	about := "For a day the same request with the same key changes nothing more and is answered with the record as it is now, without a secret that was shown; another request with it is a conflict."
	o.Parameters = append(o.Parameters, &huma.Param{
		Name: keyHeader, In: "header", Description: about,
		Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &most, Description: about},
	})
}

type requestKey struct{}

// keyIn reads the key of a request that takes one.
func keyIn(ctx huma.Context) (store.Key, error) {
	if !takesKey(*ctx.Operation()) {
		return "", nil
	}
	key := ctx.Header(keyHeader)
	if utf8.RuneCountInString(key) > maxKey {
		return "", refuseFields("the request's key is not valid", []hubv1.FieldError{{Location: "header." + keyHeader, Message: "must have at most " + strconv.Itoa(maxKey) + " characters"}})
	}
	return store.Key(key), reported("the request's key is not valid", [2]string{"header." + keyHeader, key})
}

// keyOf is the key of the request that is served under the context; empty for none.
func keyOf(ctx context.Context) store.Key {
	key, _ := ctx.Value(requestKey{}).(store.Key)
	return key
}

// asked is what a repetition of a request agrees in. If-Match is not in it: a
// repetition may have looked again.
type asked struct {
	Operation string
	Input     any
}

// known makes what is changed for a request known by its key.
func known(ctx context.Context, o huma.Operation, input any) context.Context {
	key := keyOf(ctx)
	if key == "" {
		return ctx
	}
	return store.WithKey(ctx, actorOf(ctx), key, asked{o.OperationID, input})
}
