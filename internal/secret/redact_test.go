package secret_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/secret"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"minted cloop_run1_aB3-_x for you": "minted [redacted] for you",

		// The API server's words.
		`Invalid value: "https://user:pw@hub.example.com": must not contain user information`: `Invalid value: "https://user:[redacted]@hub.example.com": must not contain user information`,
		`Invalid value: "https://u:a\"b@hub/x": no`:                                           `Invalid value: "https://u:[redacted]@hub/x": no`,

		"clone https://user:p@ss@git.example.com/x.git: no": "clone https://user:[redacted]@git.example.com/x.git: no",
		"https://user:p/a?s#s@git.example.com/x":            "https://user:[redacted]@git.example.com/x",
		"https://:pw@h":                                     "https://:[redacted]@h",
		"https://ghp_token@github.com/x":                    "https://[redacted]@github.com/x",
		"HTTPS://t@h and ssh://u:pw@h:22/x":                 "HTTPS://[redacted]@h and ssh://u:[redacted]@h:22/x",
		"postgres://cloop:pw@db/cloop?sslmode=disable":      "postgres://cloop:[redacted]@db/cloop?sslmode=disable",

		// Parameters.
		"https://h/x?token=abc&a=b":                              "https://h/x?token=[redacted]&a=b",
		"https://h/x?a=b&access_token=abc#top":                   "https://h/x?a=b&access_token=[redacted]#top",
		"https://h/x?Password=a%20b;key=c":                       "https://h/x?Password=[redacted];key=[redacted]",
		"https://h/x?X-Amz-Signature=ab&X-Amz-Security-Token=cd": "https://h/x?X-Amz-Signature=[redacted]&X-Amz-Security-Token=[redacted]",
		"https://h/x?sv=1&sig=a%2Bb":                             "https://h/x?sv=1&sig=[redacted]",
		"https://h/x#access_token=abc":                           "https://h/x#access_token=[redacted]",
		"https://h/x?client_secret=a&apikey=b&api_key=c":         "https://h/x?client_secret=[redacted]&apikey=[redacted]&api_key=[redacted]",
		"https://h/x?auth[token]=abc":                            "https://h/x?auth[token]=[redacted]",
		"https://u:pw@h/x?token=a@b":                             "https://u:[redacted]@h/x?token=[redacted]",
		`get "https://h/x?token=abc": no`:                        `get "https://h/x?token=[redacted]": no`,

		// Escaped, and escaped again.
		"GET /x/%63loop_run1_aB3-%5fx?y": "GET /x/[redacted]?y",
		"GET /x/%2563loop%255Frun1_aB3":  "GET /x/[redacted]",
		"cloop_run1_aB3%41bcd and more":  "[redacted] and more",
		"at %67hp_0123456789abcdefghij":  "at [redacted]",
		"100% of %2525 and 50%25":        "100% of %2525 and 50%25",

		// What HTTP's authentication sends.
		"go away Basic cm9ib3Q6aHVudGVyMg==: no":               "go away Basic [redacted]: no",
		"go away basic cm9ib3Q6aHVudGVyMg":                     "go away basic [redacted]",
		"Bearer s3cretly":                                      "Bearer [redacted]",
		"Authorization: Bearer secretly":                       "Authorization: [redacted]",
		"authorization: secretly":                              "authorization: [redacted]",
		"Proxy-Authorization: Negotiate YII=, and":             "Proxy-Authorization: [redacted], and",
		`{"Authorization":"Basic cm9ib3Q6aHVudGVyMg=="}`:       `{"Authorization":"[redacted]"}`,
		`{\"Authorization\": [\"Token secretly\"]}`:            `{\"Authorization\": [\"[redacted]\"]}`,
		"map[Accept:[*/*] Authorization:[Bearer secretly] X:]": "map[Accept:[*/*] Authorization:[[redacted]] X:]",
		"PRIVATE-TOKEN: secretly":                              "PRIVATE-TOKEN: [redacted]",
		"X-Api-Key=secretly":                                   "X-Api-Key=[redacted]",

		// No password.
		"authorization failed: give a user name and password, or a bearer token": "authorization failed: give a user name and password, or a bearer token",
		"a bearer credential, basic authentication, Basic credentials":           "a bearer credential, basic authentication, Basic credentials",
		`WWW-Authenticate: Bearer realm="x", Basic realm="GitLab"`:               `WWW-Authenticate: Bearer realm="x", Basic realm="GitLab"`,
		"apiVersion: rbac.authorization.k8s.io/v1":                               "apiVersion: rbac.authorization.k8s.io/v1",
		"https://h/x?keyring=a&monkey=b&tokens=&page=2":                          "https://h/x?keyring=a&monkey=b&tokens=&page=2",
		"say ?token=abc to nobody":                                               "say ?token=abc to nobody",
		"ssh://git@git.example.com/x":                                            "ssh://git@git.example.com/x",
		"https://h:8443/a@b":                                                     "https://h:8443/a@b",
		"https://h/x?to=a@b:c":                                                   "https://h/x?to=a@b:c",
		"registry:5000/runner@sha256:0123":                                       "registry:5000/runner@sha256:0123",
		"mail alice@example.com or group:ml@x":                                   "mail alice@example.com or group:ml@x",
		`"https://hub" and user:pw@host, "a@b" if so`:                            `"https://hub" and user:pw@host, "a@b" if so`,
	} {
		if again := secret.Redact(want); again != want {
			t.Errorf("%q: %q, once more", want, again)
		}
		if got := secret.Redact(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
		if again := secret.Redact(secret.Redact(text)); again != want {
			t.Errorf("%q becomes %q the second time", text, again)
		}
	}
}

func TestRedactValue(t *testing.T) {
	value := map[string]any{"spec": map[string]any{"hubURL": "https://u:pw@h", "maxRunners": int64(3), "list": []any{"https://t@h", true, nil}}}
	want := map[string]any{"spec": map[string]any{"hubURL": "https://u:[redacted]@h", "maxRunners": int64(3), "list": []any{"https://[redacted]@h", true, nil}}}
	if got := secret.RedactValue(value); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if value["spec"].(map[string]any)["hubURL"] != "https://u:pw@h" {
		t.Error("what was given has changed")
	}
}

func TestNamed(t *testing.T) {
	for name, want := range map[string]bool{
		"token": true, "password": true, "DB_PASSWD": true, "example.com/api-key": true, "clientSecret": true, "count/secrets": false, "credentials": true,
		"team": false, "key": false, "tokenized": false, "passwordPolicy": false, "": false,
	} {
		if got := secret.Named(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

func TestHeldIn(t *testing.T) {
	credential := "cloop_usr1_" + strings.Repeat("a", 49)
	value := map[string]any{
		"a": map[string]string{"b": "x" + credential, "c": "cloop_usr1_"}, "d": []string{"", credential[:40]},
		"e": map[string]any{credential: credential}, "f": 1, "g": "https://a:b@c", "h": "https://c/%2563" + credential[1:],
	}
	if got, want := secret.HeldIn("spec", value), []string{"spec.a.b", "spec.d[1]", "spec.e", "spec.h"}; !slices.Equal(got, want) {
		t.Errorf("held in %v, want %v", got, want)
	}
}

func TestALogHoldsNoCredential(t *testing.T) {
	var b strings.Builder
	log := slog.New(slog.NewJSONHandler(secret.Writer{To: &b}, nil))
	log.Error("it fails", "error", errors.New(`get "https://bot:hunter2@h/x?token=hunter2": refused cloop_ses1_abcdefgh`), "url", "https://h")
	var line map[string]any
	if err := json.Unmarshal([]byte(b.String()), &line); err != nil || line["url"] != "https://h" {
		t.Fatalf("the line is %s: %v", &b, err)
	}
	if got, want := line["error"], `get "https://bot:[redacted]@h/x?token=[redacted]": refused [redacted]`; got != want {
		t.Errorf("the error is %s, want %s", got, want)
	}
}
