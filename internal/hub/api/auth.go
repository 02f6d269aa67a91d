package api

import (
	"context"
	"errors"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
)

const (
	apiBase = "/api/v1"
	// peopleBase is where everything for people is.
	peopleBase = "/api/"
	poolBase   = "/pool/v1"
	runnerBase = "/runner/v1"
	enrollPath = runnerBase + "/enroll"
)

type identity struct{}

// actorOf is who a request of /api/v1 comes from.
func actorOf(ctx context.Context) string {
	actor, _ := ctx.Value(identity{}).(string)
	return actor
}

// principalsOf are the names by which an audience may list the actor.
func principalsOf(ctx context.Context) []string { return []string{actorOf(ctx), store.RoleAdmin} }

func credentialOf(ctx context.Context) store.Credential {
	c, _ := ctx.Value(identity{}).(store.Credential)
	return c
}

func runnerOf(ctx context.Context) store.Runner {
	r, _ := ctx.Value(identity{}).(store.Runner)
	return r
}

// authFor is the middleware that proves who asks, by base path; nil where the
// request itself carries the proof.
func (s *server) authFor(path string) func(huma.Context, func(huma.Context)) {
	var prove func(context.Context, string) (any, error)
	switch {
	case path == enrollPath:
		return nil
	case strings.HasPrefix(path, peopleBase):
		prove = func(ctx context.Context, text string) (any, error) { return s.Store.AuthAdmin(ctx, text) }
	case strings.HasPrefix(path, poolBase):
		prove = func(ctx context.Context, text string) (any, error) { return s.Store.AuthPool(ctx, text) }
	default:
		prove = func(ctx context.Context, text string) (any, error) { return s.Store.AuthRunner(ctx, text) }
	}
	return func(ctx huma.Context, next func(huma.Context)) {
		scheme, text, _ := strings.Cut(ctx.Header("Authorization"), " ")
		var who any
		err := error(problem.New(hubv1.CodeUnauthenticated, "the request has no bearer token"))
		if strings.EqualFold(scheme, "Bearer") && text != "" {
			who, err = prove(ctx.Context(), strings.TrimSpace(text))
		}
		if err != nil {
			_, w := humago.Unwrap(ctx)
			writeProblem(w, s.problemOf(ctx.Context(), err))
			return
		}
		next(huma.WithValue(ctx, identity{}, who))
	}
}

func asProblem(err error) (*hubv1.Problem, bool) {
	var p *hubv1.Problem
	ok := errors.As(err, &p)
	return p, ok
}
