package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBinaryOfTheEnvironmentComesFirst(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "kubernetes")
	writeProgram(t, binary)
	t.Setenv(EnvKubernetes, binary)
	t.Setenv(EnvAssets, t.TempDir())
	found, err := FindBinaries(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{binary, "kube-scheduler"}; !slices.Equal(found.Scheduler, want) {
		t.Errorf("scheduler is %q, want %q", found.Scheduler, want)
	}
}

func TestBinaryOfTheEnvironmentMustRun(t *testing.T) {
	t.Setenv(EnvKubernetes, filepath.Join(t.TempDir(), "missing"))
	if _, err := FindBinaries(t.Context(), nil); err == nil || !strings.Contains(err.Error(), EnvKubernetes) {
		t.Errorf("error %v does not name %s", err, EnvKubernetes)
	}
}

func TestAssetsAreCompletedFromTheCache(t *testing.T) {
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		writeProgram(t, filepath.Join(assets, name))
	}
	t.Setenv(EnvKubernetes, "")
	t.Setenv(EnvAssets, assets)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	source, err := findSource()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := source.cached()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o700); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, binary)
	found, err := FindBinaries(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(assets, "etcd")}; !slices.Equal(found.Etcd, want) {
		t.Errorf("etcd is %q, want %q", found.Etcd, want)
	}
	if want := []string{binary, "kube-controller-manager"}; !slices.Equal(found.ControllerManager, want) {
		t.Errorf("controller manager is %q, want %q", found.ControllerManager, want)
	}
}

// An installed cloop finds what was built for it, wherever it is called.
func TestCachedBinaryIsFoundOutsideTheRepository(t *testing.T) {
	t.Setenv(EnvKubernetes, "")
	t.Setenv(EnvAssets, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	binary, err := builtWith().cached()
	if err != nil {
		t.Fatal(err)
	}
	_, err = FindBinaries(t.Context(), nil)
	for _, word := range []string{builtWith().version, binary, EnvKubernetes, EnvAssets, "checkout of " + modulePath} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %v does not say %s", err, word)
		}
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o700); err != nil {
		t.Fatal(err)
	}
	writeProgram(t, binary)
	found, err := FindBinaries(t.Context(), nil)
	if err != nil || !slices.Equal(found.Etcd, []string{binary, "etcd"}) {
		t.Errorf("etcd is %q, %v, want %s", found.Etcd, err, binary)
	}
}

func TestTheProgramKnowsItsSources(t *testing.T) {
	source, err := findSource()
	if err != nil {
		t.Fatal(err)
	}
	if got := builtWith(); got.version != source.version || got.digest != source.digest {
		t.Errorf("the program was built with %s, the sources are %s: run make generate", got.name(), source.name())
	}
}

func TestModuleIsCompleteForAReadOnlyBuild(t *testing.T) {
	source, err := findSource()
	if err != nil {
		t.Fatal(err)
	}
	count, err := source.program().Packages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Kubernetes alone has more; far fewer means that it is not in there.
	if count < 1000 {
		t.Errorf("%d packages", count)
	}
	for _, want := range []string{"component-base/version.gitVersion=" + source.version, "gitMajor=1 ", "client-go/pkg/version.gitVersion="} {
		if !strings.Contains(source.linkerFlags(), want) {
			t.Errorf("linker flags %q lack %q", source.linkerFlags(), want)
		}
	}
}

func writeProgram(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}
