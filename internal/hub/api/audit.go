package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// AuditFilter says which rows of the audit trail are wanted.
type AuditFilter struct {
	Since  time.Time `query:"since" doc:"Only what happened then or later."`
	Until  time.Time `query:"until" doc:"Only what happened before."`
	Actor  string    `query:"actor" maxLength:"160" doc:"Who did it, such as user:alice."`
	Action string    `query:"action" maxLength:"64" doc:"The action's name or how it begins, such as executor_pool."`
	Pool   string    `query:"pool" maxLength:"128" doc:"Name or id of the pool."`
	Object string    `query:"object" maxLength:"160" doc:"Id of what changed."`
	Cursor int64     `query:"cursor" minimum:"0" doc:"The id of the last row that is known already."`
}

func (f AuditFilter) query() hubv1.AuditQuery {
	return hubv1.AuditQuery{
		Since: f.Since, Until: f.Until, Actor: f.Actor, Action: f.Action, Pool: f.Pool, Object: f.Object, Cursor: f.Cursor,
	}
}

const ndjson = "application/x-ndjson"

func (s *server) audit() {
	register(s, requires(hubv1.PermissionAuditRead, op(http.MethodGet, apiBase+"/audit", "list-audit", "Read the audit trail, oldest row first")),
		func(ctx context.Context, in *struct {
			AuditFilter
			Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
		}) (*body[hubv1.AuditPage], error) {
			query := in.query()
			query.Limit = in.Limit
			return answer(s.Store.Audit(ctx, query))
		})
	export := requires(hubv1.PermissionAuditRead, op(http.MethodGet, apiBase+"/audit/export", "export-audit", "Write the audit trail as JSON lines, oldest row first"))
	export.Description = "One JSON object a line. An answer that breaks off is gone on with from the id of its last whole line."
	export.Responses = map[string]*huma.Response{"200": {Description: "The rows that there were when it was asked.", Content: map[string]*huma.MediaType{
		ndjson: {Schema: s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[hubv1.AuditRecord](), true, "")},
	}}}
	register(s, export, s.exportAudit)
}

// exportAudit writes page by page: whatever the trail's length, one page is in
// memory.
func (s *server) exportAudit(ctx context.Context, in *AuditFilter) (*huma.StreamResponse, error) {
	query := in.query()
	query.Limit = store.MaxAuditPage
	page, err := s.Store.Audit(ctx, query)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", ndjson)
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		write := s.stretch(w).write
		for {
			lines, err := jsonLines(page.Items)
			if err != nil {
				breakOff()
			}
			if write(lines) != nil || page.Next == 0 {
				return
			}
			query.Cursor = page.Next
			if page, err = s.Store.Audit(hc.Context(), query); err != nil || s.expelled(ctx) {
				breakOff()
			}
		}
	}}, nil
}

func jsonLines[T any](items []T) ([]byte, error) {
	var out []byte
	for _, item := range items {
		line, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}
