package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kustomizeFacts is what the sources tell kustomize; schemas/kustomize.cue says
// what each means. Paths are fields joined by dots, elements of lists unnamed.
type kustomizeFacts struct {
	Merge  map[string]map[string]string   `json:"merge"`
	Refers map[string]map[string][]string `json:"refers"`
	Apart  map[string][]string            `json:"apart"`
	Images map[string][]string            `json:"images"`
	Groups map[string]groupVersion        `json:"groups"`
	Beside map[string]besideKind          `json:"beside"`
}

type groupVersion struct {
	Group   string `json:"group"`
	Version string `json:"version"`
}

type besideKind struct {
	groupVersion
	Lists map[string]string `json:"lists"`
}

// kinds is the folder of the component that a kustomization refers to.
const kindsComponent = "kustomize/components/kinds/"

// kustomizeFiles adds the component: an OpenAPI document with the merge keys, a
// configuration with the name references, and the kustomization that brings both.
func kustomizeFiles(files map[string][]byte, crds []*apiextensionsv1.CustomResourceDefinition, facts *kustomizeFacts) error {
	if err := facts.check(crds); err != nil {
		return err
	}
	openAPI, err := facts.openAPI(crds)
	if err != nil {
		return err
	}
	files[kindsComponent+"openapi.json"] = openAPI
	configuration, err := yaml.Marshal(facts.configuration())
	if err != nil {
		return fmt.Errorf("write kustomize's configuration: %w", err)
	}
	mark := "# " + generatedMark + "\n"
	files[kindsComponent+"configuration.yaml"] = append([]byte(mark), configuration...)
	files[kindsComponent+"kustomization.yaml"] = []byte(mark + `# Patches merge the kinds' lists by key, and names that change are followed.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
openapi:
  path: openapi.json
configurations:
  - configuration.yaml
`)
	return nil
}

// openAPI says of each kind only which lists merge, and by what: the rest
// changes nothing for kustomize, and is read at each build.
func (f *kustomizeFacts) openAPI(crds []*apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	metadata := jsonObject{"type": "object", "properties": jsonObject{
		"finalizers":      mergedList(""),
		"ownerReferences": mergedList("uid"),
	}}
	definitions := jsonObject{}
	for _, kind := range slices.Sorted(maps.Keys(f.Beside)) {
		beside := f.Beside[kind]
		properties := jsonObject{"metadata": metadata}
		for field, key := range beside.Lists {
			properties[field] = mergedList(key)
		}
		definitions[definitionName(beside.Group, beside.Version, kind)] = definition(beside.Group, beside.Version, kind, properties)
	}
	for _, crd := range crds {
		kind := crd.Spec.Names.Kind
		for _, version := range crd.Spec.Versions {
			root := version.Schema.OpenAPIV3Schema.Properties["spec"]
			properties := jsonObject{"metadata": metadata}
			if spec := f.merged(kind, "spec", &root); spec != nil {
				properties["spec"] = spec
			}
			definitions[definitionName(crd.Spec.Group, version.Name, kind)] = definition(crd.Spec.Group, version.Name, kind, properties)
		}
	}
	return indented(jsonObject{
		"swagger":     "2.0",
		"info":        jsonObject{"title": "Merge keys for kustomize. " + generatedMark, "version": "v1"},
		"paths":       jsonObject{},
		"definitions": definitions,
	})
}

func definitionName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.TrimPrefix(strings.Join(append(parts, version, kind), "."), ".")
}

func definition(group, version, kind string, properties jsonObject) jsonObject {
	return jsonObject{
		"type": "object", "properties": properties,
		"x-kubernetes-group-version-kind": []any{jsonObject{"group": group, "version": version, "kind": kind}},
	}
}

func mergedList(key string) jsonObject {
	list := jsonObject{"type": "array", "items": jsonObject{"type": "object"}, "x-kubernetes-patch-strategy": "merge"}
	if key == "" {
		list["items"] = jsonObject{"type": "string"}
	} else {
		list["x-kubernetes-patch-merge-key"] = key
	}
	return list
}

// merged describes the lists below a field that merge; nil where there are none.
func (f *kustomizeFacts) merged(kind, path string, schema *apiextensionsv1.JSONSchemaProps) jsonObject {
	if schema.Items != nil {
		keys := schema.XListMapKeys
		if key, ok := f.Merge[kind][path]; ok {
			keys = []string{key}
		}
		if len(keys) == 0 {
			return nil
		}
		list := mergedList(keys[0])
		if len(keys) > 1 {
			list["x-kubernetes-list-map-keys"] = keys
		}
		if inner := f.merged(kind, path, &apiextensionsv1.JSONSchemaProps{Properties: schema.Items.Schema.Properties}); inner != nil {
			list["items"] = inner
		}
		return list
	}
	properties := jsonObject{}
	for name := range schema.Properties {
		property := schema.Properties[name]
		if inner := f.merged(kind, path+"."+name, &property); inner != nil {
			properties[name] = inner
		}
	}
	if len(properties) == 0 {
		return nil
	}
	return jsonObject{"type": "object", "properties": properties}
}

// configuration is kustomize's own format: for each kind that is referred to,
// the fields that do.
func (f *kustomizeFacts) configuration() any {
	specs := map[string][]any{}
	for _, kind := range slices.Sorted(maps.Keys(f.Refers)) {
		for _, path := range slices.Sorted(maps.Keys(f.Refers[kind])) {
			for _, target := range f.Refers[kind][path] {
				specs[target] = append(specs[target], fieldSpec(kind, path))
			}
		}
	}
	var references []any
	for _, target := range slices.Sorted(maps.Keys(specs)) {
		reference := jsonObject{"kind": target, "version": f.Groups[target].Version, "fieldSpecs": specs[target]}
		if group := f.Groups[target].Group; group != "" {
			reference["group"] = group
		}
		references = append(references, reference)
	}
	var images []any
	for _, kind := range slices.Sorted(maps.Keys(f.Images)) {
		for _, path := range f.Images[kind] {
			images = append(images, fieldSpec(kind, path))
		}
	}
	return jsonObject{"nameReference": references, "images": images}
}

func fieldSpec(kind, path string) jsonObject {
	return jsonObject{"group": "cloop.dev", "kind": kind, "path": strings.ReplaceAll(path, ".", "/")}
}

// check holds the facts against the definitions, both ways.
func (f *kustomizeFacts) check(crds []*apiextensionsv1.CustomResourceDefinition) error {
	named := map[string]bool{}
	for kind, fields := range f.Refers {
		for path, targets := range fields {
			for _, target := range targets {
				if _, ok := f.Groups[target]; !ok {
					return fmt.Errorf("schemas/kustomize.cue: %s %s refers to %s, of which groups says nothing", kind, path, target)
				}
			}
			named[kind+" "+strings.TrimSuffix(path, ".name")] = true
		}
	}
	for kind, paths := range f.Apart {
		for _, path := range paths {
			named[kind+" "+strings.TrimSuffix(path, ".name")] = true
		}
	}
	known := map[string]bool{}
	for _, crd := range crds {
		kind := crd.Spec.Names.Kind
		for _, version := range crd.Spec.Versions {
			spec := version.Schema.OpenAPIV3Schema.Properties["spec"]
			var missing []string
			eachField("spec", &spec, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
				known[kind+" "+path] = true
				if isName(path, schema) && !named[kind+" "+strings.TrimSuffix(path, ".name")] {
					missing = append(missing, path)
				}
			})
			if len(missing) > 0 {
				slices.Sort(missing)
				return fmt.Errorf("schemas/kustomize.cue: say under refers or apart what %s of %s names", strings.Join(missing, ", "), kind)
			}
		}
	}
	return f.checkPaths(known)
}

func (f *kustomizeFacts) checkPaths(known map[string]bool) error {
	var all []string
	add := func(kind, path string) { all = append(all, kind+" "+path) }
	for kind, fields := range f.Merge {
		for path := range fields {
			add(kind, path)
		}
	}
	for kind, fields := range f.Refers {
		for path := range fields {
			add(kind, path)
		}
	}
	for _, lists := range []map[string][]string{f.Apart, f.Images} {
		for kind, paths := range lists {
			for _, path := range paths {
				add(kind, path)
			}
		}
	}
	slices.Sort(all)
	for _, one := range all {
		if !known[one] {
			return fmt.Errorf("schemas/kustomize.cue: there is no field %s", one)
		}
	}
	return nil
}

// isName says whether a field looks as if it named another object.
func isName(path string, schema *apiextensionsv1.JSONSchemaProps) bool {
	field := path[strings.LastIndexByte(path, '.')+1:]
	return schema.Type == "string" && (field == "name" || strings.HasSuffix(field, "Name"))
}

func eachField(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(path string, schema *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name := range schema.Properties {
		property := schema.Properties[name]
		eachField(path+"."+name, &property, visit)
	}
	if schema.Items != nil {
		for name := range schema.Items.Schema.Properties {
			property := schema.Items.Schema.Properties[name]
			eachField(path+"."+name, &property, visit)
		}
	}
}
