package api

import (
	"context"
	"net/http"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// UserPath names a user.
type UserPath struct {
	User string `path:"user" minLength:"1" maxLength:"128"`
}

// GroupPath names a group.
type GroupPath struct {
	Group string `path:"group" minLength:"1" maxLength:"128"`
}

// RolePath names a role.
type RolePath struct {
	Role string `path:"role" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
}

func (s *server) access() {
	s.usersAndGroups()
	s.roles()
	s.tokens()
}

func (s *server) usersAndGroups() {
	const read, manage = hubv1.PermissionAccessRead, hubv1.PermissionAccessManage
	register(s, requires(manage, status(op(http.MethodPost, apiBase+"/users", "create-user", "Make a user"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.CreateUserRequest
		}) (*body[hubv1.User], error) {
			return answer(s.Store.CreateUser(ctx, actorOf(ctx), keyOf(ctx), in.Body))
		})
	register(s, requires(read, op(http.MethodGet, apiBase+"/users", "list-users", "List users by name")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.UserList], error) {
			items, err := s.Store.ListUsers(ctx)
			return answer(hubv1.UserList{Items: items}, err)
		})
	register(s, requires(read, op(http.MethodGet, apiBase+"/users/{user}", "get-user", "Show a user")),
		func(ctx context.Context, in *UserPath) (*body[hubv1.User], error) {
			return answer(s.Store.GetUser(ctx, in.User))
		})
	register(s, requires(manage, op(http.MethodDelete, apiBase+"/users/{user}", "remove-user", "Remove a user with its tokens and roles; its waiting runs are cancelled")),
		func(ctx context.Context, in *struct {
			UserPath
			Force bool `query:"force" doc:"Also where nobody is left then who has access.manage."`
		}) (*struct{}, error) {
			if in.Force {
				return nil, s.Store.ForceRemoveUser(ctx, actorOf(ctx), in.User)
			}
			return nil, s.Store.RemoveUser(ctx, actorOf(ctx), in.User)
		})
	register(s, requires(manage, status(op(http.MethodPost, apiBase+"/groups", "create-group", "Make a group"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.CreateGroupRequest
		}) (*body[hubv1.Group], error) {
			return answer(s.Store.CreateGroup(ctx, actorOf(ctx), keyOf(ctx), in.Body))
		})
	register(s, requires(read, op(http.MethodGet, apiBase+"/groups", "list-groups", "List groups by name")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.GroupList], error) {
			items, err := s.Store.ListGroups(ctx)
			return answer(hubv1.GroupList{Items: items}, err)
		})
	register(s, requires(read, op(http.MethodGet, apiBase+"/groups/{group}", "get-group", "Show a group")),
		func(ctx context.Context, in *GroupPath) (*body[hubv1.Group], error) {
			return answer(s.Store.GetGroup(ctx, in.Group))
		})
	register(s, requires(manage, op(http.MethodDelete, apiBase+"/groups/{group}", "remove-group", "Remove a group with its roles; its members stay")),
		func(ctx context.Context, in *GroupPath) (*struct{}, error) {
			return nil, s.Store.RemoveGroup(ctx, actorOf(ctx), in.Group)
		})
	type member struct {
		GroupPath
		UserPath
	}
	register(s, requires(manage, op(http.MethodPut, apiBase+"/groups/{group}/members/{user}", "add-member", "Put a user into a group")),
		func(ctx context.Context, in *member) (*body[hubv1.Group], error) {
			return answer(s.Store.AddMember(ctx, actorOf(ctx), in.Group, in.User))
		})
	register(s, requires(manage, status(op(http.MethodDelete, apiBase+"/groups/{group}/members/{user}", "remove-member", "Take a user out of a group"), http.StatusOK)),
		func(ctx context.Context, in *member) (*body[hubv1.Group], error) {
			return answer(s.Store.RemoveMember(ctx, actorOf(ctx), in.Group, in.User))
		})
}

func (s *server) roles() {
	const read, manage = hubv1.PermissionAccessRead, hubv1.PermissionAccessManage
	register(s, requires(read, op(http.MethodGet, apiBase+"/roles", "list-roles", "List roles by name, with those who have them")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.RoleList], error) {
			items, err := s.Store.ListRoles(ctx)
			return answer(hubv1.RoleList{Items: items}, err)
		})
	register(s, requires(read, op(http.MethodGet, apiBase+"/roles/{role}", "get-role", "Show a role")),
		func(ctx context.Context, in *RolePath) (*body[hubv1.Role], error) {
			return answer(s.Store.GetRole(ctx, in.Role))
		})
	register(s, requires(manage, op(http.MethodPut, apiBase+"/roles/{role}", "put-role", "Make a role, or change what it permits")),
		func(ctx context.Context, in *struct {
			RolePath
			Body hubv1.RoleRequest
		}) (*body[hubv1.Role], error) {
			if err := refuseFields("the role is not valid", access.CheckPermissions("body.permissions", in.Body.Permissions)); err != nil {
				return nil, err
			}
			return answer(s.Store.PutRole(ctx, actorOf(ctx), in.Role, in.Body))
		})
	register(s, requires(manage, op(http.MethodDelete, apiBase+"/roles/{role}", "remove-role", "Remove a role and take it from everybody")),
		func(ctx context.Context, in *RolePath) (*struct{}, error) {
			return nil, s.Store.RemoveRole(ctx, actorOf(ctx), in.Role)
		})
	register(s, requires(manage, op(http.MethodPost, apiBase+"/roles/{role}/bindings", "give-role", "Give a role to a user or a group")),
		func(ctx context.Context, in *struct {
			RolePath
			Body hubv1.BindingRequest
		}) (*body[hubv1.Role], error) {
			return answer(s.Store.GiveRole(ctx, actorOf(ctx), in.Role, in.Body))
		})
	register(s, requires(manage, status(op(http.MethodDelete, apiBase+"/roles/{role}/bindings", "take-role", "Take a role away from a user or a group"), http.StatusOK)),
		func(ctx context.Context, in *struct {
			RolePath
			Subject string `query:"subject" required:"true" minLength:"6" maxLength:"140" doc:"user:NAME or group:NAME"`
			Project string `query:"project" maxLength:"128" doc:"The one project that it was for; the whole hub where left out."`
		}) (*body[hubv1.Role], error) {
			return answer(s.Store.TakeRole(ctx, actorOf(ctx), in.Role, hubv1.BindingRequest{Subject: in.Subject, Project: in.Project}))
		})
}

func (s *server) tokens() {
	register(s, requires(permissionSelf, op(http.MethodGet, apiBase+"/self", "get-self", "Show who asks and what it may do")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.Identity], error) {
			caller := callerOf(ctx)
			user, err := s.Store.GetUser(ctx, caller.User)
			return answer(hubv1.Identity{
				User: user.Name, Groups: user.Groups, Roles: user.Roles, Permissions: caller.Rights.Everywhere(), Token: caller.Token,
			}, err)
		})
	register(s, requires(permissionSelf, status(op(http.MethodPost, apiBase+"/tokens", "create-token", "Make a token, for oneself or, with access.manage, for somebody else"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.CreateTokenRequest
		}) (*body[hubv1.Token], error) {
			if err := checkToken(in.Body); err != nil {
				return nil, err
			}
			return answer(s.Store.CreateToken(ctx, callerOf(ctx), keyOf(ctx), in.Body))
		})
	register(s, requires(permissionSelf, op(http.MethodGet, apiBase+"/tokens", "list-tokens", "List one's own tokens or, with access.read, others', newest first")),
		func(ctx context.Context, in *struct {
			User   string `query:"user" maxLength:"128" doc:"Whose; one's own where left out."`
			All    bool   `query:"all" doc:"Everybody's."`
			Over   bool   `query:"over" doc:"Those too that are revoked or expired."`
			Cursor string `query:"cursor" maxLength:"128" doc:"next of the page before; from the newest token on where left out. A page has about 4 MiB at most."`
		}) (*body[hubv1.TokenList], error) {
			caller, user := callerOf(ctx), in.User
			if user == "" && !in.All {
				user = caller.User
			}
			if user != caller.User && !caller.Rights.May(hubv1.PermissionAccessRead, "") {
				return nil, lacks(caller, hubv1.PermissionAccessRead, "")
			}
			page, err := s.Store.ListTokens(ctx, user, in.Over, in.Cursor)
			if user == caller.User && !caller.KeepsTokens(hubv1.PermissionAccessRead) {
				page.Items = slices.DeleteFunc(page.Items, func(t hubv1.Token) bool { return t.ID != caller.Token.ID })
			}
			return answer(page, err)
		})
	register(s, requires(permissionSelf, op(http.MethodDelete, apiBase+"/tokens/{token}", "revoke-token", "Revoke one's own token or, with access.manage, another's")),
		func(ctx context.Context, in *struct {
			Token string `path:"token" minLength:"1" maxLength:"128" doc:"The token's id."`
		}) (*struct{}, error) {
			return nil, s.Store.RevokeToken(ctx, callerOf(ctx), in.Token)
		})
}

// beyondCeilings are the permissions that a token with a ceiling does not get:
// they would show or change what the ceiling hides.
var beyondCeilings = []hubv1.Permission{
	hubv1.PermissionAccessRead, hubv1.PermissionAccessManage, hubv1.PermissionAuditRead, hubv1.PermissionHubRead,
}

func checkToken(request hubv1.CreateTokenRequest) error {
	faulty := access.CheckPermissions("body.scopes", request.Scopes)
	if c := request.Ceiling; c != nil {
		faulty = append(faulty, access.CheckCeiling("body.ceiling", *c)...)
		if len(request.Scopes) == 0 {
			faulty = append(faulty, hubv1.FieldError{Location: "body.scopes", Message: "must be given with a ceiling, such as executor.read and executor.manage"})
		}
		for _, p := range beyondCeilings {
			for _, scope := range request.Scopes {
				if scope == p {
					faulty = append(faulty, hubv1.FieldError{Location: "body.scopes", Message: string(p) + " goes beyond any ceiling"})
				}
			}
		}
	}
	return refuseFields("the token is not valid", faulty)
}

// refuseFields refuses a request for the fields that are faulty, if any are.
func refuseFields(what string, faulty []hubv1.FieldError) error {
	if len(faulty) == 0 {
		return nil
	}
	p := problem.New(hubv1.CodeInvalid, "%s", what)
	p.Errors = faulty
	return p
}
