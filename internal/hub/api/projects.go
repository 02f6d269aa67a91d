package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

// ProjectPath names a project.
type ProjectPath struct {
	Project string `path:"project" minLength:"1" maxLength:"128" doc:"Name or id."`
}

// IndexPath names a project as other clients of the API do.
type IndexPath struct {
	Index string `path:"idx" minLength:"1" maxLength:"128" doc:"The project's index; its name or id where it is no number."`
}

// projectAt is what the store takes for a project of such a path. A number is an
// index whatever projects are called: what it means does not change with the
// next project that somebody names.
func projectAt(index string) string {
	if strings.Trim(index, "0123456789") != "" {
		return index
	}
	return store.ProjectAt(index)
}

func (s *server) projects() {
	register(s, requires(hubv1.PermissionProjectManage, status(op(http.MethodPost, apiBase+"/projects", "create-project", "Create a project"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.CreateProjectRequest
		}) (*body[hubv1.Project], error) {
			if err := checkProject(in.Body); err != nil {
				return nil, err
			}
			return answer(s.Store.CreateProject(ctx, actorOf(ctx), keyOf(ctx), in.Body))
		})
	register(s, requiresSome(hubv1.PermissionProjectRead, op(http.MethodGet, apiBase+"/projects", "list-projects", "List projects by name")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.ProjectList], error) {
			items, err := s.Store.ListProjects(ctx)
			rights := callerOf(ctx).Rights
			items = slices.DeleteFunc(items, func(project hubv1.Project) bool { return !rights.May(hubv1.PermissionProjectRead, project.ID) })
			return answer(hubv1.ProjectList{Items: items}, err)
		})
	register(s, requires(hubv1.PermissionProjectRead, op(http.MethodGet, apiBase+"/projects/{project}", "get-project", "Show a project")),
		func(ctx context.Context, in *ProjectPath) (*body[hubv1.Project], error) {
			return answer(s.Store.GetProject(ctx, in.Project))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/projects/{project}/executor", "bind-project", "Bind a project to a pool")),
		func(ctx context.Context, in *struct {
			ProjectPath
			Body hubv1.BindRequest
		}) (*body[hubv1.Project], error) {
			return answer(s.bind(ctx, in.Project, in.Body.ExecutorID))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, "/api/projects/{idx}/executor", "bind-project-executor", "Bind a project to a pool, in the words of other clients")),
		func(ctx context.Context, in *struct {
			IndexPath
			Body hubv1.ExecutorRequest
		}) (*body[hubv1.Project], error) {
			return answer(s.bind(ctx, projectAt(in.Index), in.Body.ExecutorID))
		})
}

// bind looks at the project's default ref first. One that is not there yet asks
// for nothing that could be refused: each run looks again.
func (s *server) bind(ctx context.Context, ref, executor string) (hubv1.Project, error) {
	project, err := s.Store.FindProject(ctx, ref)
	if err != nil {
		return project, err
	}
	found, err := s.Sources.Read(ctx, project.Remote, project.DefaultRef)
	if p, refused := asProblem(err); refused && p.Code == hubv1.CodeRefNotFound {
		found, err = store.Source{Unknown: p.Detail}, nil
	}
	if err != nil {
		// What was bound with the key before stays bound, whatever has become of the
		// repository.
		if repeated, _ := s.Store.Repeated(ctx); repeated {
			return s.Store.GetProject(ctx, project.ID)
		}
		return project, err
	}
	return s.Store.BindProject(ctx, actorOf(ctx), project.ID, executor, found)
}

// checkProject refuses what would reach a runner's git as something else than a
// remote and a ref.
func checkProject(request hubv1.CreateProjectRequest) error {
	p := problem.New(hubv1.CodeInvalid, "project %s is not valid", request.Name)
	remote, err := url.Parse(request.Remote)
	switch {
	case err != nil || remote.Scheme != "https" || remote.Host == "":
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.remote", Message: "must be an https URL"})
	case remote.User != nil:
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.remote", Message: "must not hold user information"})
	case remote.RawQuery != "" || remote.ForceQuery || strings.Contains(request.Remote, "#"):
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.remote", Message: "must not hold a query or a fragment, where some keep a token: whoever sees the project would see it"})
	case secret.Shown(request.Remote):
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.remote", Message: "must not hold a credential"})
	case printable.Disguises(request.Remote):
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.remote", Message: "must not hold characters that nobody sees"})
	}
	if message := refMessage(request.DefaultRef); message != "" {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body.defaultRef", Message: message})
	}
	if len(p.Errors) > 0 {
		return p
	}
	return nil
}

// refMessage says what keeps a text from being a branch, tag or commit.
func refMessage(ref string) string {
	switch {
	case strings.HasPrefix(ref, "-"):
		return "must not begin with a dash"
	case strings.ContainsAny(ref, ` ~^:?*[\`), printable.Disguises(ref), strings.Contains(ref, ".."), strings.Contains(ref, "@{"):
		return "must be a branch, tag or full commit"
	}
	return ""
}
