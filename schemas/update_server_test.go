package schemas_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/schemastest"
)

// A real API server that has stored the first document of an update gives the
// same verdict on the second. What breaks a rule was stored before there was one.
func TestUpdateVerdictIsTheServers(t *testing.T) {
	files, err := filepath.Glob("testdata/updates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no updates: %v", err)
	}
	server := newBench(t)
	server.install(t, withoutRules(t))
	var trials []trial
	for i, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, _ := schemas.Decode(file, data)
		if len(documents) != 2 {
			t.Fatalf("%s has %d documents, want what is stored and what is applied", file, len(documents))
		}
		object, changed := documents[0].Object, documents[1].Object
		object.SetName(fmt.Sprintf("update-%d", i))
		changed.SetName(object.GetName())
		resource := v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
		stored, err := server.client.Resource(resource).Namespace(server.namespace).Create(context.Background(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		trials = append(trials, trial{name: file, stored: stored, object: changed})
	}
	server.install(t, mustCRDs(t))
	server.compare(t, trials)
}

// What is accepted can be read: an object that a controller cannot decode would
// keep it from seeing any.
func TestWhatIsAcceptedDecodes(t *testing.T) {
	validator := mustNewValidator(t)
	all, random := schemastest.Corpus(t, "testdata"), newRandom(t)
	for i := range randomCreations / 2 {
		all = append(all, schemastest.Case{File: fmt.Sprintf("creation %d", i), Object: random.Case(i)})
	}
	decoded := 0
	for _, one := range all {
		// A server drops the status of what is created.
		delete(one.Object.Object, "status")
		if problems := validator.Validate(schemas.Document{Object: one.Object}); len(problems) > 0 {
			continue
		}
		decoded++
		object := one.Object.DeepCopy()
		if err := validator.Default(object); err != nil {
			t.Fatal(err)
		}
		var err error
		switch object.GetKind() {
		case v1alpha1.ExecutorPoolKind:
			_, err = schemas.As[v1alpha1.ExecutorPool](object)
		case v1alpha1.HubPoolKind:
			_, err = schemas.As[v1alpha1.HubPool](object)
		case v1alpha1.PoolSyncKind:
			_, err = schemas.As[v1alpha1.PoolSync](object)
		}
		if err == nil {
			err = readsAsJSON(object)
		}
		if err != nil {
			t.Errorf("%s: %v\n%v", one.File, err, object.Object)
		}
	}
	if decoded < 200 {
		t.Errorf("only %d documents were accepted, too few to show anything", decoded)
	}
}

// readsAsJSON reads an object as a controller's cache does.
func readsAsJSON(object *unstructured.Unstructured) error {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	_, _, err = serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(data, nil, nil)
	return err
}
