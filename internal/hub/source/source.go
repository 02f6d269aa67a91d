package source

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/sandbox"
	"cloop.dev/cloop/internal/secret"
)

const (
	// lookTimeout bounds one look: whoever starts a run waits for it.
	lookTimeout = 10 * time.Second
	// maxLooks is how many repositories are looked at at once.
	maxLooks = 4
	// rest is how long a remote that could not be read is left alone, so that
	// not every run that is started waits for it.
	rest = 30 * time.Second
	// remembered bounds what is kept, in commits and in remotes.
	remembered = 2048
	// maxUnknown bounds why a remote could not be read, in bytes.
	maxUnknown = 512
)

// Options of a Reader.
type Options struct {
	// Dir holds what is being fetched, and is emptied.
	Dir string
	// Certificates are PEM and trusted beside the system's.
	Certificates []byte
	// Hosts are patterns, as of path.Match, of the only servers to ask; any
	// where left out.
	Hosts []string
	Clock clock.PassiveClock
}

// Reader reads what projects ask of their runners. It is safe for concurrent
// use.
type Reader struct {
	remotes *fleet.Remotes
	hosts   []string
	clock   clock.PassiveClock
	// looks has a value for each look under way.
	looks chan struct{}
	// flights: remote and ref → the one look that all who ask for them share.
	flights singleflight.Group
	// read: remote and commit → verdict.
	read *lru.Cache
	// failed: remote → failure.
	failed *lru.Cache
}

// verdict is what a commit asks for, or why its file is not valid.
type verdict struct {
	asked   hubv1.Requirements
	refused *hubv1.Problem
}

type failure struct {
	at  time.Time
	why string
}

// New makes a Reader.
func New(o Options) (*Reader, error) {
	remotes, err := fleet.NewRemotes(o.Dir, o.Certificates)
	if err != nil {
		return nil, err
	}
	return &Reader{
		remotes: remotes, hosts: o.Hosts, clock: o.Clock, looks: make(chan struct{}, maxLooks),
		read: lru.New(remembered), failed: lru.New(remembered),
	}, nil
}

// Read looks at a ref of a project's remote. An error is a problem: the ref is
// not there or its file is not valid; or the context's.
func (r *Reader) Read(ctx context.Context, remote, ref string) (store.Source, error) {
	if fleet.IsCommit(ref) {
		if known, ok := r.known(remote, ref); ok {
			return known.source(ref)
		}
	}
	if !r.allowed(remote) {
		return store.Source{Unknown: "the hub's configuration keeps it from the server of " + remote}, nil
	}
	if last, ok := r.failed.Get(remote); ok {
		if last, _ := last.(failure); r.clock.Since(last.at) < rest {
			return store.Source{Unknown: last.why}, nil
		}
	}
	// Whoever began a look may give up; those who share it do not.
	shared := r.flights.DoChan(remote+" "+ref, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		return r.look(ctx, remote, ref)
	})
	select {
	case <-ctx.Done():
		return store.Source{}, ctx.Err()
	case done := <-shared:
		found, _ := done.Val.(store.Source)
		return found, done.Err
	}
}

// allowed says whether the hub may ask the remote's server.
func (r *Reader) allowed(remote string) bool {
	u, err := url.Parse(remote)
	if err != nil {
		return false
	}
	return len(r.hosts) == 0 || slices.ContainsFunc(r.hosts, func(pattern string) bool {
		matched, err := path.Match(pattern, strings.ToLower(u.Hostname()))
		return err == nil && matched
	})
}

// look asks the server, within the time of the context.
func (r *Reader) look(ctx context.Context, remote, ref string) (store.Source, error) {
	select {
	case r.looks <- struct{}{}:
		defer func() { <-r.looks }()
	case <-ctx.Done():
		return store.Source{Unknown: fmt.Sprintf("the hub reads %d other repositories and did not come to it within %s", maxLooks, lookTimeout)}, nil
	}
	found, err := r.remotes.Open(ctx, remote)
	if err != nil {
		return r.failing(remote, "", err), nil
	}
	commit, err := found.Commit(ref)
	switch {
	case err == nil:
	case hidden(ref):
		// A server need not show such refs to give them out.
		return store.Source{Unknown: printable.Line(err.Error())}, nil
	default:
		return store.Source{}, problem.New(hubv1.CodeRefNotFound, "%s has no branch or tag %q", remote, ref)
	}
	if known, ok := r.known(remote, commit); ok {
		return known.source(commit)
	}
	data, err := found.File(ctx, commit, sandbox.Path, sandbox.MaxBytes)
	if errors.Is(err, fleet.ErrSource) {
		return r.failing(remote, commit, err), nil
	}
	v := judge(commit, data, err)
	r.read.Add(key(remote, commit), v)
	r.failed.Remove(remote)
	return v.source(commit)
}

// hidden says whether a ref is neither a branch nor a tag.
func hidden(ref string) bool {
	return strings.HasPrefix(ref, "refs/") && !strings.HasPrefix(ref, "refs/heads/") && !strings.HasPrefix(ref, "refs/tags/")
}

// failing keeps that the remote cannot be read.
func (r *Reader) failing(remote, commit string, err error) store.Source {
	why := printable.Clip(printable.Line(secret.Redact(err.Error())), maxUnknown)
	r.failed.Add(remote, failure{r.clock.Now(), why})
	return store.Source{Commit: commit, Unknown: why}
}

// judge is the verdict on the file as it was read.
func judge(commit string, data []byte, err error) verdict {
	refuse := func(mistakes ...sandbox.Mistake) verdict {
		p := problem.New(hubv1.CodeRequirementsInvalid, "%s at %s cannot be used", sandbox.Path, fleet.Short(commit))
		for _, m := range mistakes {
			p.Errors = append(p.Errors, hubv1.FieldError{Location: fmt.Sprintf("%s:%d", sandbox.Path, m.Line), Message: m.Message})
		}
		return verdict{refused: p}
	}
	switch {
	case errors.Is(err, fleet.ErrNoFile):
		return verdict{}
	case errors.Is(err, fleet.ErrLongFile):
		return refuse(sandbox.Mistake{Message: fmt.Sprintf("is longer than %d bytes", sandbox.MaxBytes)})
	case err != nil:
		return refuse(sandbox.Mistake{Message: err.Error()})
	}
	asked, err := sandbox.Parse(data)
	var invalid *sandbox.Invalid
	if errors.As(err, &invalid) {
		return refuse(invalid.Mistakes...)
	}
	return verdict{asked: asked}
}

func (v verdict) source(commit string) (store.Source, error) {
	if v.refused != nil {
		return store.Source{}, v.refused
	}
	return store.Source{Commit: commit, Requirements: &v.asked}, nil
}

func key(remote, commit string) string { return remote + " " + commit }

func (r *Reader) known(remote, commit string) (verdict, bool) {
	found, ok := r.read.Get(key(remote, commit))
	v, _ := found.(verdict)
	return v, ok
}
