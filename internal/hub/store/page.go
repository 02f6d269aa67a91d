package store

import "context"

// maxPageBytes bounds what one page of a list takes as JSON, about: people's texts
// may be so long that a thousand of them do not fit into memory for each who asks.
// How long they are the database knows without reading them.
const maxPageBytes = 4 << 20

// rowBytes is what a row takes beside the texts whose length is looked at, about.
const rowBytes = 1 << 10

// maxPages is how many pages are read at a time: fewer than there are connections, so
// that whoever reads little, such as a runner that reports, need not wait for them.
const maxPages = 2

// viewPage is view for a page, which may take long.
func (s *Store) viewPage(ctx context.Context, do func(querier) error) error {
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return s.view(ctx, do)
}

// fitting is how many of the first rows make a page, of which one always does.
func fitting[T any](rows []T, bytes func(T) int64) int {
	total := int64(0)
	for i, row := range rows {
		if total += bytes(row) + rowBytes; total > maxPageBytes && i > 0 {
			return i
		}
	}
	return len(rows)
}
