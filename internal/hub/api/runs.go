package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
)

// RunPath names a run.
type RunPath struct {
	Run string `path:"run" minLength:"1" maxLength:"128"`
}

func (s *server) runs() {
	register(s, requiresSome(hubv1.PermissionRunStart, status(op(http.MethodPost, apiBase+"/runs", "start-run", "Queue a run"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.StartRunRequest
		}) (*body[hubv1.Run], error) {
			if err := checkRun(in.Body); err != nil {
				return nil, err
			}
			if err := s.mayIn(ctx, callerOf(ctx), hubv1.PermissionRunStart, in.Body.Project); err != nil {
				return nil, err
			}
			return answer(s.startRun(ctx, keyOf(ctx), in.Body))
		})
	register(s, requiresSome(hubv1.PermissionRunRead, op(http.MethodGet, apiBase+"/runs", "list-runs", "List runs, newest first")),
		func(ctx context.Context, in *struct {
			Project string `query:"project" maxLength:"128" doc:"Name or id; all projects where left out."`
			Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"At most so many. A page has fewer where their commands are long; next is then set."`
			Cursor  int64  `query:"cursor" minimum:"0" doc:"next of the page before; from the newest run on where left out."`
		}) (*body[hubv1.RunList], error) {
			return answer(s.listRuns(ctx, in.Project, store.RunsQuery{Limit: in.Limit, Cursor: in.Cursor}))
		})
	register(s, requires(hubv1.PermissionRunRead, op(http.MethodGet, apiBase+"/runs/{run}", "get-run", "Show a run")),
		func(ctx context.Context, in *RunPath) (*body[hubv1.Run], error) {
			return answer(s.Store.GetRun(ctx, in.Run))
		})
	register(s, requires(hubv1.PermissionRunCancel, large(op(http.MethodPost, apiBase+"/runs/{run}/cancel", "cancel-run", "Cancel a run"))),
		func(ctx context.Context, in *RunPath) (*body[hubv1.Run], error) {
			return answer(s.Store.CancelRun(ctx, actorOf(ctx), in.Run))
		})
	register(s, requires(hubv1.PermissionRunRead, watchOp[hubv1.Run](s, apiBase+"/runs/{run}/watch", "watch-run", "Watch a run until it is settled")), s.watchRun)
	logs := requires(hubv1.PermissionRunRead, op(http.MethodGet, apiBase+"/runs/{run}/logs", "read-log", "Read a run's log; with follow, until it is settled"))
	logs.Responses = map[string]*huma.Response{"200": {Description: "The log's bytes.", Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}}
	register(s, logs, s.readLog)
}

// startRun looks at the ref before anything is written: a repository takes its
// time.
func (s *server) startRun(ctx context.Context, key store.Key, request hubv1.StartRunRequest) (hubv1.Run, error) {
	project, err := s.Store.FindProject(ctx, request.Project)
	if err != nil {
		return hubv1.Run{}, err
	}
	ref := request.Ref
	if ref == "" {
		ref = project.DefaultRef
	}
	var found store.Source
	if project.ExecutorID != "" { // otherwise there is nothing to look for
		found, err = s.Sources.Read(ctx, project.Remote, ref)
	}
	if err != nil {
		// What was started with the key before stays started, whatever has become
		// of the ref.
		if run, started, _ := s.Store.StartedBefore(ctx, actorOf(ctx), key, request); started {
			return run, nil
		}
		return hubv1.Run{}, err
	}
	return s.Store.StartRun(ctx, actorOf(ctx), key, request, found)
}

// listRuns is a page of the runs that the caller may see.
func (s *server) listRuns(ctx context.Context, project string, query store.RunsQuery) (hubv1.RunList, error) {
	caller := callerOf(ctx)
	if project != "" {
		if err := s.mayIn(ctx, caller, hubv1.PermissionRunRead, project); err != nil {
			return hubv1.RunList{}, err
		}
		return s.Store.Runs(ctx, project, query)
	}
	if projects, all := caller.Rights.Projects(hubv1.PermissionRunRead); !all {
		query.Projects = append([]string{}, projects...) // nil stands for all
	}
	return s.Store.Runs(ctx, "", query)
}

func checkRun(request hubv1.StartRunRequest) error {
	p := problem.New(hubv1.CodeInvalid, "the run is not valid")
	if message := refMessage(request.Ref); message != "" {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.ref", Message: message})
	}
	if len(request.Command) == 0 {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.command", Message: "must hold at least the program"})
	} else if request.Command[0] == "" {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.command[0]", Message: "must name a program"})
	}
	if size := hubv1.CommandBytes(request.Command); size > hubv1.MaxCommandBytes {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.command", Message: fmt.Sprintf(
			"takes %d bytes and may take %d, each word and one behind it: put a longer script into a file of the project and start that", size, hubv1.MaxCommandBytes)})
	}
	if slices.ContainsFunc(request.Command, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.command", Message: "must not hold a NUL character"})
	}
	if len(p.Errors) > 0 {
		return p
	}
	return nil
}

func (s *server) watchRun(ctx context.Context, in *RunPath) (*huma.StreamResponse, error) {
	run, err := s.Store.GetRun(ctx, in.Run)
	if err != nil {
		return nil, err
	}
	return stream(ctx, s, feed[hubv1.Run]{
		// The pool's changes show in the reason why a run waits.
		topics: []string{store.RunTopic(run.ID), store.PoolTopic(run.PoolID)},
		read: func(ctx context.Context) (snapshot[hubv1.Run], error) {
			now, err := s.Store.GetRun(ctx, run.ID)
			return snapshot[hubv1.Run]{value: now, id: now.Revision, last: now.State.Terminal()}, err
		},
	})
}

func (s *server) readLog(ctx context.Context, in *struct {
	RunPath
	Offset int64 `query:"offset" minimum:"0"`
	Limit  int64 `query:"limit" minimum:"0" doc:"At most this many bytes; all where left out."`
	Follow bool  `query:"follow"`
}) (*huma.StreamResponse, error) {
	release := func() {}
	if in.Follow {
		var err error
		if release, err = s.watches.take(ctx); err != nil {
			return nil, err
		}
	}
	sub := s.Store.Bus.Subscribe(store.LogTopic(in.Run))
	if _, _, err := s.Store.ReadLog(ctx, in.Run, in.Offset); err != nil {
		sub.Close()
		release()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusOK)
		ctx := hc.Context()
		giveBack := func() {}
		if !in.Follow { // the others are bounded as watches
			giveBack = keepPlace(ctx)
		}
		last(w, func() {
			defer giveBack()
			defer release()
			defer sub.Close()
			s.copyLog(ctx, s.stretch(w).write, sub, logPart{in.Run, in.Offset, in.Limit, in.Follow})
		})
	}}, nil
}

// logPart is what a reader wants of a log.
type logPart struct {
	run    string
	offset int64
	// limit is how many bytes at most; 0: all.
	limit int64
	// follow is to wait for more until the run is settled.
	follow bool
}

func (s *server) copyLog(ctx context.Context, write func([]byte) error, sub *store.Subscription, part logPart) {
	ticker := s.Clock.NewTicker(keepAlive)
	defer ticker.Stop()
	for left := part.limit; ; {
		data, state, err := s.Store.ReadLog(ctx, part.run, part.offset)
		if err != nil {
			breakOff()
		}
		if part.limit > 0 {
			data = data[:min(int64(len(data)), left)]
			left -= int64(len(data))
		}
		if len(data) > 0 {
			if write(data) != nil || part.limit > 0 && left == 0 {
				return
			}
			part.offset += int64(len(data))
			continue
		}
		if !part.follow || state.Terminal() {
			return
		}
		// Headers and what there is go out before the wait.
		if write(nil) != nil {
			return
		}
		select {
		case <-sub.C:
		case <-ticker.C():
			if s.expelled(ctx) {
				breakOff()
			}
		case <-ctx.Done():
			return
		case <-s.Stopping:
			breakOff()
		}
	}
}

// breakOff ends an answer so that its reader sees that it is not whole: an
// orderly end would say that there is no more.
func breakOff() { panic(http.ErrAbortHandler) }
