package schemas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/schemastest"
)

// How many random documents and updates are compared. CLOOP_CASES=N compares as
// many times more; CLOOP_SEED=N repeats a run.
const (
	randomCreations = 3000
	storedObjects   = 300
	changesToEach   = 8
)

// A real API server judges random documents as the validator does, word for
// word, and fills in the same defaults.
func TestRandomDocumentsAreJudgedAsByTheServer(t *testing.T) {
	server := newBench(t)
	random := newRandom(t)
	var trials []trial
	for i := range randomCreations * times(t) {
		trials = append(trials, trial{name: fmt.Sprintf("creation %d", i), object: random.Case(i)})
	}
	server.compare(t, trials)
}

// The same holds for changes to objects that were stored before there were any
// rules: what was wrong and stays as it is counts for nothing, and rules on
// changes are heard.
func TestRandomUpdatesAreJudgedAsByTheServer(t *testing.T) {
	server := newBench(t)
	random := newRandom(t)
	server.install(t, withoutRules(t))
	stored := server.store(t, random, storedObjects*times(t))
	server.install(t, mustCRDs(t))
	var trials []trial
	for i, old := range stored {
		for j := range changesToEach {
			number := i*changesToEach + j
			trials = append(trials, trial{name: fmt.Sprintf("change %d of object %d", number, i), object: random.Change(old, number), stored: old})
		}
	}
	server.compare(t, trials)
}

func newRandom(t *testing.T) *schemastest.Random {
	t.Helper()
	return schemastest.NewRandom(t, newSeed(t))
}

func newSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("CLOOP_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("CLOOP_SEED: %v", err)
		}
	}
	t.Logf("the seed is %d; CLOOP_SEED=%d repeats this run", seed, seed)
	return seed
}

func times(t *testing.T) int {
	t.Helper()
	given := os.Getenv("CLOOP_CASES")
	if given == "" {
		return 1
	}
	factor, err := strconv.Atoi(given)
	if err != nil || factor < 1 {
		t.Fatalf("CLOOP_CASES is %q, want a number from 1", given)
	}
	return factor
}

// withoutRules are the definitions with a spec that may be anything.
func withoutRules(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := mustCRDs(t)
	for _, definition := range all {
		anything := true
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	return all
}

func mustCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// install replaces the definitions, and waits until the server judges by them.
func (s *bench) install(t *testing.T, definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	client, err := apiextensions.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for _, definition := range definitions {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			now, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, definition.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			now.Spec.Versions = definition.Spec.Versions
			_, err = client.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, now, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		anything := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XPreserveUnknownFields != nil
		bad := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": definition.Spec.Names.Kind,
			"metadata": map[string]any{"name": "probe"}, "spec": map[string]any{"maxRunners": "x"},
		}}
		err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			_, err := s.send(trial{object: bad}, metav1.FieldValidationIgnore)
			if err != nil && !apierrors.IsInvalid(err) {
				return false, err
			}
			return anything == (err == nil), nil
		})
		if err != nil {
			t.Fatalf("%s does not come into force: %v", definition.Name, err)
		}
	}
}

// store creates random objects, each with a name of its own.
func (s *bench) store(t *testing.T, random *schemastest.Random, count int) []*unstructured.Unstructured {
	t.Helper()
	stored := make([]*unstructured.Unstructured, count)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < count; i += 8 {
				object := random.Stored(i)
				object.SetName(fmt.Sprintf("object-%d", i))
				resource := v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
				var err error
				stored[i], err = s.client.Resource(resource).Namespace(s.namespace).Create(context.Background(), object, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("store object %d: %v\n%v", i, err, object.Object)
					return
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return stored
}

// A run is repeated by its seed, and asks nothing of the order of its cases.
func TestRandomDocumentsRepeat(t *testing.T) {
	one, other := schemastest.NewRandom(t, 7), schemastest.NewRandom(t, 7)
	seen := map[string]bool{}
	for i := 99; i >= 0; i-- {
		_ = one.Case(i)
	}
	for i := range 100 {
		a, b := mustJSON(t, one.Case(i)), mustJSON(t, other.Case(i))
		if a != b {
			t.Fatalf("case %d is one thing and another:\n%s\n%s", i, a, b)
		}
		if a, b = mustJSON(t, one.Change(one.Stored(i), i)), mustJSON(t, other.Change(other.Stored(i), i)); a != b {
			t.Fatalf("change %d is one thing and another:\n%s\n%s", i, a, b)
		}
		seen[a] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 cases are only %d different ones", len(seen))
	}
}

func mustJSON(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	data, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
