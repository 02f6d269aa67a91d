package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/secret"
)

func TestACredentialIsNeverPrinted(t *testing.T) {
	const canary = "cloop_pool1_canary"
	s := secret.New(canary)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("mint", "credential", s, "holder", struct{ C secret.String }{s})
	encoded, err := json.Marshal(map[string]any{"credential": s})
	if err != nil {
		t.Fatal(err)
	}
	printed := []string{log.String(), string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, struct{ C secret.String }{s}), fmt.Sprintf(verb, struct{ c secret.String }{s}))
	}
	for _, text := range printed {
		if strings.Contains(text, canary) || strings.Contains(text, fmt.Sprintf("%x", canary)) {
			t.Errorf("the credential is in %q", text)
		}
	}
	if s.Reveal() != canary {
		t.Errorf("Reveal() = %q", s.Reveal())
	}
}

func TestEqualComparesWhatIsHeld(t *testing.T) {
	for _, c := range []struct {
		a, b secret.String
		want bool
	}{
		{secret.New("one"), secret.New("one"), true},
		{secret.New("one"), secret.New("two"), false},
		{secret.New("one"), secret.New("on"), false},
		{secret.String{}, secret.New(""), true},
		{secret.String{}, secret.New("one"), false},
	} {
		if got := c.a.Equal(c.b); got != c.want {
			t.Errorf("%q equals %q: %v", c.a.Reveal(), c.b.Reveal(), got)
		}
	}
}
