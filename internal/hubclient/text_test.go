package hubclient_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

func TestTextThatIsNotUTF8IsRefusedBeforeItIsSent(t *testing.T) {
	sent := 0
	c := client(t, fake(t, func(w http.ResponseWriter, _ *http.Request) {
		sent++
		w.WriteHeader(http.StatusNoContent)
	}), nil)
	bad := "a\xff"
	for location, act := range map[string]func(context.Context) error{
		"body.command[1]": func(ctx context.Context) error {
			_, err := c.StartRun(ctx, hubv1.StartRunRequest{Project: "p", Command: []string{"echo", bad}}, "")
			return err
		},
		"body.remote": func(ctx context.Context) error {
			_, err := c.CreateProject(ctx, hubv1.CreateProjectRequest{Name: "p", Remote: "https://h/" + bad})
			return err
		},
		"body.reason": func(ctx context.Context) error {
			_, err := c.Cordon(ctx, "gpu", bad)
			return err
		},
		"body.labels.k": func(ctx context.Context) error {
			_, err := c.CreatePool(ctx, hubv1.CreatePoolRequest{Name: "p", PoolDefinition: hubv1.PoolDefinition{Labels: map[string]string{"k": bad}}})
			return err
		},
		"body.labels": func(ctx context.Context) error {
			labels := map[string]string{bad: "v"}
			_, err := c.UpdatePool(ctx, "gpu", "", hubv1.UpdatePoolRequest{Labels: &labels})
			return err
		},
		"body.owner": func(ctx context.Context) error {
			_, err := c.UpdatePool(ctx, "gpu", "", hubv1.UpdatePoolRequest{Owner: &bad})
			return err
		},
	} {
		err := act(context.Background())
		var p *hubv1.Problem
		if !errors.As(err, &p) || p.Code != hubv1.CodeInvalid || len(p.Errors) != 1 || p.Errors[0].Location != location || errors.Is(err, hubclient.ErrUnavailable) {
			t.Errorf("%s: %v", location, err)
		}
	}
	if sent > 0 {
		t.Errorf("%d requests were sent", sent)
	}
	// What a machine reports must arrive, as well as it can be said.
	check(t, c.SetRefusal(context.Background(), hubv1.Refusal{Message: bad}))
}
