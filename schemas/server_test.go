package schemas_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/schemas"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// A real API server gives the same verdict, path for path and word for word, on
// every document of the corpus and on thousands of changes to the good ones.
func TestVerdictIsTheServers(t *testing.T) {
	server := newServer(t)
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/documents/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	compared, refused := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents, _ := schemas.Decode(file, data)
		for _, document := range documents {
			if !validator.Known(document.Object.GroupVersionKind()) {
				continue
			}
			variants := []*unstructured.Unstructured{document.Object}
			if strings.HasPrefix(filepath.Base(file), "good-") {
				variants = append(variants, mutations(document.Object)...)
			}
			for _, variant := range variants {
				offline := offlineVerdict(validator, variant)
				online := server.verdict(t, variant)
				if diff := cmp.Diff(online, offline); diff != "" {
					t.Errorf("%s: the server says (-), we say (+):\n%s\n%v", file, diff, variant.Object)
				}
				compared++
				if len(online) > 0 {
					refused++
				}
			}
		}
	}
	t.Logf("%d documents compared, %d of them refused", compared, refused)
}

type server struct {
	client    dynamic.Interface
	namespace string
}

func newServer(t *testing.T) *server {
	config, err := clustertest.Start(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	// Thousands of dry runs: the server has priority and fairness of its own.
	config.QPS = -1
	clustertest.InstallCRDs(t, config)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &server{client: client, namespace: clustertest.Namespace(t, config)}
}

// verdict asks twice: once strictly, where the server stops at unknown fields,
// and once without, for what it says of the rest.
func (s *server) verdict(t *testing.T, object *unstructured.Unstructured) []string {
	t.Helper()
	var lines []string
	err := s.create(object, metav1.FieldValidationStrict)
	if err != nil && strings.Contains(err.Error(), "strict decoding error: ") {
		_, list, _ := strings.Cut(err.Error(), "strict decoding error: ")
		for _, one := range strings.Split(list, ", ") {
			lines = append(lines, ": "+one)
		}
		err = s.create(object, metav1.FieldValidationIgnore)
	}
	if err == nil {
		return lines
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatal(err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return append(lines, "undecodable")
	}
	for _, cause := range details.Causes {
		lines = append(lines, strings.TrimPrefix(cause.Field, "<nil>")+": "+cause.Message)
	}
	slices.Sort(lines)
	return lines
}

func (s *server) create(object *unstructured.Unstructured, validation string) error {
	resource := v1alpha1.GroupVersion.WithResource(strings.ToLower(object.GetKind()) + "s")
	object = object.DeepCopy()
	// An offline check knows no namespace to expect.
	_ = unstructured.SetNestedField(object.Object, s.namespace, "metadata", "namespace")
	_, err := s.client.Resource(resource).Namespace(s.namespace).Create(context.Background(), object,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: validation})
	return err
}

func offlineVerdict(validator *schemas.Validator, object *unstructured.Unstructured) []string {
	var lines []string
	for _, problem := range validator.Validate(schemas.Document{Object: object}) {
		switch {
		case problem.Rule == schemas.RuleUnknownField:
			lines = append(lines, ": "+problem.Message)
		case problem.Rule == schemas.RuleMetadata && strings.HasPrefix(problem.Message, "json: "):
			lines = append(lines, "undecodable")
		default:
			lines = append(lines, problem.Path+": "+problem.Message)
		}
	}
	slices.Sort(lines)
	return lines
}

// mutations changes one field at a time, the object's spec and everything in
// it, to values of every type and near every edge.
func mutations(object *unstructured.Unstructured) []*unstructured.Unstructured {
	values := []any{
		nil, "", "x y", "a", "https://example.com/a", "0s", "24h0m1s", "1.5h", "99999h", "999999m", "default", "HOME", "cloop.dev/a",
		strings.Repeat("a", 70), strings.Repeat("a", 300), int64(0), int64(-1), int64(101), int64(100001), 1.5, true, false,
		map[string]any{}, map[string]any{"a": "b"}, map[string]any{"name": "a"}, []any{}, []any{"a", "a"}, []any{map[string]any{"name": "A"}},
	}
	var all []*unstructured.Unstructured
	for _, path := range paths("spec", object.Object["spec"]) {
		for _, value := range values {
			all = append(all, with(object, path, value))
		}
		all = append(all, without(object, path), with(object, path+"/unheard", "of"))
	}
	return slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool { return u == nil })
}

func paths(path string, value any) []string {
	all := []string{path}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			all = append(all, paths(path+"/"+strings.ReplaceAll(name, "/", "~1"), child)...)
		}
	case []any:
		for i, child := range value {
			all = append(all, paths(path+"/"+strconv.Itoa(i), child)...)
		}
	}
	return all
}

func with(object *unstructured.Unstructured, path string, value any) *unstructured.Unstructured {
	return change(object, path, func(parent map[string]any, name string) { parent[name] = value })
}

func without(object *unstructured.Unstructured, path string) *unstructured.Unstructured {
	return change(object, path, func(parent map[string]any, name string) { delete(parent, name) })
}

// change returns a copy in which the parent of path was edited, and nil if the
// parent is no object.
func change(object *unstructured.Unstructured, path string, edit func(parent map[string]any, name string)) *unstructured.Unstructured {
	copied := object.DeepCopy()
	names := strings.Split(path, "/")
	var at any = copied.Object
	for _, name := range names[:len(names)-1] {
		name = strings.ReplaceAll(name, "~1", "/")
		switch node := at.(type) {
		case map[string]any:
			at = node[name]
		case []any:
			index, err := strconv.Atoi(name)
			if err != nil {
				panic(fmt.Sprintf("%s is no index in %s", name, path))
			}
			at = node[index]
		}
	}
	parent, ok := at.(map[string]any)
	if !ok {
		return nil
	}
	edit(parent, strings.ReplaceAll(names[len(names)-1], "~1", "/"))
	return copied
}
