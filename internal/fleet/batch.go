package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	manifests "cloop.dev/cloop/kustomize"
)

// kustomize compares each object with all others, by an identity that it reads
// out of the object's nodes anew each time: when it is added, for every
// namespace, and once for every patch. Of a thousand pools with a patch each
// that is two thirds of the time.
//
// Pools know nothing of each other. So where the following holds, kustomize
// renders them a hundred at a time, each time together with everything that is
// no pool, and the results put together are what it renders at once:
//
//   - no kustomization has more than the fields in batchFields, which work on
//     each object by itself, and of configurations and OpenAPI files only ours,
//     in which nothing refers to a pool;
//   - each file of a batch has pools and nothing else, and a patch that must find
//     its object finds one, in one batch;
//   - no patch changes what an object is called, so that two objects that are
//     one to kustomize are so in the end: that is looked for in the whole;
//   - the order of the objects is that of the documents that they come from,
//     and each object's document is known.
//
// Where anything else is the case, or goes wrong, kustomize renders all at once.
var (
	// batchSize is about how many pools make a batch, at most twice as many unless
	// one file has more, and batchFrom for how many it is worthwhile.
	batchSize = 100
	batchFrom = 150
)

// maxBeside bounds what is no pool, which each batch renders again.
const maxBeside = 25

// batchFields are the fields of kustomizations whose pools are rendered in batches.
var batchFields = map[string]bool{
	"apiVersion": true, "kind": true, "metadata": true, "resources": true, "components": true,
	"namespace": true, "namePrefix": true, "nameSuffix": true, "labels": true, "commonLabels": true, "commonAnnotations": true,
	"images": true, "patches": true, "configurations": true, "openapi": true,
}

// batches is how a root is rendered in parts.
type batches struct {
	scan *scan
	// count of them. of: file → the batch that its pools are in.
	count int
	of    map[string]int
	// patches: entry → the batch in which it has its object; those of others are
	// in every batch.
	patches map[entry]int
	// kustomizations: file → what it says.
	kustomizations map[string]map[string]any
}

// inBatches renders the root in batches; not ok where it has to be rendered at
// once. Its error is the context's.
func (s *scan) inBatches(ctx context.Context, b *builder, dir, file string) (out *rendering, ok bool, err error) {
	p := &batches{scan: s, of: map[string]int{}, patches: map[entry]int{}, kustomizations: map[string]map[string]any{}}
	if len(s.problems) > 0 || !p.divide() || !p.understands() || !p.assign() {
		return nil, false, nil
	}
	out = &rendering{}
	type numbered struct {
		own    int
		object renderedObject
	}
	var all []numbered
	seen := map[string]bool{}
	for batch := range p.count {
		if ctx.Err() != nil {
			return nil, false, buildError(dir, ctx.Err())
		}
		replaced, err := p.files(b, batch)
		if err != nil {
			return nil, false, nil //nolint:nilerr // rendered at once it is reported
		}
		part, err := s.rendered(ctx, b, dir, file, replaced)
		if ctx.Err() != nil {
			return nil, false, buildError(dir, ctx.Err())
		}
		if err != nil || len(part.problems) > 0 {
			return nil, false, nil //nolint:nilerr // rendered at once it is reported
		}
		for i := range part.objects {
			object := part.objects[i]
			own := object.own()
			if own == nil || own.named() != object.Object.GetName() {
				return nil, false, nil
			}
			_, isPool := p.of[own.file]
			if !isPool && batch > 0 {
				continue
			}
			if id := identity(object.Object); seen[id] {
				return nil, false, nil
			} else {
				seen[id] = true
			}
			all = append(all, numbered{own.number, object})
		}
	}
	slices.SortStableFunc(all, func(x, y numbered) int { return cmp.Compare(x.own, y.own) })
	for i := range all {
		if i > 0 && all[i].own == all[i-1].own {
			return nil, false, nil
		}
		out.objects = append(out.objects, all[i].object)
	}
	return out, true, nil
}

// divide puts the files with pools into batches.
func (p *batches) divide() bool {
	others, count := 0, 0
	// pools: file → how many it has; -1 where it has something else.
	pools := map[string]int{}
	var order []string
	kind := ""
	for i := range p.scan.layers {
		l := &p.scan.layers[i]
		switch {
		case l.generated, l.copied != nil:
			return false
		case !l.resource():
			continue
		}
		known, met := pools[l.file]
		if !met {
			order = append(order, l.file)
		}
		obj := l.document.Object
		is := isKind(obj, v1alpha1.ExecutorPoolKind) || isKind(obj, v1alpha1.HubPoolKind)
		if is && kind == "" {
			kind = obj.GetKind()
		}
		switch {
		case known < 0 || !is || obj.GetKind() != kind || obj.GetName() == "":
			pools[l.file] = -1
		default:
			pools[l.file] = known + 1
		}
	}
	if kind == v1alpha1.HubPoolKind && slices.ContainsFunc(p.scan.layers, func(l layer) bool { return l.resource() && isKind(l.document.Object, v1alpha1.ExecutorPoolKind) }) {
		// A pool of a cluster may refer to one of the hub.
		return false
	}
	for i := range p.scan.layers {
		if l := &p.scan.layers[i]; l.resource() && pools[l.file] < 0 {
			others++
		}
	}
	inBatch := 0
	for _, file := range order {
		n := pools[file]
		if n < 0 {
			continue
		}
		if inBatch > 0 && (inBatch+n > 2*batchSize || inBatch >= batchSize/2 && begins(file, n)) {
			p.count, inBatch = p.count+1, 0
		}
		p.of[file] = p.count
		inBatch += n
		count += n
	}
	p.count++
	return count >= batchFrom && others <= maxBeside && p.count > 1
}

// begins says whether a file with so many pools begins a batch, where one may end.
// It goes by the file's name: so a file that comes or goes changes one batch or two,
// and those behind it stay as they were rendered before.
func begins(file string, pools int) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(file))
	return int(h.Sum32()%uint32(max(batchSize/2, 1))) < pools
}

// understands reads the kustomizations, and says whether each has only what
// works on objects by themselves.
func (p *batches) understands() bool {
	for dir, file := range p.scan.directories {
		data, err := p.scan.gate.read(file)
		if err != nil {
			return false
		}
		var fields map[string]any
		if yaml.UnmarshalStrict(data, &fields) != nil {
			return false
		}
		for name := range fields {
			if !batchFields[name] {
				return false
			}
		}
		patches, _ := fields["patches"].([]any)
		if !p.knows(dir, fields) || slices.ContainsFunc(patches, hasOptions) {
			return false
		}
		p.kustomizations[file] = fields
	}
	return true
}

// hasOptions says whether a patch may change names and kinds.
func hasOptions(patch any) bool {
	fields, _ := patch.(map[string]any)
	_, options := fields["options"]
	return options || fields == nil
}

// knows says whether the configuration and the OpenAPI document that a
// kustomization brings are ours.
func (p *batches) knows(dir string, fields map[string]any) bool {
	configuration, err := fs.ReadFile(manifests.Kinds(), "configuration.yaml")
	if err != nil {
		return false
	}
	same := func(name any, want []byte) bool {
		text, ok := name.(string)
		if !ok {
			return false
		}
		data, err := p.scan.gate.read(path.Join(dir, text))
		return err == nil && bytes.Equal(data, want)
	}
	if openapi, ok := fields["openapi"]; ok {
		object, _ := openapi.(map[string]any)
		if len(object) != 1 || !same(object["path"], manifests.OpenAPI()) {
			return false
		}
	}
	if configurations, ok := fields["configurations"]; ok {
		list, _ := configurations.([]any)
		for _, name := range list {
			if !same(name, configuration) {
				return false
			}
		}
	}
	return true
}

// assign finds the batch of each patch that is meant for one object.
func (p *batches) assign() bool {
	for i := range p.scan.layers {
		l := &p.scan.layers[i]
		if !l.patch || l.fields != nil {
			continue
		}
		if renames(l) {
			return false
		}
		one := l.target == nil
		if !one && !plainName.MatchString(l.target.Name) {
			continue
		}
		var name string
		if l.target != nil {
			name = l.target.Name
		} else {
			name = l.document.Object.GetName()
		}
		batch, found := p.meant(l, i, name)
		switch {
		case one && found != 1:
			// What must find an object finds none, or one of several.
			return false
		case found > 1:
			continue
		case found == 0:
			batch = 0
		}
		if before, met := p.patches[l.entry]; met && before != batch {
			return false
		}
		p.patches[l.entry] = batch
	}
	return true
}

// everywhere marks a patch of what is in every batch.
const everywhere = -1

// meant is the batch with the objects of a name that a patch may change, and how
// many batches those are in.
func (p *batches) meant(l *layer, number int, name string) (batch, found int) {
	batch = everywhere
	for _, i := range p.scan.historic(name) {
		r := &p.scan.layers[i]
		if i < l.from || i > number || l.target == nil && r.document.Object.GetKind() != l.document.Object.GetKind() {
			continue
		}
		in, pool := p.of[r.file]
		if !pool {
			in = everywhere
		}
		if found == 0 || in != batch {
			found++
		}
		batch = in
	}
	return batch, found
}

// historic are the resources that had a name at any time.
func (s *scan) historic(name string) []int {
	if s.named == nil {
		s.named = map[string][]int{}
		for i := range s.layers {
			if !s.layers[i].resource() {
				continue
			}
			for _, was := range slices.Compact(slices.Sorted(slices.Values(s.layers[i].names))) {
				s.named[was] = append(s.named[was], i)
			}
		}
	}
	return s.named[name]
}

// renames says whether a patch may change what an object is called, or whether it
// is there: then objects may be one that were not, or the other way round.
func renames(l *layer) bool {
	if l.document != nil {
		_, directive := l.document.Object.Object["$patch"]
		return directive
	}
	return slices.ContainsFunc(l.operations, func(op operation) bool {
		parts := tokens(op.Path)
		if len(parts) == 0 || parts[0] == "kind" || parts[0] == "apiVersion" {
			return true
		}
		return parts[0] == "metadata" && (len(parts) == 1 || parts[1] == "name" || parts[1] == "namespace" || len(parts) == 2)
	})
}

// files are the kustomizations as a batch has them: file, absolute → content.
func (p *batches) files(b *builder, batch int) (map[string][]byte, error) {
	replaced := map[string][]byte{}
	for dir, file := range p.scan.directories {
		fields := map[string]any{}
		for name, value := range p.kustomizations[file] {
			list, _ := value.([]any)
			switch name {
			case "resources":
				fields[name] = p.resources(dir, list, batch)
			case "components":
				fields[name] = list
			case "patches":
				kept := make([]any, 0, len(list))
				for i := range list {
					if in, one := p.patches[entry{file, name, i}]; !one || in == batch || in == everywhere {
						kept = append(kept, list[i])
					}
				}
				fields[name] = kept
			default:
				fields[name] = value
			}
		}
		if !renewLabels(fields) {
			return nil, errOldLabels
		}
		if _, ok := fields["metadata"]; !ok {
			// Without any field kustomize takes it for empty.
			fields["metadata"] = map[string]any{"name": "batch"}
		}
		data, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		replaced[filepath.Join(b.dir, filepath.FromSlash(file))] = data
	}
	return replaced, nil
}

var errOldLabels = errors.New("the common labels cannot be written as labels")

// renewLabels makes common labels of fields labels, as kustomize would otherwise
// warn of them once for each batch. The configuration, which is ours, says nothing
// of labels.
func renewLabels(fields map[string]any) bool {
	configurations, ours := fields["configurations"]
	delete(fields, "configurations")
	_, old := fields["commonLabels"]
	done := !old || commonLabels(fields)
	if ours {
		fields["configurations"] = configurations
	}
	return done
}

// resources are those of a batch: its files, what is no pool, and the directories.
func (p *batches) resources(dir string, list []any, batch int) []any {
	kept := make([]any, 0, len(list))
	for _, item := range list {
		name, _ := item.(string)
		if in, pools := p.of[path.Join(dir, name)]; !pools || in == batch {
			kept = append(kept, item)
		}
	}
	return kept
}

// maxWork bounds how many pairs kustomize may compare when it renders a root at
// once: a million takes it about three seconds.
const maxWork = 12_000_000

// maxKeyPairs bounds how many pairs of keys it may compare: a thousand million take it
// some twenty seconds.
const maxKeyPairs = 1_000_000_000

// tooMuch is an error where kustomize, which cannot be interrupted, would take
// minutes.
func (s *scan) tooMuch() error {
	objects, patches, open := s.objects(), 0, 0
	operations := map[string]int{}
	for i := range s.layers {
		l := &s.layers[i]
		switch {
		case !l.patch || l.fields != nil || l.copied != nil:
			continue
		case l.operations != nil && l.target != nil && plainName.MatchString(l.target.Name):
			operations[l.target.Name]++
		case l.operations != nil:
			open++
		}
		patches++
	}
	// It notes each JSON patch on its object, in a list that it reads whole.
	var entries, pairs int64
	for i := range s.layers {
		if l := &s.layers[i]; l.document != nil {
			w := l.weighed()
			pairs += w.pairs
			if !l.patch && (s.growth.names > 0 || !strings.HasPrefix(l.document.Object.GetAPIVersion(), "cloop.dev/")) {
				entries += w.entries
			}
		}
	}
	if pairs > maxKeyPairs/int64(1+patches) {
		return fmt.Errorf("%w: kustomize would take minutes to look for the keys of mappings that have more than %d; divide them among objects, or do without patches of those", errBounds, largeMapping)
	}
	work := objects*objects + objects*patches + 2*objects*open*open + objects*int(entries)/8
	for _, n := range operations {
		work += 2 * n * (n + 2*open)
	}
	if work > maxWork {
		all := count.Of(objects, "object")
		if objects*objects > maxWork/2 {
			return fmt.Errorf("%w: kustomize compares each of %s with all others, which would take it minutes; divide them among overlays", errBounds, all)
		}
		return fmt.Errorf("%w: %d patches of %s would take kustomize minutes; put the patches of one object into one, or divide the objects among overlays", errBounds, patches, all)
	}
	return nil
}
