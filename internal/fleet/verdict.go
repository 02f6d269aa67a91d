package fleet

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// verdict is the API server's, at the source.
func (c *checker) verdict(o *renderedObject) []schemas.Problem {
	gvk := o.Object.GroupVersionKind()
	if problem := misnamed(o.Object); problem != nil {
		return []schemas.Problem{o.locate(*problem)}
	}
	if !Applicable(gvk) {
		problem := broken(RuleKindNotApplied, fmt.Sprintf("%s is not applied by a PoolSync", gvk.Kind))
		problem.Object, problem.Path = describe(o.Object), "kind"
		return []schemas.Problem{o.locate(problem)}
	}
	problems := slices.Concat(c.validator.Validate(o.Document), applied(o.Object), principals(o.Object))
	// That rules wait for the rest to be right is no finding: there is one already.
	problems = slices.DeleteFunc(problems, schemas.Problem.Unchecked)
	for i := range problems {
		problems[i] = withoutSecret(gvk.Kind, problems[i])
		// A document that is its only layer has positions of its own.
		if len(o.layers) > 0 || o.variables != nil || problems[i].File == "" || problems[i].Rule == schemas.RuleMetadata {
			problems[i] = o.locate(problems[i])
		}
	}
	return problems
}

// misnamed is the problem of a document that is meant to be something else than what it
// says: a kind of ours in a group that is not, and a kustomization in a file that nobody
// takes for one; nil: it is none.
func misnamed(object *unstructured.Unstructured) *schemas.Problem {
	gvk := object.GroupVersionKind()
	var problem schemas.Problem
	switch {
	case gvk.Group != v1alpha1.Group && strings.HasPrefix(gvk.Group, "cloop.") && slices.Contains([]string{v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind}, gvk.Kind):
		problem = broken(schemas.RuleUnknownKind, fmt.Sprintf("%s is of no group %s", gvk.Kind, gvk.Group))
		problem.Path, problem.Hint = "apiVersion", "write "+v1alpha1.GroupVersion.String()
	case gvk.Group == "kustomize.config.k8s.io" && (gvk.Kind == types.KustomizationKind || gvk.Kind == types.ComponentKind):
		problem = broken(RuleBuild, "a kustomization is only one in a file called kustomization.yaml: here it is taken for a document to apply")
		problem.Path, problem.Hint = "kind", "rename the file to kustomization.yaml"
	default:
		return nil
	}
	problem.Object = describe(object)
	return &problem
}

// serversOwn are fields of metadata by which an apply is refused, or does what
// nobody meant: they come from an object that was read back from a cluster.
var serversOwn = []string{"managedFields", "resourceVersion", "uid"}

// applied is what an apply needs beyond what an API server takes of a document
// that it creates.
func applied(object *unstructured.Unstructured) (problems []schemas.Problem) {
	wrong := func(field, message, hint string) {
		problems = append(problems, schemas.Problem{Rule: schemas.RuleMetadata, Severity: schemas.SeverityError,
			Object: describe(object), Path: "metadata." + field, Message: message, Hint: hint})
	}
	if object.GetName() == "" && object.GetGenerateName() != "" {
		wrong("generateName", "an object that is applied needs a name: each commit would make another one", "write metadata.name")
	}
	for _, field := range serversOwn {
		if _, there, _ := unstructured.NestedFieldNoCopy(object.Object, "metadata", field); there {
			wrong(field, "the field is the cluster's, and none that is applied", "remove it")
		}
	}
	if MisObserved(object) {
		wrong("annotations["+v1alpha1.AnnotationObserve+"]", `must be "true" or "false"`, `write "true", in quotes, to have the object compared and not applied; else "false", or remove it`)
	}
	return problems
}

// principals are those of a HubPool that the hub can call nobody; what is no principal
// at all is the schema's.
func principals(object *unstructured.Unstructured) (problems []schemas.Problem) {
	if !isKind(object, v1alpha1.HubPoolKind) {
		return nil
	}
	judge := func(path, name string) {
		kind, called, _ := strings.Cut(name, ":")
		formed := (kind == "user" || kind == "group" || kind == "role") && called != "" && !strings.ContainsFunc(called, unicode.IsSpace)
		if formed && !hubv1.CanBePrincipal(name) {
			problem := broken(RulePrincipalName, fmt.Sprintf("no user, group or role can be called %q", called))
			problem.Object, problem.Path = describe(object), path
			problems = append(problems, problem)
		}
	}
	audience, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "audience")
	for i, name := range audience {
		judge(fmt.Sprintf("spec.audience[%d]", i), name)
	}
	judge("spec.owner", textAt(object, "spec", "owner"))
	return problems
}
