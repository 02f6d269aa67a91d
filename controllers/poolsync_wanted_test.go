package controllers

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// wantedFrom is an object as a build wants it.
func wantedFrom(t testing.TB, object *unstructured.Unstructured) *wanted {
	t.Helper()
	w, err := wantedOf(object)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWantedIsWhatItWasMadeOf(t *testing.T) {
	pool := newPool()
	pool.SetNamespace("pools")
	pool.SetName("gpu")
	pool.Object["spec"] = map[string]any{"maxRunners": int64(4), "ratio": 0.5, "list": []any{"<&>", nil, true}}
	w := wantedFrom(t, pool)
	if got := w.object(); !reflect.DeepEqual(got.Object, pool.Object) {
		t.Errorf("it has become %v, from %v", got.Object, pool.Object)
	}
	w.object().SetName("other")
	other := wantedFrom(t, pool)
	if !w.same(other) || w.same(nil) || (*wanted)(nil).same(w) || w.named().GetName() != "gpu" || idOf(w.named()) != w.id {
		t.Errorf("%+v and %+v are not the same", w, other)
	}
	other.text = append(other.text, ' ')
	if w.same(other) {
		t.Error("two that differ are the same")
	}
}

// What the cluster is held to is kept for as long as the process runs, and twice while
// a commit is applied: as trees it had two and a half kilobytes for each pool.
func TestABuildIsKeptAsText(t *testing.T) {
	const pools, each = 500, 1500
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range thousands(pools) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &poolSyncReconciler{validator: validator}
	m := &syncMemory{newest: &build{path: "clusters/dev", byID: map[objectID]*wanted{}}}
	if err := r.render(t.Context(), &v1alpha1.PoolSync{}, fleet.NewBuilder(validator), dir, m.newest, nil); err != nil || len(m.newest.objects) != pools {
		t.Fatal(err, len(m.newest.objects))
	}
	with := heapInUse()
	runtime.KeepAlive(m)
	m.newest = nil
	kept := (with - heapInUse()) / pools
	t.Logf("%d bytes are kept of an object", kept)
	if kept > each {
		t.Errorf("a build keeps %d bytes of an object, want at most %d", kept, each)
	}
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
