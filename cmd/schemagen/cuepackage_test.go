package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cuelabs.dev/go/oci/ociregistry/ocimem"
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/mod/modcache"
	"cuelang.org/go/mod/modconfig"
	"cuelang.org/go/mod/modregistry"
	"cuelang.org/go/mod/module"
	"cuelang.org/go/mod/modzip"

	"cloop.dev/cloop/schemas"
	"cloop.dev/cloop/schemas/schemastest"
)

// Pools written in CUE with the package compile, and what they export is good
// in the validator's eyes.
func TestPoolsInCUEExportWhatTheValidatorAccepts(t *testing.T) {
	fleet, err := buildCUE(vendored(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	exported, err := fleet.LookupPath(cue.ParsePath("manifests")).String()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	documents, problems := schemas.Decode("exported", []byte(exported))
	for _, document := range documents {
		problems = append(problems, validator.Validate(document)...)
		names = append(names, document.Object.GetKind()+" "+document.Object.GetName())
		// Git owns the whole spec, so that nothing may be in it that nobody wrote.
		if spec := document.Object.Object["spec"].(map[string]any); spec["minRunners"] != nil || spec["deletionPolicy"] != nil {
			t.Errorf("the export spells out defaults:\n%s", exported)
		}
	}
	for _, problem := range problems {
		t.Errorf("%s\n%s", problem, exported)
	}
	if want := []string{"ExecutorPool gpu", "ExecutorPool small", "HubPool gpu"}; !slices.Equal(names, want) {
		t.Errorf("exported %v, want %v", names, want)
	}
}

func TestCUERefusesBadPools(t *testing.T) {
	for name, bad := range map[string]struct{ text, want string }{
		"a misspelt field":           {`pools: gpu: spec: maxRuners: 3`, "maxRuners"},
		"a text for a number":        {`pools: extra: spec: maxRunners: "3"`, "maxRunners"},
		"a number out of bounds":     {`pools: extra: spec: maxRunners: -1`, "maxRunners"},
		"no required field":          {`pools: extra: spec: minRunners: 1`, "maxRunners"},
		"a word of nobody":           {`hub: gpu: spec: deletionPolicy: "Drop"`, "deletionPolicy"},
		"a text against its pattern": {`pools: small: spec: scaleDownDelay: "soon"`, "scaleDownDelay"},
		"an entry twice":             {`hub: gpu: spec: audience: ["group:ml-team", "group:ml-team"]`, "audience"},
		"an illegal name":            {`pools: "Big": spec: maxRunners: 1`, "metadata.name"},
		"a name that the hub bars":   {`hub: "a.b": spec: maxRunners: 1`, "metadata.name"},
		"a status":                   {`pools: gpu: status: runners: 1`, "status"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := vendored(t)
			if err := os.WriteFile(filepath.Join(folder, "bad.cue"), []byte("package fleet\n\n"+bad.text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := buildCUE(folder, nil); err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("got %v, want an error about %s", err, bad.want)
			}
		})
	}
}

// The module can be published to a registry, and used from there.
func TestCUEModuleCanBePublished(t *testing.T) {
	ctx := context.Background()
	version, err := module.NewVersion("cloop.dev/cloop@v0", "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := modzip.CreateFromDir(&archive, version, filepath.Join(repository, cueModule)); err != nil {
		t.Fatal(err)
	}
	client := modregistry.NewClient(ocimem.New())
	if err := client.PutModule(ctx, version, bytes.NewReader(archive.Bytes()), int64(archive.Len())); err != nil {
		t.Fatal(err)
	}
	registry, err := modcache.New(client, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := fleetFolder(t)
	file := filepath.Join(folder, "cue.mod", "module.cue")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, []byte("deps: \"cloop.dev/cloop@v0\": v: \"v0.1.0\"\n")...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := buildCUE(folder, registry); err != nil {
		t.Fatal(err)
	}
}

// What the CUE package calls good the validator calls good, rules apart, and
// the other way round but for what people do not write: nulls, a status, names
// that the server makes.
func TestCUEPackageAgreesWithTheValidator(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	instance := load.Instances([]string{"./v1alpha1"}, &load.Config{Dir: filepath.Join(repository, cueModule)})[0]
	ctx := cuecontext.New()
	definitions := ctx.BuildInstance(instance)
	if err := definitions.Err(); err != nil {
		t.Fatal(err)
	}
	all := schemastest.Variants(t, filepath.Join(repository, "schemas", "testdata"))
	random := schemastest.NewRandom(t, 1)
	for i := range 1500 {
		all = append(all, schemastest.Case{File: fmt.Sprintf("creation %d", i), Object: random.Case(i)})
	}
	compared, refused := 0, 0
	for _, one := range all {
		if notAuthored(one.Object.Object) {
			continue
		}
		problems := slices.DeleteFunc(validator.Validate(schemas.Document{Object: one.Object}), func(p schemas.Problem) bool {
			return p.Rule == schemas.RuleCEL || p.Severity != schemas.SeverityError || strings.HasPrefix(p.Message, "Duplicate value: {")
		})
		definition := definitions.LookupPath(cue.MakePath(cue.Def(one.Object.GetKind())))
		err := definition.Unify(ctx.Encode(one.Object.Object)).Validate(cue.Concrete(true))
		if (err != nil) != (len(problems) > 0) {
			t.Errorf("%s: the validator says %v, CUE %v\n%v", one.File, problems, err, one.Object.Object)
		}
		compared++
		if err != nil {
			refused++
		}
	}
	t.Logf("%d documents compared, %d of them refused", compared, refused)
	if compared < 2000 || refused < compared/4 || refused > compared-50 {
		t.Error("too few documents of each sort to show anything")
	}
}

// notAuthored says whether a document has what nobody writes in CUE.
func notAuthored(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	return hasNull(object) || object["status"] != nil || metadata["generateName"] != nil ||
		metadata["finalizers"] != nil || metadata["ownerReferences"] != nil
}

func hasNull(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, child := range value {
			if hasNull(child) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, hasNull)
	}
	return false
}

// fleetFolder is a copy of the example, without the package that it imports.
func fleetFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("testdata/pools")); err != nil {
		t.Fatal(err)
	}
	return folder
}

// vendored is the example with the package in cue.mod/pkg, as a repository has
// it that uses no registry.
func vendored(t *testing.T) string {
	t.Helper()
	folder := fleetFolder(t)
	if err := os.CopyFS(filepath.Join(folder, "cue.mod/pkg/cloop.dev/cloop/v1alpha1"), os.DirFS(filepath.Join(repository, cueModule, "v1alpha1"))); err != nil {
		t.Fatal(err)
	}
	return folder
}

// buildCUE evaluates the package in folder to the end, as cue export does.
func buildCUE(folder string, registry modconfig.Registry) (cue.Value, error) {
	config := &load.Config{Dir: folder, Env: []string{"CUE_REGISTRY=none"}}
	if registry != nil {
		config.Registry = registry
	}
	instance := load.Instances([]string{"."}, config)[0]
	if instance.Err != nil {
		return cue.Value{}, cueError(instance.Err)
	}
	value := cuecontext.New().BuildInstance(instance)
	if err := value.Validate(cue.Concrete(true)); err != nil {
		return value, cueError(err)
	}
	return value, nil
}
