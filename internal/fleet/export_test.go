package fleet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SetBatches has a root of so many pools rendered in batches of a size; it
// returns what undoes it.
func SetBatches(size, from int) (undo func()) {
	beforeSize, beforeFrom := batchSize, batchFrom
	batchSize, batchFrom = size, from
	return func() { batchSize, batchFrom = beforeSize, beforeFrom }
}

// SetTries bounds how often the search for what kustomize refuses renders a root;
// it returns what undoes it.
func SetTries(tries int) (undo func()) {
	before := maxTries
	maxTries = tries
	return func() { maxTries = before }
}

// BuildInBatches renders a path and says whether it was in batches.
func BuildInBatches(ctx context.Context, root, path string) (objects []*unstructured.Unstructured, batched bool, err error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, false, err
	}
	defer b.close()
	out, err := b.build(ctx, path)
	if err != nil {
		return nil, false, err
	}
	rendered, err := out.sound(path)
	for i := range rendered {
		objects = append(objects, rendered[i].Object)
	}
	return objects, out.batched, err
}

// Timeouts are the bounds on the dealings with a Git server.
type Timeouts = timeouts

// SetTimeouts shortens them, for a Git that is opened afterwards; it returns
// what undoes it.
func SetTimeouts(t Timeouts) (undo func()) {
	before := limits
	limits = t
	return func() { limits = before }
}

// SetMaxPack bounds packs, for a Git that is opened afterwards; it returns what
// undoes it.
func SetMaxPack(size int64) (undo func()) {
	before := maxPack
	maxPack = size
	return func() { maxPack = before }
}

// SetMaxArtifact bounds archives until the test ends.
func SetMaxArtifact(t interface{ Cleanup(func()) }, size int64) {
	before := maxArtifact
	maxArtifact = size
	t.Cleanup(func() { maxArtifact = before })
}

// HoldKustomize is as a run of kustomize that does not end; it returns what ends it.
func HoldKustomize() (release func()) {
	kustomizeTurn <- struct{}{}
	return func() { <-kustomizeTurn }
}

// SetTurn bounds how long a run of kustomize is waited for; it returns what undoes it.
func SetTurn(turn time.Duration) (undo func()) {
	before := maxTurn
	maxTurn = turn
	return func() { maxTurn = before }
}

// SetRootValues bounds the values that are read for a root; it returns what undoes it.
func SetRootValues(values int) (undo func()) {
	before := maxRootValues
	maxRootValues = values
	return func() { maxRootValues = before }
}

// OnlyMergeKeys is onlyMergeKeys.
var OnlyMergeKeys = onlyMergeKeys

// SetMost sets how many documents, and how much text, all roots have together.
func SetMost(documents, texts int64) (undo func()) {
	oldDocuments, oldTexts := maxDocuments, maxAllTexts
	maxDocuments, maxAllTexts = documents, texts
	return func() { maxDocuments, maxAllTexts = oldDocuments, oldTexts }
}

// CheckSSH says who of the signers made an armored SSH signature of what is dated so.
func CheckSSH(signers *Signers, payload, signature string, at time.Time) (by string, err error) {
	return signers.checkSSH([]byte(payload), []byte(signature), at)
}

// SetPackBounds bounds what a pack of a commit, and one of all history, may come to; it
// returns what undoes it.
func SetPackBounds(object, made, total int64, objects uint32) (undo func()) {
	tree, whole := treeBounds, wholeBounds
	treeBounds = packBounds{object: object, made: made, total: total, objects: objects}
	wholeBounds = treeBounds
	return func() { treeBounds, wholeBounds = tree, whole }
}
