package forgetest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// github is https://docs.github.com/rest/commits/statuses.
func (f *Forge) github(w http.ResponseWriter, r *http.Request) {
	const base = "/api/v3/repos/" + RepositoryPath
	switch authorization := r.Header.Get("Authorization"); {
	case r.Header.Get("User-Agent") == "" || strings.HasPrefix(r.Header.Get("User-Agent"), "Go-http-client"):
		f.refuse(w, r, http.StatusForbidden, `{"message":"Request forbidden by administrative rules. Please make sure your request has a User-Agent header"}`)
	case authorization == "":
		f.refuse(w, r, http.StatusUnauthorized, `{"message":"Requires authentication"}`)
	case authorization != "Bearer "+Token && authorization != "token "+Token:
		answer(w, http.StatusUnauthorized, `{"message":"Bad credentials"}`)
	case r.Header.Get("X-GitHub-Api-Version") != "2022-11-28":
		f.refuse(w, r, http.StatusBadRequest, `{"message":"The requested API version is not supported"}`)
	case r.Header.Get("Accept") != "application/vnd.github+json":
		f.refuse(w, r, http.StatusUnsupportedMediaType, `{"message":"Must accept 'application/json'"}`)
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, base+"/commits/") && strings.HasSuffix(r.URL.Path, "/status"):
		f.githubShow(w, r, strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, base+"/commits/"), "/status"))
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, base+"/statuses/"):
		f.githubPost(w, r, strings.TrimPrefix(r.URL.Path, base+"/statuses/"))
	default:
		f.refuse(w, r, http.StatusNotFound, `{"message":"Not Found"}`)
	}
}

func (f *Forge) githubShow(w http.ResponseWriter, r *http.Request, revision string) {
	if f.unknown[revision] {
		answer(w, http.StatusUnprocessableEntity, fmt.Sprintf(`{"message":"No commit found for SHA: %s"}`, revision))
		return
	}
	answerJSON(w, http.StatusOK, map[string]any{"state": "pending", "sha": revision, "statuses": rows(f.page(r, revision, "per_page", 100, every), "state", "context")})
}

// rows are statuses with the names that a forge has for their fields.
func rows(statuses []Posted, state, context string) []map[string]any {
	out := []map[string]any{}
	for _, s := range statuses {
		row := map[string]any{state: s.State, context: s.Context, "description": s.Description, "target_url": s.Link, "id": 1}
		if s.Link == "" {
			row["target_url"] = nil
		}
		out = append(out, row)
	}
	return out
}

func (f *Forge) githubPost(w http.ResponseWriter, r *http.Request, revision string) {
	fields, ok := body(r)
	invalid := func(field, message string) {
		f.refuse(w, r, http.StatusUnprocessableEntity, fmt.Sprintf(`{"message":"Validation Failed","errors":[{"resource":"Status","code":"custom","field":%q,"message":%q}]}`, field, message))
	}
	switch {
	case !ok:
		f.refuse(w, r, http.StatusBadRequest, `{"message":"Problems parsing JSON"}`)
	case !slices.Contains([]string{"error", "failure", "pending", "success"}, fields["state"]):
		invalid("state", "state is not included in the list")
	case utf8.RuneCountInString(fields["description"]) > 140:
		invalid("description", "description is too long (maximum is 140 characters)")
	case utf8.RuneCountInString(fields["context"]) > 255:
		invalid("context", "context is too long (maximum is 255 characters)")
	case !isLink(fields["target_url"]):
		invalid("target_url", "target_url must use http(s) scheme")
	case f.unknown[revision] || len(revision) != 40:
		answer(w, http.StatusUnprocessableEntity, fmt.Sprintf(`{"message":"No commit found for SHA: %s"}`, revision))
	default:
		f.take(w, Posted{revision, fields["context"], fields["state"], fields["description"], fields["target_url"], ""})
	}
}

func isLink(link string) bool {
	u, err := url.Parse(link)
	return link == "" || err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

func (f *Forge) take(w http.ResponseWriter, p Posted) {
	f.keep(p)
	answerJSON(w, http.StatusCreated, map[string]any{"id": len(f.posted), "state": p.State, "status": p.State, "context": p.Context, "name": p.Context})
}

// gitlab is https://docs.gitlab.com/api/commits/#set-commit-pipeline-status.
func (f *Forge) gitlab(w http.ResponseWriter, r *http.Request) {
	base := "/api/v4/projects/" + url.PathEscape(RepositoryPath)
	path := r.URL.EscapedPath()
	bearer, private := r.Header.Get("Authorization"), r.Header.Get("Private-Token")
	switch {
	case bearer == "" && private == "":
		f.refuse(w, r, http.StatusUnauthorized, `{"message":"401 Unauthorized"}`)
	case bearer != "Bearer "+Token && private != Token:
		answer(w, http.StatusUnauthorized, `{"message":"401 Unauthorized"}`)
	case r.Method == http.MethodGet && strings.HasPrefix(path, base+"/repository/commits/") && strings.HasSuffix(path, "/statuses"):
		f.gitlabShow(w, r, strings.TrimSuffix(strings.TrimPrefix(path, base+"/repository/commits/"), "/statuses"))
	case r.Method == http.MethodPost && strings.HasPrefix(path, base+"/statuses/"):
		f.gitlabPost(w, r, strings.TrimPrefix(path, base+"/statuses/"))
	default:
		f.refuse(w, r, http.StatusNotFound, `{"error":"404 Not Found"}`)
	}
}

func (f *Forge) gitlabShow(w http.ResponseWriter, r *http.Request, revision string) {
	if f.unknown[revision] {
		answer(w, http.StatusNotFound, `{"message":"404 Commit Not Found"}`)
		return
	}
	name, ref := r.URL.Query().Get("name"), r.URL.Query().Get("ref")
	matching := f.page(r, revision, "per_page", 100, func(s Posted) bool {
		return (name == "" || name == s.Context) && (ref == "" || ref == s.Branch)
	})
	answerJSON(w, http.StatusOK, rows(matching, "status", "name"))
}

func (f *Forge) gitlabPost(w http.ResponseWriter, r *http.Request, revision string) {
	fields, ok := body(r)
	name := fields["name"]
	if name == "" {
		name = fields["context"]
	}
	switch {
	case !ok:
		f.refuse(w, r, http.StatusBadRequest, `{"error":"The request body is invalid"}`)
	case fields["state"] == "":
		f.refuse(w, r, http.StatusBadRequest, `{"error":"state is missing"}`)
	case !slices.Contains([]string{"pending", "running", "success", "failed", "canceled", "skipped"}, fields["state"]):
		f.refuse(w, r, http.StatusBadRequest, `{"error":"state does not have a valid value"}`)
	case utf8.RuneCountInString(fields["description"]) > 255:
		f.refuse(w, r, http.StatusBadRequest, `{"message":{"description":["is too long (maximum is 255 characters)"]}}`)
	case utf8.RuneCountInString(fields["target_url"]) > 255 || !isLink(fields["target_url"]):
		f.refuse(w, r, http.StatusBadRequest, `{"message":{"target_url":["is too long (maximum is 255 characters)","must be a valid URL"]}}`)
	case utf8.RuneCountInString(name) > 255:
		f.refuse(w, r, http.StatusBadRequest, `{"message":{"name":["is too long (maximum is 255 characters)"]}}`)
	case f.unknown[revision]:
		answer(w, http.StatusNotFound, `{"message":"404 Commit Not Found"}`)
	case fields["state"] == "pending" && f.shown[revision][name].State == "pending":
		f.refuse(w, r, http.StatusBadRequest, `{"message":"Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via \"enqueue\")"}`)
	default:
		f.take(w, Posted{revision, name, fields["state"], fields["description"], fields["target_url"], fields["ref"]})
	}
}

// gitea is https://docs.gitea.com/api, repoCreateStatus and
// repoGetCombinedStatusByRef.
func (f *Forge) gitea(w http.ResponseWriter, r *http.Request) {
	const base = "/api/v1/repos/" + RepositoryPath
	switch authorization := r.Header.Get("Authorization"); {
	case authorization == "":
		f.refuse(w, r, http.StatusUnauthorized, `{"message":"token is required"}`)
	case authorization != "Bearer "+Token && authorization != "token "+Token:
		answer(w, http.StatusUnauthorized, `{"message":"invalid username, password or token"}`)
	case r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, base+"/commits/") && strings.HasSuffix(r.URL.Path, "/status"):
		revision := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, base+"/commits/"), "/status")
		statuses := f.page(r, revision, "limit", f.most(), every)
		if len(f.order[revision]) == 0 {
			// The real one has no body then.
			w.WriteHeader(http.StatusOK)
			return
		}
		answerJSON(w, http.StatusOK, map[string]any{"state": "pending", "sha": revision, "statuses": rows(statuses, "status", "context")})
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, base+"/statuses/"):
		f.giteaPost(w, r, strings.TrimPrefix(r.URL.Path, base+"/statuses/"))
	default:
		f.refuse(w, r, http.StatusNotFound, `{"message":"The target couldn't be found."}`)
	}
}

func (f *Forge) giteaPost(w http.ResponseWriter, r *http.Request, revision string) {
	fields, ok := body(r)
	switch {
	case !ok:
		f.refuse(w, r, http.StatusUnprocessableEntity, `{"message":"[]: Invalid JSON"}`)
	case !slices.Contains([]string{"pending", "success", "error", "failure", "warning", "skipped"}, fields["state"]):
		f.refuse(w, r, http.StatusUnprocessableEntity, `{"message":"invalid commit status state"}`)
	case f.unknown[revision]:
		answer(w, http.StatusNotFound, `{"message":"object does not exist"}`)
	default:
		f.take(w, Posted{revision, fields["context"], fields["state"], fields["description"], fields["target_url"], ""})
	}
}
