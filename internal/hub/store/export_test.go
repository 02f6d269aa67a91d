package store

import (
	"context"
	"fmt"
	"testing"
)

// Fill leaves the database room for a few more pages, as a disk that is nearly
// full does, until the returned function is called.
func Fill(t testing.TB, s *Store) (free func()) {
	t.Helper()
	ctx := context.Background()
	pragma := func(text string) (n int64) {
		t.Helper()
		if err := s.writer.QueryRowContext(ctx, "PRAGMA "+text).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pragma(fmt.Sprintf("max_page_count=%d", pragma("page_count")+100))
	return func() { pragma("max_page_count=1073741823") }
}

// HoldsOf is what a volume of the pool holds of a project.
func HoldsOf(pool, project string) string { return holdsOf(pool, project) }
