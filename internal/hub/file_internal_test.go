package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNobodyWaitsForAFileThatHangs(t *testing.T) {
	release, forever := make(chan struct{}), make(chan struct{})
	defer close(forever)
	f := &files{under: map[string]int{}, read: func(name string) ([]byte, error) {
		switch name {
		case "hangs":
			<-release
		case "hangs forever":
			<-forever
		}
		return []byte(name), nil
	}}
	for i := range maxStuck {
		if _, err := f.readFile(context.Background(), "hangs"); err == nil || !strings.Contains(err.Error(), "takes longer") {
			t.Fatalf("read %d ends with %v", i, err)
		}
	}
	f.patience = time.Hour
	// No more of them: each holds a thread.
	if _, err := f.readFile(context.Background(), "hangs"); err == nil || !strings.Contains(err.Error(), "have not come back") {
		t.Fatalf("one more ends with %v", err)
	}
	if data, err := f.readFile(context.Background(), "another"); err != nil || string(data) != "another" {
		t.Errorf("another file: %q, %v", data, err)
	}
	close(release)
	for {
		// Each read that has come back makes room for one.
		if data, err := f.readFile(context.Background(), "hangs"); err == nil && string(data) == "hangs" {
			break
		}
	}
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if _, err := f.readFile(stopped, "hangs forever"); err == nil {
		t.Error("who is told to stop waits on")
	}
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{target, link} {
		if data, err := readRegular(name); err != nil || string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := readRegular(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := readRegular(os.DevNull); err == nil || !strings.Contains(err.Error(), "name a file") {
		t.Errorf("a device: %v", err)
	}
}
