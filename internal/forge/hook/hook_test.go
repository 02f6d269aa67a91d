package hook_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/hook"
)

const webhookSecret = "0123456789abcdef0123456789abcdef"

func TestTheRefOfAPush(t *testing.T) {
	long := strings.Repeat("a", 1000)
	form := "payload=" + url.QueryEscape(`{"ref":"refs/heads/ä","commits":[]}`)
	for _, c := range []struct{ kind, data, want string }{
		{"application/json", `{"ref":"refs/heads/main","commits":[{"id":"` + long, "refs/heads/main"},
		{"application/json; charset=utf-8", `{"object_kind":"push","project":{"ref":"x"},"ref":"refs/tags/v1"}`, "refs/tags/v1"},
		{"application/x-www-form-urlencoded", form, "refs/heads/ä"},
		{"application/x-www-form-urlencoded", form + "&more=1", "refs/heads/ä"},
		{"application/x-www-form-urlencoded", form[:len(form)-1], "refs/heads/ä"},
		{"application/x-www-form-urlencoded", "payload=%zz", ""},
		{"application/json", `{"commits":[{"ref":"refs/heads/main"}]`, ""},
		{"application/json", `{"ref":1}`, ""},
		{"application/json", `["ref","refs/heads/main"]`, ""},
		{"application/json", `{"ref"`, ""},
		{"application/json", `{"a":` + strings.Repeat("[", 60_000), ""},
		{"", "", ""},
	} {
		if got := hook.PushedRef(c.kind, []byte(c.data)); got != c.want {
			t.Errorf("%s %.60s: %q, want %q", c.kind, c.data, got, c.want)
		}
	}
}

func FuzzPushedRef(f *testing.F) {
	f.Add("application/json", []byte(`{"ref":"refs/heads/main","before":"x"}`))
	f.Add("application/x-www-form-urlencoded", []byte("payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D"))
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		ref := hook.PushedRef(kind, data)
		var whole map[string]json.RawMessage
		if ref == "" || json.Unmarshal(data, &whole) != nil || strings.Count(string(data), `ref`) != 1 {
			return
		}
		var want string
		if json.Unmarshal(whole["ref"], &want) != nil || want != ref {
			t.Errorf("%q reads %q", data, ref)
		}
	})
}

func FuzzGenuine(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	for _, kind := range forge.Kinds() {
		f.Add(kind, webhookSecret, "sha256=00", "", "", []byte("{}"))
		f.Add(kind, "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "v1,AAAA", "one", "1700000000", []byte("{}"))
	}
	f.Fuzz(func(t *testing.T, kind, text, signature, id, stamp string, body []byte) {
		header := http.Header{}
		for _, name := range []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Gitlab-Token", "Webhook-Signature"} {
			header.Set(name, signature)
		}
		header.Set("Webhook-Id", id)
		header.Set("Webhook-Timestamp", stamp)
		genuine, err := hook.Genuine(forge.Kind(kind), text, header, body, now)
		// Nobody guesses an HMAC; GitLab's token is the secret itself.
		if err == nil && genuine && (kind != string(forge.GitLab) || signature != text) {
			t.Errorf("%s takes %q of %q for genuine", kind, signature, body)
		}
	})
}
