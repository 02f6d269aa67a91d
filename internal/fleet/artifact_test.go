package fleet_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// file is a regular file of an archive.
func file(name, text string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text)), PAXRecords: map[string]string{"CLOOP.text": text}}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
}

// archiveOf packs entries as they are; a regular file's text is in its record.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for _, header := range entries {
		text := header.PAXRecords["CLOOP.text"]
		header.PAXRecords = nil
		if err := archive.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// served is the archive as an artifact.
func served(t *testing.T, data []byte) fleet.Artifact {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }))
	t.Cleanup(server.Close)
	return fleet.Artifact{URL: server.URL + "/fleet.tar.gz", Revision: "main@sha1:0", Digest: digestOf(data)}
}

func TestAnArtifactIsUnpacked(t *testing.T) {
	dir := t.TempDir()
	artifact := served(t, fleettest.Archive(t, map[string]string{"clusters/dev/kustomization.yaml": "resources: []\n", "README.md": "hello"}))
	for range 2 {
		tree, err := artifact.Checkout(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(tree.Dir, "clusters/dev/kustomization.yaml")); err != nil || string(text) != "resources: []\n" || tree.Revision != "main@sha1:0" {
			t.Errorf("%q %v at %s", text, err, tree.Revision)
		}
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		if len(left) > 0 {
			t.Errorf("it leaves %v", left)
		}
	}
	if removed, err := fleet.Sweep(filepath.Dir(dir), nil); err != nil || len(removed) != 1 {
		t.Errorf("sweeps %v: %v", removed, err)
	}
}

func TestWhatAnArtifactMayHold(t *testing.T) {
	for name, test := range map[string]struct {
		entries []tar.Header
		kind    error
		want    string
	}{
		"names from here":         {[]tar.Header{file("./a/./b", "x"), {Name: "./", Typeflag: tar.TypeDir}}, nil, ""},
		"directories twice":       {[]tar.Header{{Name: "a/", Typeflag: tar.TypeDir}, file("a/b", "x"), {Name: "a/", Typeflag: tar.TypeDir}}, nil, ""},
		"a link inside":           {[]tar.Header{symlink("a/link", "../b"), file("b", "x")}, nil, ""},
		"a commit of git archive": {[]tar.Header{{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "0"}}, file("a", "x")}, nil, ""},

		"a name above":             {[]tar.Header{file("a/../../b", "x")}, fleet.ErrBuild, `it has a file named "a/../../b"`},
		"an absolute name":         {[]tar.Header{file("/etc/passwd", "x")}, fleet.ErrBuild, `it has a file named "/etc/passwd"`},
		"a repository of Git":      {[]tar.Header{file(".GIT/config", "x")}, fleet.ErrBuild, `it has a file named ".GIT/config"`},
		"a name twice":             {[]tar.Header{file("a", "x"), file("./a", "y")}, fleet.ErrBuild, "twice"},
		"a file as a directory":    {[]tar.Header{file("a", "x"), file("a/b", "y")}, fleet.ErrBuild, "twice"},
		"a link that leaves":       {[]tar.Header{symlink("a", "../b")}, fleet.ErrBuild, "leaves the repository"},
		"an absolute link":         {[]tar.Header{symlink("a", "/etc")}, fleet.ErrBuild, "leaves the repository"},
		"links that leave by two":  {[]tar.Header{file("d/e/f", "x"), symlink("a", "d/e"), symlink("b", "a/../../..")}, fleet.ErrBuild, "leaves the repository"},
		"a file over a link":       {[]tar.Header{symlink("a", "b"), file("a/c", "x")}, fleet.ErrBuild, "twice"},
		"a long link":              {[]tar.Header{symlink("a", strings.Repeat("b/", 3000))}, fleet.ErrBuild, "bytes long"},
		"a hard link":              {[]tar.Header{file("a", "x"), {Name: "b", Linkname: "a", Typeflag: tar.TypeLink}}, fleet.ErrBuild, "neither a file nor"},
		"a device":                 {[]tar.Header{{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}}, fleet.ErrBuild, "neither a file nor"},
		"too deep":                 {[]tar.Header{file(strings.Repeat("d/", 100)+"f", "x")}, fleet.ErrSource, "directories deep"},
		"a size that is not there": {nil, fleet.ErrSource, "more than 256 MiB"},
		"many directories":         {deepFiles(900), fleet.ErrSource, "more than 50000 files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := archiveOf(t, test.entries...)
			if test.entries == nil {
				data = cutShort(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: 1 << 40})
			}
			tree, err := served(t, data).Checkout(t.Context(), t.TempDir())
			switch {
			case test.kind == nil:
				if err != nil {
					t.Fatal(err)
				}
				_ = tree.Close()
			case !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.want):
				t.Errorf("%v, want %v: %s", err, test.kind, test.want)
			}
		})
	}
}

// deepFiles are files each of which is in directories of its own.
func deepFiles(n int) []tar.Header {
	out := make([]tar.Header, n)
	for i := range out {
		out[i] = file(fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 60)), "")
	}
	return out
}

// cutShort is an archive that ends after a header.
func cutShort(t *testing.T, header tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	if err := errors.Join(tar.NewWriter(packed).WriteHeader(&header), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAnArtifactIsWhatTheSourceSays(t *testing.T) {
	good := fleettest.Archive(t, map[string]string{"a": "b"})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(good) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/good":
			_, _ = w.Write(good)
		case "/cut":
			w.Header().Set("Content-Length", "9999")
			_, _ = w.Write(good)
		case "/text":
			_, _ = w.Write([]byte("hello"))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct{ url, digest, want string }{
		"as it says":        {server.URL + "/good", digestOf(good), ""},
		"moved":             {server.URL + "/moved", digestOf(good), ""},
		"another digest":    {server.URL + "/good", digestOf(nil), "its digest ends with"},
		"no digest":         {server.URL + "/good", "", "none of sha256, sha384 and sha512"},
		"a broken digest":   {server.URL + "/good", "md5:0", "none of sha256, sha384 and sha512"},
		"another server":    {server.URL + "/elsewhere", digestOf(good), "another server"},
		"gone":              {server.URL + "/gone", digestOf(good), "the server answers 404"},
		"cut off":           {server.URL + "/cut", digestOf(good), "unexpected EOF"},
		"no archive":        {server.URL + "/text", digestOf([]byte("hello")), "it is no archive"},
		"a file of ours":    {"file:///etc/passwd", digestOf(good), "is \"file\" and not http"},
		"somebody's secret": {strings.Replace(server.URL, "://", "://me:hunter2@", 1) + "/gone?token=hunter2", digestOf(good), "404"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tree, err := fleet.Artifact{URL: test.url, Digest: test.digest}.Checkout(context.Background(), dir)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				_ = tree.Close()
				return
			}
			if !errors.Is(err, fleet.ErrSource) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v, want %s", err, test.want)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

func TestAnArtifactIsBounded(t *testing.T) {
	fleet.SetMaxArtifact(t, 1000)
	var noise strings.Builder
	for i := range 2000 {
		fmt.Fprint(&noise, i*7919%1000)
	}
	_, err := served(t, archiveOf(t, file("a", noise.String()))).Checkout(t.Context(), t.TempDir())
	if !errors.Is(err, fleet.ErrSource) || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}
