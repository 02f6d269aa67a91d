package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
)

// permissionKey is where an operation says which permission it needs, also in
// the OpenAPI document.
const permissionKey = "x-cloop-permission"

// permissionSelf is for what every user may: know which hub it is and who it is
// itself, and look after its own tokens. No role is needed, and none gives it.
const permissionSelf hubv1.Permission = "self"

// anyProject marks an operation whose permission may hold for some projects
// alone; its handler narrows it down.
const anyProject = "anyProject"

// requires declares the permission that an operation of /api/v1 needs: for the
// whole hub, or for the project that its path names or whose run it names.
func requires(p hubv1.Permission, o huma.Operation) huma.Operation {
	if o.Extensions == nil {
		o.Extensions = map[string]any{}
	}
	o.Extensions[permissionKey] = p
	return o
}

// requiresSome is requires for operations that go over all projects, or name one
// in the request's body. Their handlers ask mayIn or leave out what one may not
// see.
func requiresSome(p hubv1.Permission, o huma.Operation) huma.Operation {
	o = requires(p, o)
	o.Metadata = map[string]any{anyProject: true}
	return o
}

// checkDeclared refuses, when the hub starts, an operation that anybody with a
// token could call because nobody said what it needs.
func checkDeclared(o huma.Operation) {
	p, declared := o.Extensions[permissionKey].(hubv1.Permission)
	if ofUsers(o.Path) != declared || declared && p != permissionSelf && !access.Known(p) {
		panic(fmt.Sprintf("operation %s declares permission %q: operations of /api/v1 declare one with requires, and no others do", o.OperationID, p))
	}
}

// guard refuses what the caller may not do. What it may not see is not there.
func (s *server) guard(ctx huma.Context, caller store.Caller) error {
	operation := ctx.Operation()
	p, _ := operation.Extensions[permissionKey].(hubv1.Permission)
	if p == permissionSelf {
		return nil
	}
	if !caller.Rights.MayAnywhere(p) {
		return lacks(caller, p, "")
	}
	if err := s.guardPool(ctx.Context(), caller, ctx.Param("pool")); err != nil {
		return err
	}
	if run := ctx.Param("run"); run != "" {
		return s.guardRun(ctx.Context(), caller, p, run)
	}
	if project := ctx.Param("project"); project != "" {
		return s.mayIn(ctx.Context(), caller, p, project)
	}
	if index := ctx.Param("idx"); index != "" {
		return s.mayIn(ctx.Context(), caller, p, projectAt(index))
	}
	if operation.Metadata[anyProject] != nil || caller.Rights.May(p, "") {
		return nil
	}
	return lacks(caller, p, "")
}

// guardPool hides the pools that the ceiling of the caller's token does not
// cover. That there is none of a name which it covers is for the operation to say.
func (s *server) guardPool(ctx context.Context, caller store.Caller, ref string) error {
	if ref == "" || len(caller.Ceiling().Names) == 0 {
		return nil
	}
	name, err := s.Store.PoolName(ctx, ref)
	if p, is := asProblem(err); is && p.Code == hubv1.CodeNotFound && access.Sees(caller.Ceiling(), ref) {
		return nil
	}
	if err == nil && !access.Sees(caller.Ceiling(), name) {
		err = problem.New(hubv1.CodeNotFound, "there is no pool %q", ref)
	}
	return err
}

func (s *server) guardRun(ctx context.Context, caller store.Caller, p hubv1.Permission, run string) error {
	ceiling := caller.Ceiling()
	if len(ceiling.Names) == 0 && caller.Rights.May(hubv1.PermissionRunRead, "") && caller.Rights.May(p, "") {
		return nil
	}
	project, pool, err := s.Store.PlaceOfRun(ctx, run)
	switch {
	case err != nil:
		return err
	case !caller.Rights.May(hubv1.PermissionRunRead, project.ID), !access.Sees(ceiling, pool):
		return problem.New(hubv1.CodeNotFound, "there is no run %q", run)
	case !caller.Rights.May(p, project.ID):
		return lacks(caller, p, project.Name)
	}
	return nil
}

// mayIn refuses what the caller may not do with a project.
func (s *server) mayIn(ctx context.Context, caller store.Caller, p hubv1.Permission, ref string) error {
	if len(caller.Ceiling().Names) == 0 && caller.Rights.May(hubv1.PermissionProjectRead, "") && caller.Rights.May(p, "") {
		return nil
	}
	project, err := s.Store.GetProject(store.WithCaller(ctx, caller), ref)
	switch {
	case err != nil:
		return err
	case !caller.Rights.May(hubv1.PermissionProjectRead, project.ID):
		return store.NoProject(ref)
	case !caller.Rights.May(p, project.ID):
		return lacks(caller, p, project.Name)
	}
	return nil
}

// lacks names the permission that is missing, and how one comes by it.
func lacks(caller store.Caller, p hubv1.Permission, project string) *hubv1.Problem {
	where := ""
	if project != "" {
		where = " for project " + project
	}
	out := problem.New(hubv1.CodeForbidden, "%s needs %s%s", caller.Actor(), p, where)
	if len(caller.Token.Scopes) > 0 && !slices.Contains(caller.Token.Scopes, p) && caller.Unscoped().MayAnywhere(p) {
		out.Detail = fmt.Sprintf("token %s does not give %s, which is not among its scopes", caller.Token.ID, p)
		out.Remedy = "use another token, or make one with that scope: `cloop hub token create`"
		return out
	}
	out.Remedy = fmt.Sprintf("ask somebody with %s for a role that has it, such as %s: `cloop hub role give ROLE %s`",
		hubv1.PermissionAccessManage, strings.Join(access.RolesWith(p), " or "), caller.Actor())
	return out
}

// again is where a stream finds how to ask whether it still may.
type again struct{}

// expelled says whether whoever opened a stream may not read it any more.
func (s *server) expelled(ctx context.Context) bool {
	check, _ := ctx.Value(again{}).(func(store.Caller) error)
	if check == nil {
		return false
	}
	var err error
	apart(func() {
		var caller store.Caller
		if caller, err = s.Store.Renewed(ctx, callerOf(ctx)); err == nil {
			err = check(caller)
		}
	})
	// A database that does not answer says nothing about anybody's rights.
	_, refused := asProblem(err)
	return refused
}
