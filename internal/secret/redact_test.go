package secret_test

import (
	"reflect"
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

		// No password.
		"ssh://git@git.example.com/x":                 "ssh://git@git.example.com/x",
		"https://h:8443/a@b":                          "https://h:8443/a@b",
		"https://h/x?to=a@b:c":                        "https://h/x?to=a@b:c",
		"registry:5000/runner@sha256:0123":            "registry:5000/runner@sha256:0123",
		"mail alice@example.com or group:ml@x":        "mail alice@example.com or group:ml@x",
		`"https://hub" and user:pw@host, "a@b" if so`: `"https://hub" and user:pw@host, "a@b" if so`,
	} {
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
