package schemas

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloop.dev/cloop/apis/v1alpha1"
)

const smallestSync = `
apiVersion: cloop.dev/v1alpha1
kind: PoolSync
metadata: {name: fleet}
spec:
  source: {git: {url: "https://git.example.com/fleet.git"}}
  path: ./clusters/eu
  pruneLimit: {count: 3}
`

func TestDefaultsAreThoseOfTheServer(t *testing.T) {
	object := decodeOne(t, smallestSync).Object
	if err := mustValidator(t).Default(object); err != nil {
		t.Fatal(err)
	}
	sync, err := As[v1alpha1.PoolSync](object)
	if err != nil {
		t.Fatal(err)
	}
	spec := sync.Spec
	if spec.Interval.Duration != time.Minute || spec.Timeout.Duration != 2*time.Minute || !spec.Prune || spec.Drift.Mode != v1alpha1.DriftCorrect {
		t.Errorf("the defaults are %+v", spec)
	}
	if want := (v1alpha1.PruneLimit{Count: 3, Percent: 20}); spec.PruneLimit != want {
		t.Errorf("pruneLimit is %+v, want %+v", spec.PruneLimit, want)
	}
}

func TestSmallestExecutorPoolIsFilled(t *testing.T) {
	data, err := os.ReadFile("testdata/documents/whole/good-smallest-executorpool.yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := decodeOne(t, string(data)).Object
	if err := mustValidator(t).Default(object); err != nil {
		t.Fatal(err)
	}
	pool, err := As[v1alpha1.ExecutorPool](object)
	if err != nil {
		t.Fatal(err)
	}
	if pool.Spec.MinRunners != 0 || pool.Spec.ScaleDownDelay.Duration != 5*time.Minute || pool.Spec.PoolCredentialSecretRef.Key != "credential" {
		t.Errorf("the defaults are %+v", pool.Spec)
	}
	if _, ok := object.Object["spec"].(map[string]any)["template"]; ok {
		t.Error("a template appears that nobody wrote")
	}
}

func TestDefaultLeavesOtherGroupsAlone(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": nil}}
	if err := mustValidator(t).Default(object); err != nil {
		t.Fatal(err)
	}
	if _, ok := object.Object["data"]; !ok {
		t.Error("a field of a Secret was dropped")
	}
}

func TestValidateDoesNotChangeTheDocument(t *testing.T) {
	document := decodeOne(t, smallestSync+"  surprise: 1\n")
	before := document.Object.DeepCopy()
	if problems := mustValidator(t).Validate(document); len(problems) != 1 {
		t.Errorf("found %v, want the unknown field", problems)
	}
	if got, want := mustYAML(t, document.Object.Object), mustYAML(t, before.Object); got != want {
		t.Errorf("the document became\n%s", got)
	}
}

func TestKnown(t *testing.T) {
	validator := mustValidator(t)
	for gvk, want := range map[schema.GroupVersionKind]bool{
		v1alpha1.GroupVersion.WithKind("HubPool"):                    true,
		v1alpha1.GroupVersion.WithKind("Widget"):                     false,
		{Group: "cloop.dev", Version: "v1", Kind: "HubPool"}:         false,
		{Group: "example.com", Version: "v1alpha1", Kind: "HubPool"}: false,
	} {
		if got := validator.Known(gvk); got != want {
			t.Errorf("Known(%v) is %v", gvk, got)
		}
	}
}

func TestHintsNameTheFieldThatWasMeant(t *testing.T) {
	document := decodeOne(t, smallestSync+"  suspendd: true\n  drift: {mod: Report, zzzzzz: 1}\n")
	var hints []string
	for _, problem := range mustValidator(t).Validate(document) {
		hints = append(hints, problem.Hint)
	}
	for _, want := range []string{"did you mean suspend?", "did you mean mode?", "the fields here are ignore, mode"} {
		if !slices.Contains(hints, want) {
			t.Errorf("no hint %q in %q", want, hints)
		}
	}
}

// One validator serves all goroutines, from its first document on.
func TestValidatorIsSafeForConcurrentUse(t *testing.T) {
	validator := mustValidator(t)
	document := decodeOne(t, smallestSync)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if problems := validator.Validate(document); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
	group.Wait()
}

func decodeOne(t testing.TB, text string) Document {
	t.Helper()
	documents, problems := Decode("test.yaml", []byte(text))
	if len(documents) != 1 || len(problems) > 0 {
		t.Fatalf("%d documents, %v", len(documents), problems)
	}
	return documents[0]
}

// BenchmarkValidate is one document, decoded and judged.
func BenchmarkValidate(b *testing.B) {
	validator := mustValidator(b)
	for _, name := range []string{"whole/good-executorpool-of-the-guide", "metadata/bad-unknown-fields", "whole/good-hubpool-pushed", "whole/good-poolsync-with-everything"} {
		b.Run(name, func(b *testing.B) {
			data, err := os.ReadFile(filepath.Join("testdata/documents", name+".yaml"))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				documents, _ := Decode("bench.yaml", data)
				validator.Validate(documents[0])
			}
		})
	}
}

// BenchmarkFirstVerdict is what a command pays that judges one document and
// ends.
func BenchmarkFirstVerdict(b *testing.B) {
	document := decodeOne(b, smallestSync)
	for b.Loop() {
		mustValidator(b).Validate(document)
	}
}

// Each problem is looked up in the text: a hundred thousand of them took hours.
// The library compares each with all before it: sixty thousand took a minute.
func TestManyProblemsOfOneKindAreCutShort(t *testing.T) {
	const entries = 20_000
	list := func(head, entry string) string {
		var text strings.Builder
		text.WriteString("apiVersion: cloop.dev/v1alpha1\nkind: HubPool\nmetadata: {name: gpu}\nspec:\n  maxRunners: 1\n" + head)
		for i := range entries {
			fmt.Fprintf(&text, entry, i)
		}
		return text.String()
	}
	v := mustValidator(t)
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"unknown fields": {list("", "  k%05d: 1\n"), []string{"and 19800 more problems of this kind"}},
		"invalid labels": {list("  labels:\n", "    k%05d: \"-\"\n"), []string{
			"Too many: 20000: must have at most 64 items", "the other 18000 entries are not checked"}},
		"invalid audience": {list("  audience:\n", "  - k%05d\n"), []string{
			"Too many: 20000: must have at most 256 items", "the other 18000 entries are not checked"}},
	} {
		t.Run(name, func(t *testing.T) {
			document := decodeOne(t, test.text)
			first := v.Validate(document)
			for _, want := range test.want {
				if !slices.ContainsFunc(first, func(p Problem) bool { return p.Message == want }) {
					t.Errorf("nobody says %q", want)
				}
			}
			if len(first) > 500 {
				t.Errorf("%d problems", len(first))
			}
			if again := v.Validate(document); !reflect.DeepEqual(first, again) {
				t.Error("another time it tells of others")
			}
		})
	}
}

// What people write is judged whole, or refused for its size.
func TestCollectionsAreBoundedBelowWhatIsJudged(t *testing.T) {
	for _, crd := range mustCRDs(t) {
		eachProps("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema, func(path string, props *apiextensionsv1.JSONSchemaProps) {
			bound := props.MaxItems
			if props.AdditionalProperties != nil {
				bound = props.MaxProperties
			} else if props.Items == nil {
				return
			}
			if !strings.HasPrefix(path, "status") && (bound == nil || *bound >= maxEntries) {
				t.Errorf("%s %s has no bound below %d", crd.Spec.Names.Kind, path, maxEntries)
			}
		})
	}
}
