package token_test

import (
	"errors"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/hub/token"
)

func TestATokenIsOfItsKindOnly(t *testing.T) {
	kinds := []token.Kind{token.Pool, token.Runner, token.Session, token.Admin}
	for _, made := range kinds {
		text := token.New(made).Reveal()
		for _, asked := range kinds {
			err := token.Check(asked, text)
			if (made == asked) != (err == nil) {
				t.Errorf("Check(%s) of a %s token: %v", asked, made, err)
			}
			if err != nil && !errors.Is(err, token.ErrMalformed) {
				t.Errorf("Check(%s): %v is not ErrMalformed", asked, err)
			}
		}
	}
}

func TestAChangedTokenIsMalformed(t *testing.T) {
	text := token.New(token.Runner).Reveal()
	for i := range text {
		changed := text[:i] + flip(text[i]) + text[i+1:]
		if token.Check(token.Runner, changed) == nil {
			t.Errorf("changed at %d, still accepted", i)
		}
	}
	for _, bad := range []string{"", text[1:], text + "x", strings.ToUpper(text), text[:len(text)-1]} {
		if token.Check(token.Runner, bad) == nil {
			t.Errorf("accepted %d characters that are no token", len(bad))
		}
	}
}

func TestTokensDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		h := token.Hash(token.New(token.Pool).Reveal())
		if seen[h] {
			t.Fatal("two tokens have one hash")
		}
		seen[h] = true
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("cloop_run1_")
	f.Add(token.New(token.Runner).Reveal())
	f.Fuzz(func(t *testing.T, text string) {
		if token.Check(token.Runner, text) == nil && !strings.HasPrefix(text, string(token.Runner)) {
			t.Errorf("accepted %q", text)
		}
	})
}

func flip(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}
