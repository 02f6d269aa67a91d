package removal_test

import (
	"os"
	"path/filepath"
	"testing"

	"cloop.dev/cloop/internal/removal"
	"cloop.dev/cloop/internal/removal/removaltest"
)

func TestDirectoriesThatARunClosedAreRemoved(t *testing.T) {
	removaltest.Unprivileged(t, func(dir string) {
		left := filepath.Join(dir, "left")
		if err := removaltest.Close(left); err != nil {
			t.Error(err)
		}
		if err := removal.All(left); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(left); !os.IsNotExist(err) {
			t.Errorf("it is still there (%v)", err)
		}
		if err := removal.All(left); err != nil {
			t.Errorf("what is gone is no error: %v", err)
		}
	})
}
