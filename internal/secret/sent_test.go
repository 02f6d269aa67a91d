package secret_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/secret"
)

func TestSent(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://ann:pr0xied@proxy:3128")
	const key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\nAAAABG5vbmUAAAAEbm9u\n-----END OPENSSH PRIVATE KEY-----\n"
	sent := secret.SentTo(secret.New("tok/en ä"), secret.New(key)).WithBasic("robot", secret.New("hunter2")).WithBasic("deploy-pat", secret.New("x-oauth-basic"))
	for text, want := range map[string]string{
		"":                               "",
		"nothing of it":                  "nothing of it",
		"robot:hunter2":                  "robot:[redacted]",
		"tok/en ä, tok%2Fen+%C3%A4":      "[redacted], [redacted]",
		"one line AAAABG5vbmUAAAAEbm9u!": "one line [redacted]!",
		"as deploy-pat":                  "as [redacted]",
		"over pr0xied":                   "over [redacted]",
		"it ends with hunt":              "it ends with [redacted]",
		"x " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2")): "x [redacted]",
		"x " + base64.StdEncoding.EncodeToString([]byte("ann:pr0xied")):   "x [redacted]",
		"cloop_run1_aB3 by its looks":                                     "[redacted] by its looks",
	} {
		got := sent.Redact(text)
		if got != want || sent.Redact(got) != got {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if err := sent.Error(fmt.Errorf("%s: %w", text, io.EOF)); strings.TrimSuffix(err.Error(), ": EOF") != strings.Replace(want, "with [redacted]", "with hunt", 1) || !errors.Is(err, io.EOF) {
			t.Errorf("%q as an error: %q", text, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %s", sent, struct{ s secret.Sent }{sent}, sent, sent); strings.Contains(text, "hunter2") {
		t.Errorf("it is printed: %s", text)
	}
	if got := sent.Line("no\n\x1b[2J" + strings.Repeat("ä ", 400)); len(got) > 310 || strings.ContainsAny(got, "\n\x1b") {
		t.Errorf("%q is no line", got)
	}
	if got := (secret.Sent{}).Redact("cloop_run1_aB3 hunter2"); got != "[redacted] hunter2" {
		t.Errorf("the zero value: %q", got)
	}
	if sent.Error(nil) != nil {
		t.Error("there is an error of nothing")
	}
}
