package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/printable"
)

// formatJSONLines writes one JSON object a line, as it comes.
const formatJSONLines = "jsonl"

func (a *app) newAuditCommand() *cobra.Command {
	var query hubv1.AuditQuery
	var since, until string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, oldest first",
		Long: `Show who did what, oldest first, from the last day unless --since or --cursor
says otherwise. -o jsonl writes one JSON object a line as it comes, however long
the trail is; what broke off is gone on with by --cursor and the last id.`,
		Example: `  cloop hub audit --action executor_pool. --pool gpu --since 720h
  cloop hub audit --since 2026-01-01T00:00:00Z -o jsonl=audit.jsonl`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{formatsAnnotation: strings.Join([]string{formatText, formatJSON, formatYAML, formatJSONLines}, ",")},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if since == "" && query.Cursor == 0 {
				since = "24h"
			}
			now := time.Now()
			if query.Since, err = moment(now, since); err != nil {
				return usageError(cmd, fmt.Errorf("--since %w", err))
			}
			if query.Until, err = moment(now, until); err != nil {
				return usageError(cmd, fmt.Errorf("--until %w", err))
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			if targets := a.options.targets(); targets[0].format == formatJSONLines {
				if len(targets) > 1 {
					return usageError(cmd, errors.New("-o jsonl goes alone: leave the other formats away"))
				}
				return a.exportAudit(cmd.Context(), hub, query, targets[0].file)
			}
			items, err := readAudit(cmd.Context(), hub, query)
			if err != nil {
				return fmt.Errorf("read the audit trail: %w", err)
			}
			return a.show(hubv1.AuditPage{Items: listed(items)}, func(w io.Writer) {
				row(w, "ID", "TIME", "ACTOR", "ACTION", "POOL", "OBJECT", "STATE", "DETAIL")
				for _, r := range items {
					row(w, r.ID, r.At.UTC().Format(time.RFC3339), r.Actor, r.Action, dash(r.Pool), dash(r.Object), dash(r.State), dash(oneLine(r.Detail)))
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only what happened since this `TIME`, as 2026-01-31T12:00:00Z or as 24h ago (default 24h)")
	flags.StringVar(&until, "until", "", "only what happened before this `TIME`, written likewise")
	flags.StringVar(&query.Actor, "actor", "", "only what `WHO` did, such as user:alice")
	flags.StringVar(&query.Action, "action", "", "only the `ACTION` of that name, or whose names begin so")
	flags.StringVar(&query.Pool, "pool", "", "only what belongs to the `POOL`")
	flags.StringVar(&query.Object, "object", "", "only what changed the object of this `ID`")
	flags.Int64Var(&query.Cursor, "cursor", 0, "only what comes behind the row of this `ID`")
	flags.IntVar(&query.Limit, "limit", 0, "at most `N` rows (default: all)")
	return cmd
}

// moment reads a time, or how long ago it was; none for an empty text.
func moment(now time.Time, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is no time: write 2026-01-31T12:00:00Z, or 24h for a day ago", text)
	}
	return at, nil
}

// readAudit reads page by page, up to the query's limit.
func readAudit(ctx context.Context, hub *hubclient.Client, query hubv1.AuditQuery) ([]hubv1.AuditRecord, error) {
	const pageSize = 1000
	var items []hubv1.AuditRecord
	for want := query.Limit; ; {
		if query.Limit = pageSize; want > 0 {
			query.Limit = min(pageSize, want-len(items))
		}
		page, err := hub.Audit(ctx, query)
		if err != nil {
			return nil, err
		}
		items = append(items, page.Items...)
		if page.Next == 0 || want > 0 && len(items) >= want {
			return items, nil
		}
		query.Cursor = page.Next
	}
}

func (a *app) exportAudit(ctx context.Context, hub *hubclient.Client, query hubv1.AuditQuery, file string) error {
	export, err := hub.ExportAudit(ctx, query)
	if err != nil {
		return fmt.Errorf("export the audit trail: %w", err)
	}
	defer func() { _ = export.Close() }()
	to := a.stdout
	closed := func() error { return nil }
	if file != "" {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		to, closed = f, f.Close
	}
	// Details hold what others wrote; JSON has escaped most of it already.
	_, err = io.Copy(printable.JSONWriter{To: to}, export)
	if err := errors.Join(err, closed()); err != nil {
		return fmt.Errorf("the export of the audit trail broke off, go on with --cursor and the last id: %w", err)
	}
	return nil
}
