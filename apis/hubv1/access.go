package hubv1

import (
	"regexp"
	"time"
)

// Permission is one thing that a request of /api/v1 may need. Each operation of
// the API names its own in the OpenAPI document, under x-cloop-permission.
type Permission string

// Permissions. Those of projects and runs can be given for one project alone.
const (
	// PermissionExecutorRead shows pools and their runners.
	PermissionExecutorRead Permission = "executor.read"
	// PermissionExecutorManage makes, changes, cordons and revokes pools, mints
	// controller credentials, and binds projects to pools.
	PermissionExecutorManage Permission = "executor.manage"
	// PermissionProjectRead shows a project.
	PermissionProjectRead Permission = "project.read"
	// PermissionProjectManage makes and changes projects.
	PermissionProjectManage Permission = "project.manage"
	// PermissionRunRead shows a project's runs and their logs.
	PermissionRunRead Permission = "run.read"
	// PermissionRunStart starts runs of a project.
	PermissionRunStart Permission = "run.start"
	// PermissionRunCancel cancels runs of a project.
	PermissionRunCancel Permission = "run.cancel"
	// PermissionHubRead shows how the hub and its Git syncs stand.
	PermissionHubRead Permission = "hub.read"
	// PermissionHubManage makes Git syncs run.
	PermissionHubManage Permission = "hub.manage"
	// PermissionAccessRead shows users, groups, roles and everybody's tokens.
	PermissionAccessRead Permission = "access.read"
	// PermissionAccessManage makes and changes users, groups and roles, gives
	// roles, and makes and revokes everybody's tokens. Nobody gives with it more
	// than they have themselves.
	PermissionAccessManage Permission = "access.manage"
	// PermissionAuditRead shows the audit trail.
	PermissionAuditRead Permission = "audit.read"
)

// User is a person or a machine that has tokens, "user:<name>" in audiences and
// the audit trail.
type User struct {
	Name      string    `json:"name" doc:"Name, unique among users."`
	CreatedAt time.Time `json:"createdAt" doc:"When it was made."`
	// Groups are those that the user is in, by name.
	Groups []string `json:"groups,omitempty"`
	// Roles are those that the user has itself or by a group.
	Roles []RoleBinding `json:"roles,omitempty"`
}

// CreateUserRequest makes a user.
type CreateUserRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9]([A-Za-z0-9._@+-]*[A-Za-z0-9])?$" doc:"A name or an e-mail address."`
}

// UserList lists users by name.
type UserList struct {
	Items []User `json:"items"`
}

// Group is a set of users, "group:<name>" in audiences.
type Group struct {
	Name      string        `json:"name" doc:"Name, unique among groups."`
	CreatedAt time.Time     `json:"createdAt" doc:"When it was made."`
	Members   []string      `json:"members,omitempty" doc:"Users in it."`
	Roles     []RoleBinding `json:"roles,omitempty" doc:"Roles that its members have by it."`
}

// CreateGroupRequest makes a group without members.
type CreateGroupRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9]([A-Za-z0-9._@+-]*[A-Za-z0-9])?$"`
}

// GroupList lists groups by name.
type GroupList struct {
	Items []Group `json:"items"`
}

// principal is one that the hub can have.
var principal = regexp.MustCompile(`^((user|group):[A-Za-z0-9]([A-Za-z0-9._@+-]{0,126}[A-Za-z0-9])?|role:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$`)

// CanBePrincipal says whether a user, a group or a role of the hub can be called so:
// user:NAME, group:NAME or role:NAME. An audience takes others, which nobody is.
func CanBePrincipal(name string) bool { return principal.MatchString(name) }

// Role is a set of permissions under a name, "role:<name>" in audiences.
type Role struct {
	Name        string       `json:"name" doc:"Name, unique among roles."`
	Permissions []Permission `json:"permissions" doc:"What it permits."`
	// BuiltIn roles are the hub's own and cannot be changed.
	BuiltIn     bool   `json:"builtIn,omitempty"`
	Description string `json:"description,omitempty" doc:"What whoever has it may do, of a role of the hub's own."`
	// Bindings say who has the role.
	Bindings []RoleBinding `json:"bindings,omitempty"`
}

// RoleRequest makes a role or changes its permissions.
type RoleRequest struct {
	Permissions []Permission `json:"permissions" minItems:"1" maxItems:"64" maxLength:"64"`
}

// RoleList lists roles by name.
type RoleList struct {
	Items []Role `json:"items"`
}

// RoleBinding gives a role to a user or a group.
type RoleBinding struct {
	Role string `json:"role" doc:"Name of the role."`
	// Subject is user:<name> or group:<name>.
	Subject string `json:"subject"`
	// Project is the name of the one project that the role is given for; empty
	// for the whole hub.
	Project string `json:"project,omitempty"`
}

// BindingRequest gives a role to a subject, or takes it away.
type BindingRequest struct {
	Subject string `json:"subject" minLength:"6" maxLength:"140" pattern:"^(user|group):[A-Za-z0-9]([A-Za-z0-9._@+-]*[A-Za-z0-9])?$" doc:"user:NAME or group:NAME"`
	Project string `json:"project,omitempty" maxLength:"128" doc:"The one project that it is for; the whole hub where left out."`
}

// Ceiling bounds which pools may be defined, and how. What is left out is not
// bounded. Patterns are those of Go's path.Match.
type Ceiling struct {
	// Names are patterns; a pool's name matches one.
	Names []string `json:"names,omitempty" maxItems:"64" maxLength:"512"`
	// MaxRunners is the highest maximum of one pool; any where 0.
	MaxRunners int32 `json:"maxRunners,omitempty" minimum:"0" maximum:"100000"`
	// Labels are patterns, such as gpu=*; each label of a pool, written
	// KEY=VALUE, matches one.
	Labels []string `json:"labels,omitempty" maxItems:"64" maxLength:"512"`
	// Audience are patterns, such as group:ml-*; a pool has an audience and each
	// of its entries matches one.
	Audience []string `json:"audience,omitempty" maxItems:"64" maxLength:"512"`
	// Owners are patterns; a pool has an owner, who matches one.
	Owners []string `json:"owners,omitempty" maxItems:"64" maxLength:"512"`
}

// Token is what proves to the hub who asks. It never gives more than the user
// has whose it is.
type Token struct {
	ID   string `json:"id" doc:"Id, which is no secret."`
	Name string `json:"name" doc:"Name that it was given."`
	// User is whose rights the token has, by name.
	User string `json:"user"`
	// Secret is shown once, empty ever after.
	Secret string `json:"secret,omitempty"`
	// Scopes are the only permissions that the token gives; empty: all that its
	// user has.
	Scopes []Permission `json:"scopes,omitempty"`
	// Ceiling bounds the pools that the token sees and defines.
	Ceiling   *Ceiling   `json:"ceiling,omitempty"`
	CreatedBy string     `json:"createdBy" doc:"Who made it."`
	CreatedAt time.Time  `json:"createdAt" doc:"When it was made."`
	ExpiresAt *time.Time `json:"expiresAt,omitempty" doc:"When it expires; left out: never."`
	RevokedAt *time.Time `json:"revokedAt,omitempty" doc:"When it was revoked."`
	// LastUsedAt is kept to the minute.
	LastUsedAt *time.Time `json:"lastUsedAt,omitempty"`
}

// CreateTokenRequest makes a token.
type CreateTokenRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$" doc:"What it is for, for whoever looks at the list."`
	User string `json:"user,omitempty" maxLength:"128" doc:"Whose it is; the one who asks where left out."`
	// Scopes are needed with a ceiling.
	Scopes    []Permission `json:"scopes,omitempty" maxItems:"64" maxLength:"64" doc:"The only permissions that it gives; all that the user has where left out."`
	Ceiling   *Ceiling     `json:"ceiling,omitempty"`
	ExpiresAt *time.Time   `json:"expiresAt,omitempty" doc:"When it ends by itself; never where left out."`
}

// TokenList is one page of tokens, newest first.
type TokenList struct {
	Items []Token `json:"items"`
	// Next is the cursor of the next page; empty where there is none, as in what cloop
	// prints, which puts the pages together.
	Next string `json:"next,omitempty"`
}

// Identity is who asks, as the hub sees it.
type Identity struct {
	User   string        `json:"user" doc:"Whom the hub takes the token's holder for."`
	Groups []string      `json:"groups,omitempty" doc:"Groups that the user is in."`
	Roles  []RoleBinding `json:"roles,omitempty" doc:"Roles, also by way of groups."`
	// Permissions are those that the token gives for the whole hub.
	Permissions []Permission `json:"permissions"`
	// Token is the one that the request came with, without its secret.
	Token Token `json:"token"`
}

// AuditRecord is one row of the audit trail: who did what to which object.
type AuditRecord struct {
	// ID rises with every row.
	ID    int64     `json:"id"`
	At    time.Time `json:"at" doc:"When."`
	Actor string    `json:"actor" doc:"Who did it."`
	// Token is the id of the token that the actor used; empty for what the hub,
	// a controller or a runner did.
	Token  string `json:"token,omitempty"`
	Action string `json:"action" doc:"What was done, such as executor_pool.cordon."`
	// Pool is the name of the pool that the change belongs to.
	Pool   string `json:"pool,omitempty"`
	Object string `json:"object,omitempty" doc:"Id or name of what it was done to."`
	// State is what the object is since.
	State  string `json:"state,omitempty"`
	Detail string `json:"detail,omitempty" doc:"More about it, in words."`
}

// AuditPage is one part of the audit trail, oldest first.
type AuditPage struct {
	Items []AuditRecord `json:"items"`
	// Next is the cursor of the part that follows; 0 where there is none yet.
	Next int64 `json:"next,omitempty"`
}

// AuditQuery says which rows of the audit trail to read. The zero value of a
// field asks for nothing.
type AuditQuery struct {
	Since, Until time.Time
	Actor        string
	// Action is the action's name or how it begins.
	Action string
	Pool   string
	Object string
	// Cursor is the id of the last row that is known already.
	Cursor int64
	// Limit of one page; 100 where left out, at most 1,000.
	Limit int
}
