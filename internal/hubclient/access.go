package hubclient

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

const (
	apiUsers  = "/api/v1/users"
	apiGroups = "/api/v1/groups"
	apiRoles  = "/api/v1/roles"
	apiTokens = "/api/v1/tokens"
	apiSelf   = "/api/v1/self"
	apiAudit  = "/api/v1/audit"
)

// Self says who the client's token stands for and what it gives.
func (c *Client) Self(ctx context.Context) (hubv1.Identity, error) {
	return get[hubv1.Identity](ctx, c, apiSelf, nil)
}

// CreateUser makes a user without roles and tokens.
func (c *Client) CreateUser(ctx context.Context, request hubv1.CreateUserRequest) (hubv1.User, error) {
	return post[hubv1.User](ctx, c, apiUsers, request)
}

// ListUsers lists the users by name.
func (c *Client) ListUsers(ctx context.Context) ([]hubv1.User, error) {
	list, err := get[hubv1.UserList](ctx, c, apiUsers, nil)
	return list.Items, err
}

// GetUser returns a user with its groups and roles.
func (c *Client) GetUser(ctx context.Context, user string) (hubv1.User, error) {
	return get[hubv1.User](ctx, c, apiUsers+"/"+segment(user), nil)
}

// RemoveUser removes a user with its tokens and roles, unless it is the last one
// who manages access.
func (c *Client) RemoveUser(ctx context.Context, user string) error {
	return c.remove(ctx, apiUsers+"/"+segment(user))
}

// ForceRemoveUser is RemoveUser also for the last one who manages access.
func (c *Client) ForceRemoveUser(ctx context.Context, user string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: apiUsers + "/" + segment(user), query: url.Values{"force": {"true"}}}, nil)
}

// CreateGroup makes a group without members.
func (c *Client) CreateGroup(ctx context.Context, request hubv1.CreateGroupRequest) (hubv1.Group, error) {
	return post[hubv1.Group](ctx, c, apiGroups, request)
}

// ListGroups lists the groups by name.
func (c *Client) ListGroups(ctx context.Context) ([]hubv1.Group, error) {
	list, err := get[hubv1.GroupList](ctx, c, apiGroups, nil)
	return list.Items, err
}

// GetGroup returns a group with its members and roles.
func (c *Client) GetGroup(ctx context.Context, group string) (hubv1.Group, error) {
	return get[hubv1.Group](ctx, c, apiGroups+"/"+segment(group), nil)
}

// RemoveGroup removes a group with its roles.
func (c *Client) RemoveGroup(ctx context.Context, group string) error {
	return c.remove(ctx, apiGroups+"/"+segment(group))
}

// AddMember puts a user into a group.
func (c *Client) AddMember(ctx context.Context, group, user string) (hubv1.Group, error) {
	var out hubv1.Group
	err := c.do(ctx, call{method: http.MethodPut, path: memberPath(group, user)}, &out)
	return out, err
}

// RemoveMember takes a user out of a group.
func (c *Client) RemoveMember(ctx context.Context, group, user string) (hubv1.Group, error) {
	var out hubv1.Group
	err := c.do(ctx, call{method: http.MethodDelete, path: memberPath(group, user)}, &out)
	return out, err
}

func memberPath(group, user string) string {
	return apiGroups + "/" + segment(group) + "/members/" + segment(user)
}

// ListRoles lists the roles by name, with those who have them.
func (c *Client) ListRoles(ctx context.Context) ([]hubv1.Role, error) {
	list, err := get[hubv1.RoleList](ctx, c, apiRoles, nil)
	return list.Items, err
}

// GetRole returns a role and who has it.
func (c *Client) GetRole(ctx context.Context, role string) (hubv1.Role, error) {
	return get[hubv1.Role](ctx, c, apiRoles+"/"+segment(role), nil)
}

// PutRole makes a role, or changes what it permits.
func (c *Client) PutRole(ctx context.Context, role string, request hubv1.RoleRequest) (hubv1.Role, error) {
	var out hubv1.Role
	err := c.do(ctx, call{method: http.MethodPut, path: apiRoles + "/" + segment(role), body: request}, &out)
	return out, err
}

// RemoveRole removes a role and takes it from everybody.
func (c *Client) RemoveRole(ctx context.Context, role string) error {
	return c.remove(ctx, apiRoles+"/"+segment(role))
}

// GiveRole gives a role to a user or a group.
func (c *Client) GiveRole(ctx context.Context, role string, request hubv1.BindingRequest) (hubv1.Role, error) {
	return post[hubv1.Role](ctx, c, apiRoles+"/"+segment(role)+"/bindings", request)
}

// TakeRole takes a role away from a user or a group.
func (c *Client) TakeRole(ctx context.Context, role string, request hubv1.BindingRequest) (hubv1.Role, error) {
	query := url.Values{"subject": {request.Subject}}
	if request.Project != "" {
		query.Set("project", request.Project)
	}
	var out hubv1.Role
	err := c.do(ctx, call{method: http.MethodDelete, path: apiRoles + "/" + segment(role) + "/bindings", query: query}, &out)
	return out, err
}

// CreateToken makes a token, whose secret is shown this once.
func (c *Client) CreateToken(ctx context.Context, request hubv1.CreateTokenRequest) (hubv1.Token, error) {
	return reveal[hubv1.Token](ctx, c, apiTokens, request)
}

// TokenQuery says which tokens to list: the caller's own where it is zero.
type TokenQuery struct {
	// User is whose; All is everybody's.
	User string
	All  bool
	// Over lists those too that are revoked or expired.
	Over bool
}

// ListTokens lists tokens, newest first.
func (c *Client) ListTokens(ctx context.Context, q TokenQuery) ([]hubv1.Token, error) {
	query := url.Values{}
	if q.User != "" {
		query.Set("user", q.User)
	}
	for name, set := range map[string]bool{"all": q.All, "over": q.Over} {
		if set {
			query.Set(name, "true")
		}
	}
	var tokens []hubv1.Token
	for {
		page, err := get[hubv1.TokenList](ctx, c, apiTokens, query)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, page.Items...)
		if page.Next == "" {
			return tokens, nil
		}
		query.Set("cursor", page.Next)
	}
}

// RevokeToken ends a token at once.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.remove(ctx, apiTokens+"/"+segment(id))
}

func (c *Client) remove(ctx context.Context, path string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: path}, nil)
}

// Audit reads one page of the audit trail, oldest row first.
func (c *Client) Audit(ctx context.Context, q hubv1.AuditQuery) (hubv1.AuditPage, error) {
	query := auditQuery(q)
	if q.Limit > 0 {
		query.Set("limit", number(int64(q.Limit)))
	}
	return get[hubv1.AuditPage](ctx, c, apiAudit, query)
}

// ExportAudit reads the audit trail as JSON lines, oldest row first, whatever
// the query's limit. The caller closes it; it has no time limit but the
// context's.
func (c *Client) ExportAudit(ctx context.Context, q hubv1.AuditQuery) (io.ReadCloser, error) {
	response, err := c.send(ctx, call{
		method: http.MethodGet, path: apiAudit + "/export", query: auditQuery(q),
		accept: "application/x-ndjson, application/problem+json",
	})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func auditQuery(q hubv1.AuditQuery) url.Values {
	query := url.Values{}
	for name, text := range map[string]string{"actor": q.Actor, "action": q.Action, "pool": q.Pool, "object": q.Object} {
		if text != "" {
			query.Set(name, text)
		}
	}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Cursor > 0 {
		query.Set("cursor", number(q.Cursor))
	}
	return query
}
