package agent

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if r, err := theRepository(); err == nil {
		_ = os.RemoveAll(filepath.Dir(r.caFile))
	}
	os.Exit(code)
}
