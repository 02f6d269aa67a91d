package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/token"
	"cloop.dev/cloop/schemas"
)

// with are copies of a body's sample with each text of it, and each key that the
// requester chooses, replaced by the text.
func with(value any, text string) (out []any) {
	switch value := value.(type) {
	case string:
		return []any{text}
	case []any:
		for i := range value {
			for _, item := range with(value[i], text) {
				changed := append([]any(nil), value...)
				changed[i] = item
				out = append(out, changed)
			}
		}
	case map[string]any:
		for key := range value {
			for _, item := range with(value[key], text) {
				changed := maps.Clone(value)
				changed[key] = item
				out = append(out, changed)
			}
		}
		if _, free := value["key"]; free && len(value) == 1 {
			out = append(out, map[string]any{text: "value"})
		}
	}
	return out
}

// Somebody who puts a credential where none belongs, in whatever part of
// whatever request, finds it neither in the answer nor kept, nor in the log.
func TestAMisplacedCredentialIsNeitherKeptNorShown(t *testing.T) {
	validator, err := schemas.NewValidator()
	check(t, err)
	var log bytes.Buffer
	h := newHub(t, validator, func(o *api.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	tried := 0
	for _, op := range operations(t, h.handler) {
		canary := token.New(token.User).Reveal()
		send := func(in request) {
			tried++
			in.method, in.contentType = op.method, op.contentType
			answer := h.send(in)
			h.judge(in, answer)
			if text := answer.Body.String() + fmt.Sprint(answer.Header()); strings.Contains(text, canary) {
				t.Errorf("%s %s with %.200s answers %.300s", in.method, in.target, in.body, text)
			}
		}
		sample := encoded(op.sample)
		for _, text := range []string{canary, "because of " + canary} {
			send(request{target: h.target(op, text), body: sample})
			for _, name := range append([]string{"token"}, op.queries...) {
				send(request{target: h.target(op, "") + "?" + url.Values{name: {text}}.Encode(), body: sample})
			}
			for _, name := range append([]string{"X-Request-Id", "User-Agent"}, op.headers...) {
				send(request{target: h.target(op, ""), body: sample, header: map[string]string{name: text}})
			}
			if op.contentType != "application/json" {
				continue // what a run prints is its own
			}
			for _, body := range with(op.sample, text) {
				send(request{target: h.target(op, ""), body: encoded(body)})
				send(request{target: h.target(op, ""), body: []byte(strings.ReplaceAll(string(encoded(body)), "cloop_", `\u0063loop\u005f`))})
			}
		}
		files, err := filepath.Glob(filepath.Join(h.dir, "hub.db*"))
		check(t, err)
		for _, file := range files {
			data, err := os.ReadFile(file)
			check(t, err)
			if bytes.Contains(data, []byte(canary)) {
				t.Errorf("what %s was sent is in %s", op.id, filepath.Base(file))
			}
		}
		if strings.Contains(log.String(), canary) {
			t.Errorf("what %s was sent is logged", op.id)
		}
	}
	if tried < 500 {
		t.Errorf("only %d requests were made", tried)
	}
}
