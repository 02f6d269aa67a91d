package fleet

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// modernized are the kustomizations that use fields which kustomize deprecates,
// written with those it has instead: file, absolute → content. kustomize warns of
// the former on the process's standard error, from within hub and controllers,
// and has no way to tell it not to. Only what renders the same is rewritten:
//
//   - bases are resources, imageTags are images, as kustomize itself does it;
//   - commonLabels are labels that selectors include, where no configuration
//     says otherwise what labels are;
//   - patchesStrategicMerge come before patches, where no document deletes its
//     object as a whole;
//   - patchesJson6902 are transformers, where replicas, images and replacements,
//     which come after them, do not stand between.
//
// Of what remains kustomize warns. An error comes of the text as it is written.
func (s *scan) modernized(b *builder) map[string][]byte {
	modern := map[string][]byte{}
	for _, file := range s.directories {
		data, err := s.gate.read(file)
		if err != nil {
			continue
		}
		var fields map[string]any
		if yaml.UnmarshalStrict(data, &fields) != nil || !s.modernize(file, fields) {
			continue
		}
		if data, err = json.Marshal(fields); err == nil {
			modern[filepath.Join(b.dir, filepath.FromSlash(file))] = data
		}
	}
	return modern
}

// modernize rewrites the fields of a kustomization, and says whether it did.
func (s *scan) modernize(file string, fields map[string]any) bool {
	changed := false
	for old, now := range map[string]string{"bases": "resources", "imageTags": "images"} {
		if list, ok := fields[old].([]any); ok {
			before, _ := fields[now].([]any)
			fields[now] = append(slices.Clone(before), list...)
			delete(fields, old)
			changed = true
		}
	}
	return slices.Contains([]bool{commonLabels(fields), s.strategicMerges(file, fields), operationsOf(fields), changed}, true)
}

// commonLabels become labels that selectors include.
func commonLabels(fields map[string]any) bool {
	pairs, ok := fields["commonLabels"].(map[string]any)
	if !ok || fields["configurations"] != nil || fields["crds"] != nil {
		return false
	}
	before, _ := fields["labels"].([]any)
	for _, entry := range before {
		labels, _ := entry.(map[string]any)
		others, _ := labels["pairs"].(map[string]any)
		for key := range pairs {
			if _, both := others[key]; both {
				return false
			}
		}
	}
	fields["labels"] = append(slices.Clone(before), map[string]any{"pairs": pairs, "includeSelectors": true})
	delete(fields, "commonLabels")
	return true
}

// strategicMerges become the first of the patches.
func (s *scan) strategicMerges(file string, fields map[string]any) bool {
	list, ok := fields["patchesStrategicMerge"].([]any)
	if !ok {
		return false
	}
	inFile := map[int]bool{}
	for i := range s.layers {
		l := &s.layers[i]
		if l.entry.file != file || l.entry.field != "patchesStrategicMerge" {
			continue
		}
		if l.document == nil || renames(l) {
			return false
		}
		inFile[l.entry.index] = l.file != file
	}
	var patches []any
	for i, entry := range list {
		text, isText := entry.(string)
		path, known := inFile[i]
		switch {
		case !isText || !known:
			return false
		case path:
			patches = append(patches, map[string]any{"path": text})
		default:
			patches = append(patches, map[string]any{"patch": text})
		}
	}
	before, _ := fields["patches"].([]any)
	fields["patches"] = append(patches, before...)
	delete(fields, "patchesStrategicMerge")
	return true
}

// operationsOf makes the first transformers of JSON patches.
func operationsOf(fields map[string]any) bool {
	list, ok := fields["patchesJson6902"].([]any)
	if !ok || fields["replicas"] != nil || fields["images"] != nil || fields["replacements"] != nil {
		return false
	}
	var transformers []any
	for _, entry := range list {
		patch, _ := entry.(map[string]any)
		transformer := map[string]any{"apiVersion": "builtin", "kind": "PatchJson6902Transformer", "metadata": map[string]any{"name": fmt.Sprintf("patch-%d", len(transformers))}}
		for name, value := range patch {
			switch name {
			case "target", "path":
				transformer[name] = value
			case "patch":
				transformer["jsonOp"] = value
			default:
				return false
			}
		}
		text, err := json.Marshal(transformer)
		if err != nil {
			return false
		}
		transformers = append(transformers, string(text))
	}
	before, _ := fields["transformers"].([]any)
	fields["transformers"] = append(transformers, before...)
	delete(fields, "patchesJson6902")
	return true
}
