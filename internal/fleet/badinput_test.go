package fleet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/schemas"
)

// fifo, sparse and unreadable make what is no ordinary file of a repository.
func fifo(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(name, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sparse(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(basePool+"# "), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

func unreadable(t *testing.T, name string) {
	t.Helper()
	if err := os.Chmod(name, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(name, 0o755) })
}

// asNobody has this thread read files as somebody without rights, for what is
// run in it.
func asNobody(t *testing.T, run func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		run()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setfsuid(0) }()
	run()
}

// What a repository may have by accident or malice takes a bounded time and
// memory, hides nothing else, and is answered with what to do.
func TestBadInput(t *testing.T) {
	if err := os.Chmod(os.TempDir(), 0o1777); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	const memory, patience = 192 << 20, 20 * time.Second
	v := validator(t)
	euWith := func(lines ...string) map[string]string {
		return with(sound(), map[string]string{"clusters/eu/kustomization.yaml": kustomization(append([]string{"resources: [../../pools/base]"}, lines...)...), "clusters/eu/larger.yaml": ""})
	}
	tenThousand := map[string]string{"hub/kustomization.yaml": "resources: [gpu.yaml]\n", "hub/gpu.yaml": hubPool, "eu/gpu.yaml": basePool, "eu/kustomization.yaml": "resources: [gpu.yaml]\npatches:\n" + strings.Repeat(`- {patch: '[{"op": "add", "path": "/spec/minRunners", "value": 1}]', target: {kind: ExecutorPool}}`+"\n", 10_000)}
	for name, test := range map[string]struct {
		files map[string]string
		make  func(t *testing.T, dir string)
		// says is in the problems, in order of files; none: all is well.
		says []string
		hint string
	}{
		"a YAML file of 50 MiB": {sound(), func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "clusters/eu/larger.yaml"), 50<<20) },
			[]string{"clusters/eu/larger.yaml:1:1: a file beyond the bounds: clusters/eu/larger.yaml is larger than 4 MiB"}, "split it"},
		"a plain file of 50 MiB": {map[string]string{"a.yaml": basePool}, func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "b.yaml"), 50<<20) },
			[]string{"b.yaml:1:1: a file beyond the bounds: b.yaml is larger than 4 MiB"}, "split it"},
		"50 MiB for a generator": {euWith("configMapGenerator: [{name: a, files: [large.yaml]}]"), func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "clusters/eu/large.yaml"), 50<<20) },
			[]string{"large.yaml is larger than 4 MiB"}, ""},
		"50 MiB that nothing refers to": {sound(), func(t *testing.T, dir string) { sparse(t, filepath.Join(dir, "data/large.yaml"), 50<<20) }, nil, ""},
		"a loop of links":               {map[string]string{"a.yaml": basePool, "b.yaml": fleettest.Symlink("c.yaml"), "c.yaml": fleettest.Symlink("b.yaml")}, nil, []string{"b.yaml:1:1: too many levels of symbolic links", "c.yaml:1:1: too many"}, ""},
		"a link to a directory above":   {with(sound(), map[string]string{"clusters/eu/up": fleettest.Symlink("../..")}), nil, nil, ""},
		"a resource in a loop of links": {with(euWith(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [a.yaml]\n", "clusters/eu/a.yaml": fleettest.Symlink("a.yaml")}), nil, []string{"clusters/eu/kustomization.yaml:1:13: a.yaml: too many levels of symbolic links"}, "end at a file"},
		"a FIFO among plain files":      {map[string]string{"a.yaml": basePool}, func(t *testing.T, dir string) { fifo(t, filepath.Join(dir, "b.yaml")) }, []string{"b.yaml:1:1: it is no regular file"}, ""},
		"a FIFO as a resource": {sound(), func(t *testing.T, dir string) {
			_ = os.Remove(filepath.Join(dir, "pools/base/gpu.yaml"))
			fifo(t, filepath.Join(dir, "pools/base/gpu.yaml"))
		}, []string{"pools/base/kustomization.yaml:2:3: gpu.yaml: it is no regular file"}, "replace it by a file"},
		"a FIFO as a patch": {sound(), func(t *testing.T, dir string) {
			_ = os.Remove(filepath.Join(dir, "clusters/eu/larger.yaml"))
			fifo(t, filepath.Join(dir, "clusters/eu/larger.yaml"))
		}, []string{"larger.yaml: it is no regular file"}, ""},
		"a FIFO for a generator":    {euWith("configMapGenerator: [{name: a, files: [pipe]}]"), func(t *testing.T, dir string) { fifo(t, filepath.Join(dir, "clusters/eu/pipe")) }, []string{"it is no regular file"}, ""},
		"a FIFO as a kustomization": {map[string]string{"a.yaml": basePool}, func(t *testing.T, dir string) { fifo(t, filepath.Join(dir, "kustomization.yaml")) }, []string{"kustomization.yaml:1:1: it is no regular file"}, ""},
		"an unreadable file":        {map[string]string{"a.yaml": basePool, "b.yaml": basePool}, func(t *testing.T, dir string) { unreadable(t, filepath.Join(dir, "b.yaml")) }, []string{"b.yaml:1:1: permission denied"}, ""},
		"an unreadable resource":    {sound(), func(t *testing.T, dir string) { unreadable(t, filepath.Join(dir, "pools/base/gpu.yaml")) }, []string{"pools/base/kustomization.yaml:2:3: gpu.yaml: permission denied"}, "make it readable"},
		"an unreadable directory":   {with(sound(), map[string]string{"secret/a.yaml": basePool}), func(t *testing.T, dir string) { unreadable(t, filepath.Join(dir, "secret")) }, []string{"secret:1:1: permission denied"}, "make it readable"},
		"a base in a submodule": {with(euWith(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../vendor/base]\n", "vendor/.git": "gitdir: ../.git/modules/vendor\n", "vendor/base/kustomization.yaml": "resources: [gpu.yaml]\n", "vendor/base/gpu.yaml": basePool}), nil,
			[]string{"clusters/eu/kustomization.yaml:1:13: ../../vendor/base: it is in another repository at vendor, such as a submodule"}, "commit"},
		"a submodule that is not there":    {with(euWith(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../vendor/base]\n", ".gitmodules": "[submodule \"base\"]\n\tpath = vendor/base\n\turl = https://git.example.com/base.git\n"}), func(t *testing.T, dir string) { _ = os.MkdirAll(filepath.Join(dir, "vendor/base"), 0o755) }, []string{"../../vendor/base: it is in another repository at vendor/base"}, "commit"},
		"a circle":                         {map[string]string{"a/kustomization.yaml": "resources: [../b]\n", "b/kustomization.yaml": "resources: [../a]\n"}, nil, []string{"b/kustomization.yaml:1:13: ../a: it refers back to a, in a circle"}, "remove one"},
		"a kustomization of itself":        {map[string]string{"a/kustomization.yaml": "resources: [.]\n"}, nil, []string{"a/kustomization.yaml:1:13: .: it refers back to a, in a circle"}, "remove one"},
		"a base outside of the repository": {with(euWith(), map[string]string{"clusters/eu/kustomization.yaml": "resources: [../../../base]\n"}), nil, []string{"clusters/eu/kustomization.yaml:1:13: ../../../base: it leads out of the repository"}, ""},
		"text that is no UTF-8":            {map[string]string{"a.yaml": strings.Replace(basePool, "name: gpu\n", "name: \xff\xfe\n", 1)}, nil, []string{"a.yaml:"}, ""},
		"a file name that is no UTF-8":     {map[string]string{"a.yaml": basePool, "b\xff.yaml": basePool}, nil, []string{"b\ufffd.yaml:1:1: \"b\\xff.yaml\" is no UTF-8"}, "rename it"},
		"a directory that is no UTF-8":     {with(sound(), map[string]string{"d\xff/a.yaml": basePool}), nil, []string{"d\ufffd:1:1: \"d\\xff\" is no UTF-8"}, "rename it"},
		"ten thousand patches by Flux":     {altered("  patches:\n"+strings.Repeat("  - {patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]', target: {kind: ExecutorPool}}\n", 10_000), nil), nil, []string{"flux/eu.yaml:6:3: Kustomization flux-system/eu: spec.patches: beyond the bounds: 10000 entries"}, "component"},
		"ten thousand patches in a line":   {altered("  patches: ["+strings.Repeat("{patch: '[{\"op\": \"add\", \"path\": \"/spec/minRunners\", \"value\": 1}]', target: {kind: ExecutorPool}}, ", 10_000)+"]\n", nil), nil, []string{"flux/eu.yaml:6:3: Kustomization flux-system/eu: spec.patches: beyond the bounds: 10000 entries"}, "component"},
		"ten thousand patches":             {tenThousand, nil, []string{"eu/kustomization.yaml:1:1: beyond the bounds: 10000 patches"}, "split it"},
		"a device":                         {with(sound(), map[string]string{"pools/base/gpu.yaml": fleettest.Symlink("/dev/zero")}), nil, []string{"gpu.yaml: it leads out of the repository"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := repo(t, test.files)
			if test.make != nil {
				test.make(t, dir)
			}
			for above := dir; above != "/" && above != os.TempDir(); above = filepath.Dir(above) {
				_ = os.Chmod(above, 0o755)
			}
			var report *fleet.Report
			var err error
			keepsTo(t, memory, patience, func() {
				asNobody(t, func() { report, err = fleet.Check(t.Context(), v, dir) })
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Problems) == 0 != (len(test.says) == 0) {
				t.Errorf("problems %v", report.Problems)
			}
			for _, want := range test.says {
				if !slices.ContainsFunc(report.Problems, func(p schemas.Problem) bool {
					return strings.Contains(p.String(), want) && strings.Contains(p.Hint, test.hint) && (p.Hint != "" || p.Rule == "syntax" || p.Rule == "metadata")
				}) {
					t.Errorf("problems %v, want %q with a remedy like %q", report.Problems, want, test.hint)
				}
			}
			if strings.Contains(fmt.Sprint(report.Problems), dir) {
				t.Errorf("problems show the directory: %v", report.Problems)
			}
		})
	}
}

func TestCheckOfABareRepository(t *testing.T) {
	dir := repo(t, map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tbare = true\n", "objects/info/packs": "", "refs/heads/main": "0\n"})
	_, err := fleet.Check(t.Context(), validator(t), dir)
	if err == nil || !strings.HasSuffix(err.Error(), "it is a bare repository, without files: clone it and check the clone") {
		t.Errorf("the error is %v", err)
	}
}
