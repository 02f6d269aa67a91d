package fleet

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// Report is all that is wrong with a repository.
type Report struct {
	// Roots that were rendered, by path.
	Roots []RootReport `json:"roots"`
	// Problems of all roots, by file and line, each once however many roots
	// show it.
	Problems []schemas.Problem `json:"problems"`
	// Subjects are the rendered objects, root by root, and the files that have a
	// problem of their own.
	Subjects []Subject `json:"subjects"`
	// Documents counts the rendered objects, Judged those of them that are of
	// cloop.dev: of others only the kind is looked at.
	Documents int `json:"documents"`
	Judged    int `json:"judged"`
	// Pools counts hub pools, each once however many halves and clusters it has.
	Pools int `json:"pools"`
}

// RootReport is one kustomization root, or one path that was asked for.
type RootReport struct {
	Path string `json:"path"`
	// Documents, Judged and Pools count as those of a Report do.
	Documents int `json:"documents"`
	Judged    int `json:"judged"`
	Pools     int `json:"pools"`
	// Failed says that the root has an error of its own; rules between roots
	// count for none of them.
	Failed bool `json:"failed"`
}

// Unfound lists the roots in which there was nothing to check and nothing wrong
// either: a wrong path more often than a sound one.
func (r *Report) Unfound() []string {
	var paths []string
	for _, root := range r.Roots {
		if root.Documents == 0 && !root.Failed {
			paths = append(paths, root.Path)
		}
	}
	return paths
}

// Failed says whether any problem is an error rather than a warning.
func (r *Report) Failed() bool { return hasError(r.Problems) }

func hasError(problems []schemas.Problem) bool {
	return slices.ContainsFunc(problems, func(p schemas.Problem) bool { return p.Severity == schemas.SeverityError })
}

// Check renders every kustomization below root that no other refers to, or the
// paths, relative to root; a repository without a kustomization is one root. It
// validates every document, applies the rules that span documents, and puts
// each problem at its source. A root that cannot be rendered is a problem like
// any other. Its error is ErrPathNotFound for a path that is not there, or ErrBuild
// where the repository itself cannot be read.
func Check(ctx context.Context, v *schemas.Validator, root string, paths ...string) (*Report, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(root, pathReason(err))
	}
	defer b.close()
	if len(paths) == 0 {
		if paths, err = b.roots(ctx); err != nil {
			return nil, err
		}
	}
	c := newChecker(v)
	for _, name := range paths {
		out, err := b.build(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(out.objects) == 0 && len(out.problems) == 0 && out.kustomization != "" {
			out.problems = append(out.problems, located(broken(RuleEmptyRoot, "it has nothing to apply"), out.kustomization))
		}
		c.root(name, out)
	}
	return c.result(), nil
}

// BuildChecked is Build, and Check of that one path, with one rendering for
// both: for whoever applies what it has checked. Its errors are Build's; a
// problem of a document is in the report only.
func BuildChecked(ctx context.Context, v *schemas.Validator, root, path string) ([]Rendered, *Report, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, nil, pathError(path, err)
	}
	defer b.close()
	out, err := b.build(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	rendered, err := out.sound(path)
	if err != nil {
		return nil, nil, err
	}
	c := newChecker(v)
	c.root(path, out)
	return rendered, c.result(), nil
}

// maxDirectories bounds how many directories are searched for kustomizations.
const maxDirectories = 20_000

// roots finds the directories with a kustomization that no other refers to.
func (b *builder) roots(ctx context.Context) ([]string, error) {
	found, referred := []string{}, map[string]bool{}
	visited := 0
	err := fs.WalkDir(b.root.FS(), ".", func(dir string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.IsDir():
			return nil
		case dir != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		}
		if visited++; visited > maxDirectories {
			return fmt.Errorf("%w: more than %d directories", errBounds, maxDirectories)
		}
		kustomization, err := kustomizationIn(b.root, dir)
		if err != nil || kustomization == "" {
			return err
		}
		if !b.refersTo(dir, kustomization, referred) {
			found = append(found, dir)
		}
		return nil
	})
	if err != nil {
		return nil, buildError("the repository", pathReason(err))
	}
	roots := slices.DeleteFunc(found, func(dir string) bool { return referred[dir] })
	if len(found) == 0 {
		return []string{"."}, nil
	}
	if len(roots) == 0 {
		// They refer to each other in a circle, which kustomize reports.
		return found, nil
	}
	return roots, nil
}

// refersTo notes the directories that a kustomization refers to, and says
// whether it is a component, which is nothing by itself.
func (b *builder) refersTo(dir, file string, referred map[string]bool) (component bool) {
	data, err := (&scan{root: b.root}).read(file)
	if err != nil {
		return false
	}
	var k kustomizationFile
	if err := yaml.Unmarshal(data, &k); err != nil {
		return false
	}
	for _, entry := range k.directories() {
		referred[path.Join(dir, entry.Value)] = true
	}
	return k.Kind == types.ComponentKind
}

// checker gathers what the roots say.
type checker struct {
	validator *schemas.Validator
	report    *Report
	findings  []finding
	// files: root and file → index of the subject.
	files map[[2]string]int
	// pools and hubPools of all roots, for the rules between them.
	pools    []half
	hubPools []half
	// named are the hub pools that the halves speak of.
	named map[string]bool
}

func newChecker(v *schemas.Validator) *checker {
	return &checker{validator: v, named: map[string]bool{}, files: map[[2]string]int{},
		report: &Report{Roots: []RootReport{}, Problems: []schemas.Problem{}, Subjects: []Subject{}}}
}

// result is the report, once every root was added.
func (c *checker) result() *Report {
	c.between()
	c.finish()
	return c.report
}

// half is one half of a pool.
type half struct {
	*renderedObject
	// hubPool is the name that both halves share.
	hubPool string
	root    string
	// subject is its index in the report.
	subject int
}

// HubPoolName is the hub pool that an ExecutorPool or a HubPool speaks of:
// spec.hubPool of the former, and else the object's own name.
func HubPoolName(obj *unstructured.Unstructured) string {
	if obj.GetKind() == v1alpha1.ExecutorPoolKind {
		if name, _, _ := unstructured.NestedString(obj.Object, "spec", "hubPool"); name != "" {
			return name
		}
	}
	return obj.GetName()
}

// hubPoolField is the field that HubPoolName is read from.
func hubPoolField(obj *unstructured.Unstructured) string {
	if name, _, _ := unstructured.NestedString(obj.Object, "spec", "hubPool"); name != "" {
		return "spec.hubPool"
	}
	return "metadata.name"
}

// root checks what one root renders by itself.
func (c *checker) root(name string, out *rendering) {
	report := RootReport{Path: name, Documents: len(out.objects)}
	before := len(c.findings)
	for _, problem := range out.problems {
		c.find(c.fileSubject(name, problem.File), problem)
	}
	seen := map[string]*renderedObject{}
	serving, named := map[string]*renderedObject{}, map[string]bool{}
	for i := range out.objects {
		o := &out.objects[i]
		if o.Object.GroupVersionKind().Group == v1alpha1.Group {
			report.Judged++
		}
		subject := c.objectSubject(name, o)
		c.find(subject, c.object(o)...)
		if first, ok := seen[identity(o.Object)]; ok {
			c.find(subject, o.problem(RuleDuplicateObject, "metadata.name", fmt.Sprintf("also defined at %s:%d", first.File, first.Line)))
			continue
		}
		seen[identity(o.Object)] = o
		switch {
		case isKind(o.Object, v1alpha1.HubPoolKind):
			named[HubPoolName(o.Object)] = true
			c.hubPools = append(c.hubPools, half{o, HubPoolName(o.Object), name, subject})
		case isKind(o.Object, v1alpha1.ExecutorPoolKind):
			named[HubPoolName(o.Object)] = true
			c.pools = append(c.pools, half{o, HubPoolName(o.Object), name, subject})
			c.find(subject, duplicatePool(serving, o)...)
		}
	}
	report.Failed, report.Pools = anyError(c.findings[before:]), len(named)
	maps.Copy(c.named, named)
	c.report.Roots = append(c.report.Roots, report)
	c.report.Documents += report.Documents
	c.report.Judged += report.Judged
	c.report.Pools = len(c.named)
}

// object is the API server's verdict, at the source.
func (c *checker) object(o *renderedObject) []schemas.Problem {
	gvk := o.Object.GroupVersionKind()
	if !Applicable(gvk) {
		return []schemas.Problem{o.problem(RuleKindNotApplied, "kind", fmt.Sprintf("%s is not applied by a PoolSync", gvk.Kind))}
	}
	problems := c.validator.Validate(o.Document)
	if len(o.layers) == 0 {
		return problems
	}
	for i := range problems {
		problems[i] = o.locate(problems[i])
	}
	return problems
}

// problem is a broken rule about one field of the object.
func (o *renderedObject) problem(rule, path, message string) schemas.Problem {
	problem := broken(rule, message)
	problem.Object, problem.Path = describe(o.Object), path
	return o.locate(problem)
}

func describe(obj *unstructured.Unstructured) string {
	name := obj.GetName()
	if namespace := obj.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(obj.GetKind() + " " + name)
}

// identity is equal for documents that are one object to an API server.
func identity(obj *unstructured.Unstructured) string {
	return strings.Join([]string{obj.GroupVersionKind().Group, obj.GetKind(), obj.GetNamespace(), obj.GetName()}, "|")
}

// duplicatePool finds a second ExecutorPool for one hub pool. serving: hub and
// pool → the first.
func duplicatePool(serving map[string]*renderedObject, o *renderedObject) []schemas.Problem {
	hub, _, _ := unstructured.NestedString(o.Object.Object, "spec", "hubURL")
	key := strings.TrimRight(hub, "/") + "|" + HubPoolName(o.Object)
	first, ok := serving[key]
	if !ok {
		serving[key] = o
		return nil
	}
	return []schemas.Problem{o.problem(RuleDuplicatePool, hubPoolField(o.Object),
		fmt.Sprintf("hub pool %s is served by %s already", HubPoolName(o.Object), describe(first.Object)))}
}

// between applies the rules that join the two halves of a pool.
func (c *checker) between() {
	defined := map[string]half{}
	for _, hub := range c.hubPools {
		if first, ok := defined[hub.hubPool]; ok && first.root == hub.root {
			c.find(hub.subject, hub.problem(RuleDuplicateHubPool, "metadata.name", fmt.Sprintf("hub pool %s is defined at %s:%d already", hub.hubPool, first.File, first.Line)))
			continue
		} else if !ok {
			defined[hub.hubPool] = hub
		}
	}
	served := map[string]bool{}
	for _, pool := range c.pools {
		served[pool.hubPool] = true
		hub, ok := defined[pool.hubPool]
		switch {
		case ok:
			c.compareHalves(pool, hub)
		case len(c.hubPools) > 0:
			c.find(pool.subject, pool.problem(RulePoolWithoutHubPool, hubPoolField(pool.Object), fmt.Sprintf("no HubPool defines hub pool %s", pool.hubPool)))
		}
	}
	if len(c.pools) == 0 {
		return
	}
	for name, hub := range defined {
		if !served[name] {
			c.find(hub.subject, hub.problem(RuleHubPoolWithoutPool, "metadata.name", fmt.Sprintf("no ExecutorPool serves hub pool %s", name)))
		}
	}
}

func (c *checker) compareHalves(pool, hub half) {
	cluster, okCluster, _ := unstructured.NestedInt64(pool.Object.Object, "spec", "maxRunners")
	allowed, okHub, _ := unstructured.NestedInt64(hub.Object.Object, "spec", "maxRunners")
	if okCluster && okHub && cluster > allowed {
		c.find(pool.subject, pool.problem(RuleMaximumAboveHub, "spec.maxRunners", fmt.Sprintf("%d is above the hub pool's maxRunners %d (%s:%d)", cluster, allowed, hub.File, hub.Line)))
	}
	labels, _, _ := unstructured.NestedStringMap(hub.Object.Object, "spec", "labels")
	runner, _, _ := unstructured.NestedStringMap(pool.Object.Object, "spec", "runnerLabels")
	for key, value := range runner {
		if of, ok := labels[key]; ok && of != value {
			c.find(pool.subject, pool.problem(RuleLabelsDisagree, "spec.runnerLabels["+key+"]", fmt.Sprintf("%q is %q at the hub pool (%s:%d)", value, of, hub.File, hub.Line)))
		}
	}
}
