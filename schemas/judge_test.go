package schemas_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/schemas"
)

// trial is a document to create, or to put in the place of another.
type trial struct {
	// name says where the document comes from.
	name   string
	object *unstructured.Unstructured
	// stored is the object that a server has; nil for a creation.
	stored *unstructured.Unstructured
}

// judgement is what is said of a trial.
type judgement struct {
	// Problems as "path: message", sorted.
	Problems []string
	// Spec as it would be stored, where there is no problem.
	Spec any
}

// bench is a server whose definitions may be replaced.
type bench struct {
	config    *rest.Config
	client    dynamic.Interface
	namespace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	config, err := clustertest.Start(t).RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	// Thousands of dry runs: the server has priority and fairness of its own. It
	// warns of each rule that an update may go on breaking.
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	clustertest.InstallCRDs(t, config)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{config: config, client: client, namespace: clustertest.Namespace(t, config)}
}

// compare holds the validator's judgement of each trial against the server's.
func (s *bench) compare(t *testing.T, trials []trial) {
	t.Helper()
	validator := mustNewValidator(t)
	const atOnce, enough = 8, 10
	var next, refused, different atomic.Int64
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for at := next.Add(1) - 1; at < int64(len(trials)) && different.Load() < enough; at = next.Add(1) - 1 {
				one := trials[at]
				online, err := s.judge(one)
				if err != nil {
					t.Errorf("%s: %v\n%v", one.name, err, one.object.Object)
					return
				}
				offline, err := judge(validator, one)
				if err != nil {
					t.Errorf("%s: %v\n%v", one.name, err, one.object.Object)
					return
				}
				if diff := cmp.Diff(online, offline); diff != "" {
					different.Add(1)
					t.Errorf("%s: the server says (-), we say (+):\n%s\n%s", one.name, diff, describe(one))
				}
				if len(online.Problems) > 0 {
					refused.Add(1)
				}
			}
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d documents compared, %d of them refused", len(trials), refused.Load())
	if good := int64(len(trials)) - refused.Load(); refused.Load() < int64(len(trials)/10) || good < int64(len(trials)/10) {
		t.Error("too few documents of each sort to show anything")
	}
}

func describe(one trial) string {
	text := fmt.Sprintf("document: %v", one.object.Object)
	if one.stored != nil {
		text += fmt.Sprintf("\nstored: %v", one.stored.Object)
	}
	return text
}

// judge asks the server twice: once strictly, where it stops at unknown fields,
// and once without, for what it says of the rest.
func (s *bench) judge(one trial) (judgement, error) {
	var said judgement
	result, err := s.send(one, metav1.FieldValidationStrict)
	if err != nil && strings.Contains(err.Error(), "strict decoding error: ") {
		_, list, _ := strings.Cut(err.Error(), "strict decoding error: ")
		for _, unknown := range strings.Split(list, ", ") {
			said.Problems = append(said.Problems, ": "+unknown)
		}
		result, err = s.send(one, metav1.FieldValidationIgnore)
	}
	if err == nil {
		if len(said.Problems) == 0 {
			said.Spec = result.Object["spec"]
		}
		return said.sorted(), nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return said, err
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		said.Problems = append(said.Problems, "undecodable")
		return said, nil
	}
	for _, cause := range details.Causes {
		message := cause.Message
		if cause.Field == "metadata.name" && namedByServer(one.object) {
			message = generated.ReplaceAllString(message, "${1}xxxxx$2")
		}
		said.Problems = append(said.Problems, strings.TrimPrefix(cause.Field, "<nil>")+": "+message)
	}
	return said.sorted(), nil
}

// generated finds the letters that a server adds to a name.
var generated = regexp.MustCompile(`^(Invalid value: ".*)[a-z0-9]{5}(": metadata.name in body|": a lowercase RFC 1123 subdomain)`)

// namedByServer says whether a server makes a name for a new object: it leaves
// one that is written alone.
func namedByServer(object *unstructured.Unstructured) bool {
	return object.GetName() == "" && object.GetGenerateName() != ""
}

// sorted leaves out what is said a second time: of an update's labels a server
// says everything twice.
func (j judgement) sorted() judgement {
	slices.Sort(j.Problems)
	j.Problems = slices.Compact(j.Problems)
	return j
}

// send creates or updates in a dry run.
func (s *bench) send(one trial, validation string) (*unstructured.Unstructured, error) {
	resource := s.client.Resource(v1alpha1.GroupVersion.WithResource(strings.ToLower(one.object.GetKind()) + "s")).Namespace(s.namespace)
	object := one.object.DeepCopy()
	// An offline check knows no namespace to expect.
	_ = unstructured.SetNestedField(object.Object, s.namespace, "metadata", "namespace")
	ctx, dry := context.Background(), []string{metav1.DryRunAll}
	if one.stored == nil {
		return resource.Create(ctx, object, metav1.CreateOptions{DryRun: dry, FieldValidation: validation})
	}
	object.SetResourceVersion(one.stored.GetResourceVersion())
	return resource.Update(ctx, object, metav1.UpdateOptions{DryRun: dry, FieldValidation: validation})
}

// judge is what the validator says.
func judge(validator *schemas.Validator, one trial) (judgement, error) {
	var said judgement
	for _, problem := range validator.ValidateUpdate(one.stored, schemas.Document{Object: one.object}) {
		switch {
		case problem.Rule == schemas.RuleUnknownField:
			said.Problems = append(said.Problems, ": "+problem.Message)
		case problem.Rule == schemas.RuleMetadata && strings.HasPrefix(problem.Message, "json: "):
			said.Problems = append(said.Problems, "undecodable")
		default:
			said.Problems = append(said.Problems, problem.Path+": "+problem.Message)
		}
	}
	if len(said.Problems) == 0 {
		stored := one.object.DeepCopy()
		if err := validator.Default(stored); err != nil {
			return said, err
		}
		said.Spec = stored.Object["spec"]
	}
	return said.sorted(), nil
}
