package hook

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/secret"
)

const (
	// MaxEvent bounds the body of an event, in bytes: GitHub sends up to 25 MB. It is
	// hashed as it comes, and of it no more than maxKept is kept.
	MaxEvent = 25 << 20
	// maxKept is what is looked at of an event; the ref stands at its beginning.
	maxKept = 64 << 10
	// timeout is how long a body may take to arrive.
	timeout = 30 * time.Second
	// minSecret is the least length of a secret, in bytes: anybody may try to guess it.
	minSecret = 16
)

// Event is what is known of a request to a webhook.
type Event struct {
	// Genuine says that who sent it knows the secret; of another event nothing else
	// is known.
	Genuine bool
	// Identities tell the event from others: whoever sends it again can change
	// one of them at most, and one that is known is enough.
	Identities []string
	// kind is "push", "ping", or something else.
	kind string
	// ref is what was pushed to; empty where that is not known.
	ref string
}

// Ignored says why nobody has to look for an event's sake; empty where it is a push
// that may matter. who follows the ref, such as refs/heads/main, or any if it is empty.
func (e Event) Ignored(who, ref string) string {
	switch {
	case e.kind == "ping":
		return who + " takes push events here"
	case e.kind != "push":
		return "only push events matter"
	case e.ref != "" && ref != "" && e.ref != ref:
		return who + " follows " + ref
	}
	return ""
}

// Receive reads an event and judges its signature. Its error is an
// *http.MaxBytesError for a body of more than MaxEvent bytes, or one of reading.
func Receive(w http.ResponseWriter, r *http.Request, kind forge.Kind, key Secret, now time.Time) (Event, error) {
	// Where it cannot be set the server's own timeouts hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	check := newVerifier(kind, key, r.Header, now)
	kept := &prefix{most: maxKept}
	if _, err := io.Copy(io.MultiWriter(check, kept), http.MaxBytesReader(w, r.Body, MaxEvent)); err != nil {
		return Event{}, err
	}
	if !check.genuine() {
		return Event{}, nil
	}
	return Event{
		Genuine: true, Identities: check.identities(), kind: eventKind(kind, r.Header),
		ref: pushedRef(r.Header.Get("Content-Type"), kept.data),
	}, nil
}

// prefix keeps the beginning of what is written to it.
type prefix struct {
	most int
	data []byte
}

// Write is io.Writer's.
func (p *prefix) Write(data []byte) (int, error) {
	p.data = append(p.data, data[:min(len(data), p.most-len(p.data))]...)
	return len(data), nil
}

// signingPrefix begins GitLab's signing tokens, as the Standard Webhooks
// specification has them; any other secret of GitLab is sent as it is.
const signingPrefix = "whsec_"

// Secret is what proves an event.
type Secret struct {
	// key is that of the HMAC, or the token itself.
	key []byte
	// token says that the forge sends the secret itself.
	token bool
}

// Stranger is a secret that nobody knows: an event for somebody who is not there takes
// as long to refuse as any other.
func Stranger() Secret {
	var unknown [sha256.Size]byte
	_, _ = rand.Read(unknown[:]) // it does not fail
	return Secret{key: unknown[:]}
}

// NewSecret is the secret that a forge of a kind was given. One that is too short is an
// error.
func NewSecret(kind forge.Kind, text secret.String) (Secret, error) {
	plain := text.Reveal()
	if len(plain) < minSecret {
		return Secret{}, fmt.Errorf("the webhook's secret is shorter than %d characters: make a longer one, for instance with `openssl rand -hex 32`", minSecret)
	}
	if kind != forge.GitLab {
		return Secret{key: []byte(plain)}, nil
	}
	encoded, signing := strings.CutPrefix(plain, signingPrefix)
	if !signing {
		return Secret{key: []byte(plain), token: true}, nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) < minSecret {
		return Secret{}, errors.New("the webhook's signing token is not whsec_ and base64 of its key: copy it from GitLab again")
	}
	return Secret{key: key}, nil
}

// signatureAge is how far the time of a signed event may be from the hub's.
const signatureAge = 5 * time.Minute

// verifier judges an event while its body is written to it.
type verifier struct {
	hash.Hash
	kind   forge.Kind
	secret Secret
	header http.Header
	// fresh says that the time of the event is not far off, where it has one.
	fresh bool
}

func newVerifier(kind forge.Kind, key Secret, header http.Header, now time.Time) *verifier {
	v := &verifier{Hash: hmac.New(sha256.New, key.key), kind: kind, secret: key, header: header, fresh: true}
	if kind == forge.GitLab && !key.token {
		stamp := header.Get("webhook-timestamp")
		seconds, err := strconv.ParseInt(stamp, 10, 64)
		v.fresh = err == nil && time.Unix(seconds, 0).Sub(now).Abs() <= signatureAge
		// A hash takes everything.
		_, _ = v.Write([]byte(header.Get("webhook-id") + "." + stamp + "."))
	}
	return v
}

// genuine says whether who sent the event knows the secret.
func (v *verifier) genuine() bool {
	sum := v.Sum(nil)
	switch v.kind {
	case forge.GitHub:
		return equalHex(strings.TrimPrefix(v.header.Get("X-Hub-Signature-256"), "sha256="), sum)
	case forge.Gitea:
		return equalHex(v.header.Get("X-Gitea-Signature"), sum)
	case forge.GitLab:
		if v.secret.token {
			// Hashed, so that the length of the secret does not show.
			sent, ours := sha256.Sum256([]byte(v.header.Get("X-Gitlab-Token"))), sha256.Sum256(v.secret.key)
			return subtle.ConstantTimeCompare(sent[:], ours[:]) == 1
		}
		good := 0
		for signature := range strings.FieldsSeq(v.header.Get("webhook-signature")) {
			sent, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signature, "v1,"))
			if err == nil && strings.HasPrefix(signature, "v1,") {
				good |= subtle.ConstantTimeCompare(sent, sum)
			}
		}
		return good == 1 && v.fresh
	}
	return false
}

func equalHex(text string, sum []byte) bool {
	sent, err := hex.DecodeString(text)
	return err == nil && hmac.Equal(sent, sum)
}

// identities of the event. The delivery's name stands in a header that GitHub
// and Gitea do not sign, so the signature itself, which is the body's, is one
// too. GitLab's token is in every request: who has it can make up any event.
func (v *verifier) identities() []string {
	var out []string
	for _, name := range map[forge.Kind][]string{
		forge.GitHub: {"X-GitHub-Delivery"}, forge.Gitea: {"X-Gitea-Delivery"}, forge.GitLab: {"webhook-id", "Idempotency-Key"},
	}[v.kind] {
		if value := v.header.Get(name); value != "" {
			out = append(out, "delivery "+value)
			break
		}
	}
	if !v.secret.token {
		out = append(out, "signature "+string(v.Sum(nil)))
	}
	return out
}

// eventKind is "push", "ping" or something else.
func eventKind(kind forge.Kind, header http.Header) string {
	switch kind {
	case forge.GitHub:
		return header.Get("X-GitHub-Event")
	case forge.Gitea:
		return header.Get("X-Gitea-Event")
	}
	switch header.Get("X-Gitlab-Event") {
	case "Push Hook", "Tag Push Hook":
		return "push"
	}
	return "other"
}

// pushedRef is the ref of a push event, of which the beginning is enough; empty
// where it is not found.
func pushedRef(contentType string, data []byte) string {
	if media, _, err := mime.ParseMediaType(contentType); err == nil && media == "application/x-www-form-urlencoded" {
		encoded, _ := bytes.CutPrefix(data, []byte("payload="))
		encoded, _, _ = bytes.Cut(encoded, []byte("&"))
		// What was cut off in the middle of an escape ends before it.
		if at := bytes.LastIndexByte(encoded, '%'); at >= 0 && at > len(encoded)-3 {
			encoded = encoded[:at]
		}
		plain, err := url.QueryUnescape(string(encoded))
		if err != nil {
			return ""
		}
		data = []byte(plain)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return ""
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return ""
		}
		if name == "ref" {
			var ref string
			if json.Unmarshal(value, &ref) != nil {
				return ""
			}
			return ref
		}
	}
	return ""
}
