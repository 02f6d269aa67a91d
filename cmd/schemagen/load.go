package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// sources is what the CUE files say.
type sources struct {
	// definitions: plural → CustomResourceDefinition as JSON, with the keys
	// that the sources have and no more.
	definitions map[string]json.RawMessage
	// hints: a rule's message or a pattern → what to do about a breach.
	hints map[string]string
	// places: a rule's message → the field to change, from the rule's own on;
	// empty for a rule about its own field.
	places map[string]string
	// kustomize is what kustomize has to be told of the kinds.
	kustomize kustomizeFacts
}

// loadSources evaluates the CUE package in dir. Every error of the sources is
// in the error, with file and line.
func loadSources(dir string) (*sources, error) {
	instance := load.Instances([]string{"."}, &load.Config{Dir: dir})[0]
	if instance.Err != nil {
		return nil, cueError(instance.Err)
	}
	value := cuecontext.New().BuildInstance(instance)
	if err := value.Validate(cue.Concrete(true)); err != nil {
		return nil, cueError(err)
	}
	loaded := &sources{}
	if err := export(value, "definitions", &loaded.definitions); err != nil {
		return nil, err
	}
	if err := export(value, "hints", &loaded.hints); err != nil {
		return nil, err
	}
	if err := export(value, "kustomize", &loaded.kustomize); err != nil {
		return nil, err
	}
	var err error
	loaded.places, err = takePlaces(loaded.definitions)
	return loaded, err
}

func export(value cue.Value, path string, into any) error {
	data, err := value.LookupPath(cue.ParsePath(path)).MarshalJSON()
	if err != nil {
		return cueError(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read %s of the CUE sources: %w", path, err)
	}
	return nil
}

func cueError(err error) error {
	return errors.New("evaluate the CUE sources:\n" + cueerrors.Details(err, nil))
}

// typed decodes a definition, and fails on a keyword that Kubernetes lacks.
func typed(plural string, definition json.RawMessage) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(definition, crd); err != nil {
		return nil, fmt.Errorf("decode the definition of %s: %w", plural, err)
	}
	return crd, nil
}
