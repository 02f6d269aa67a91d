package gitserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
)

// maxPush bounds one request body in bytes. It is far above any repository that
// a local system or a test pushes.
const maxPush = 1 << 30

// Handler serves the bare repositories below root: root/fleet.git is at
// /fleet.git. It offers upload-pack and receive-pack to whoever asks. Without a
// git on PATH every request is answered with 500 and the reason.
func Handler(root string) http.Handler {
	git, err := exec.LookPath("git")
	if err != nil {
		return failing(fmt.Errorf("serve Git repositories: %w: install git", err))
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return failing(fmt.Errorf("serve Git repositories of %s: %w", root, err))
	}
	backend := &cgi.Handler{
		Path: git,
		Args: []string{"http-backend"},
		Dir:  root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root,
			"GIT_HTTP_EXPORT_ALL=1",
			// The caller's own configuration must not change what is served, and
			// pushing is off by default for anonymous callers. A fetch may ask for
			// any commit that a branch contains, as the large forges allow. Whether
			// it may leave files out is the repository's own setting.
			"GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=" + os.DevNull,
			"GIT_CONFIG_COUNT=3",
			"GIT_CONFIG_KEY_0=http.receivepack", "GIT_CONFIG_VALUE_0=true",
			"GIT_CONFIG_KEY_1=uploadpack.allowReachableSHA1InWant", "GIT_CONFIG_VALUE_1=true",
			"GIT_CONFIG_KEY_2=safe.directory", "GIT_CONFIG_VALUE_2=*",
		},
		InheritEnv: []string{"PATH", "HOME", "TMPDIR"},
		Stderr:     io.Discard,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Who asks was judged before, if at all. CGI would put what proves it into
		// the environment of git, for everybody with the same account to see.
		r.Header.Del("Authorization")
		r.Body = http.MaxBytesReader(w, r.Body, maxPush)
		if r.ContentLength >= 0 {
			backend.ServeHTTP(w, r)
			return
		}
		serveSpooled(backend, w, r)
	})
}

// serveSpooled gives the backend a request of known length. git sends a push of
// more than a mebibyte in chunks, which CGI has no way to pass on.
func serveSpooled(backend http.Handler, w http.ResponseWriter, r *http.Request) {
	spool, err := os.CreateTemp("", "cloop-git-push-*")
	if err != nil {
		http.Error(w, fmt.Sprintf("spool the push: %v", err), http.StatusInternalServerError)
		return
	}
	defer func() {
		_ = spool.Close()
		_ = os.Remove(spool.Name())
	}()
	size, err := io.Copy(spool, r.Body)
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("spool the push: %v", err), http.StatusBadRequest)
		return
	}
	whole := r.Clone(r.Context())
	whole.Body, whole.ContentLength, whole.TransferEncoding = spool, size, nil
	backend.ServeHTTP(w, whole)
}

func failing(err error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	})
}
