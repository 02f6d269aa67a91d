package api

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
)

const (
	// peopleBase is where everything for people is.
	peopleBase = "/api/"
	apiBase    = "/api/v1"
	poolBase   = "/pool/v1"
	runnerBase = "/runner/v1"
	enrollPath = runnerBase + "/enroll"
)

// ofUsers says whether a path is for people and CI, who prove themselves with a
// user's token and need a permission.
func ofUsers(path string) bool { return strings.HasPrefix(path, peopleBase) }

type identity struct{}

// callerOf is the user that a request of /api/v1 comes from.
func callerOf(ctx context.Context) store.Caller {
	caller, _ := ctx.Value(identity{}).(store.Caller)
	return caller
}

// actorOf is callerOf as the audit trail names it.
func actorOf(ctx context.Context) string { return callerOf(ctx).Actor() }

func credentialOf(ctx context.Context) store.Credential {
	c, _ := ctx.Value(identity{}).(store.Credential)
	return c
}

func runnerOf(ctx context.Context) store.Runner {
	r, _ := ctx.Value(identity{}).(store.Runner)
	return r
}

// authFor is the middleware that proves who asks, by base path, holds it to its
// rate and, where it is a user, to what it may do.
func (s *server) authFor(path string) func(huma.Context, func(huma.Context)) {
	if path == enrollPath {
		// The request itself carries the proof.
		return func(ctx huma.Context, next func(huma.Context)) {
			if err := wellFormed(ctx); err != nil {
				s.refuse(ctx, err)
				return
			}
			next(huma.WithValue(ctx, address{}, addressOf(ctx.RemoteAddr())))
		}
	}
	prove := s.proveRunner
	switch {
	case ofUsers(path):
		prove = s.proveUser
	case strings.HasPrefix(path, poolBase):
		prove = s.provePool
	}
	return func(ctx huma.Context, next func(huma.Context)) {
		admitted, err := s.authenticate(ctx, prove)
		if err == nil {
			err = wellFormed(ctx)
		}
		if err != nil {
			s.refuse(ctx, err)
			return
		}
		next(admitted)
	}
}

// wellFormed refuses a request for what is beside its body.
func wellFormed(ctx huma.Context) error {
	if err := misplaced(ctx); err != nil {
		return err
	}
	return strange(ctx)
}

func (s *server) refuse(ctx huma.Context, err error) {
	_, w := humago.Unwrap(ctx)
	writeProblem(w, s.problemOf(ctx.Context(), err))
}

// proof is who asks, by what name its rate is counted, and what bounds it.
type proof struct {
	who  any
	key  string
	rate *limiter
}

func (s *server) authenticate(ctx huma.Context, prove func(context.Context, string) (proof, error)) (huma.Context, error) {
	scheme, text, _ := strings.Cut(ctx.Header("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || text == "" {
		return nil, problem.New(hubv1.CodeUnauthenticated, "the request has no bearer token")
	}
	found, err := prove(ctx.Context(), strings.TrimSpace(text))
	if err != nil {
		return nil, s.failed(addressOf(ctx.RemoteAddr()), err)
	}
	if wait, ok := found.rate.take(found.key); !ok {
		return nil, tooMany(wait, "the credential is used more often than the hub serves it")
	}
	admitted := huma.WithValue(huma.WithValue(ctx, identity{}, found.who), holder{}, found.key)
	caller, user := found.who.(store.Caller)
	if !user {
		return admitted, nil
	}
	if err := s.guard(ctx, caller); err != nil {
		return nil, err
	}
	key, err := keyIn(ctx)
	if err != nil {
		return nil, err
	}
	admitted = huma.WithValue(admitted, requestKey{}, key)
	admitted = huma.WithContext(admitted, store.WithCaller(admitted.Context(), caller))
	return huma.WithValue(admitted, again{}, func(now store.Caller) error { return s.guard(ctx, now) }), nil
}

func (s *server) proveUser(ctx context.Context, text string) (proof, error) {
	caller, err := s.Store.AuthUser(ctx, text)
	return proof{caller, caller.Token.ID, s.users}, err
}

func (s *server) provePool(ctx context.Context, text string) (proof, error) {
	c, err := s.Store.AuthPool(ctx, text)
	return proof{c, c.ID, s.machines}, err
}

func (s *server) proveRunner(ctx context.Context, text string) (proof, error) {
	r, err := s.Store.AuthRunner(ctx, text)
	return proof{r, r.ID, s.machines}, err
}

type address struct{}

// addressOf is what failed attempts are counted by: an address, of version 6 the
// network of which one machine has every address.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	parsed, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	parsed = parsed.Unmap().WithZone("")
	if parsed.Is6() {
		if network, err := parsed.Prefix(64); err == nil {
			return network.String()
		}
	}
	return parsed.String()
}

// failed counts a credential that was not accepted. Who fails too often is told
// to wait; a good credential from the same address is still served, so that
// nobody locks out those who share it.
func (s *server) failed(from string, err error) error {
	p, known := asProblem(err)
	if !known || p.Code != hubv1.CodeUnauthenticated && p.Code != hubv1.CodeTokenRefused {
		return err
	}
	if wait, ok := s.failures.take(from); !ok {
		return tooMany(wait, "too many credentials from this address were not accepted")
	}
	return err
}

func asProblem(err error) (*hubv1.Problem, bool) {
	var p *hubv1.Problem
	ok := errors.As(err, &p)
	return p, ok
}
