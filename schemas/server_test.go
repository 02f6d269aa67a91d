package schemas_test

import (
	"context"
	"errors"
	"slices"
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
	"cloop.dev/cloop/schemas/schemastest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// A real API server gives the same verdict, path for path and word for word, on
// every document of the corpus and on thousands of changes to the good ones.
func TestVerdictIsTheServers(t *testing.T) {
	server := newServer(t)
	validator := mustNewValidator(t)
	compared, refused := 0, 0
	for _, one := range schemastest.Variants(t, "testdata") {
		offline := offlineVerdict(validator, one.Object)
		online := server.verdict(t, one.Object)
		if diff := cmp.Diff(online, offline); diff != "" {
			t.Errorf("%s: the server says (-), we say (+):\n%s\n%v", one.File, diff, one.Object)
		}
		compared++
		if len(online) > 0 {
			refused++
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
