package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
)

const (
	// maxSideWatches bounds the watches of one PoolSync on what stands beside pools: each
	// is a stream of its own.
	maxSideWatches = 64
	// sideAgain is how long after a refusal it is tried again to watch.
	sideAgain = 10 * time.Minute
)

// sideKey is what one watch is about: objects of a kind, in a namespace, that a user may
// see. Empty: the controller itself.
type sideKey struct {
	user, namespace string
	kind            schema.GroupVersionKind
}

// sideWatches watch what stands beside pools, such as a NetworkPolicy: their metadata, of
// those that a PoolSync has applied, as the account that applies them and where that
// account may. Where it may not they are looked at with each full pass alone.
type sideWatches struct {
	appliers *appliers
	clock    clock.PassiveClock
	// woken has a PoolSync looked at.
	woken chan<- event.GenericEvent

	mu      sync.Mutex                        // guards what follows
	watches map[sideKey]*sideWatch            // what is watched
	users   map[types.NamespacedName]sideKeys // PoolSync → what it is watched for
	refused map[sideKey]time.Time             // until when it is not tried again
	clients map[string]metadata.Interface     // user → client
	stopped bool                              // the controller is ending
}

type sideKeys map[sideKey]bool

// sideWatch is one stream.
type sideWatch struct {
	stop context.CancelFunc
	// synced says that all that there was is known.
	synced clientcache.InformerSynced

	mu      sync.Mutex            // guards defined
	defined map[string]definition // name → what was seen last of it
}

// definition is of an object but for its status, which changes with each Pod that a
// ResourceQuota counts.
type definition struct {
	digest string
	// since is the resourceVersion at which it was seen first.
	since string
}

// see notes an object, and says whether its definition is another one.
func (w *sideWatch) see(object *metav1.PartialObjectMetadata) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	digest := object.Annotations[sideDigest]
	if w.defined[object.Name].digest == digest {
		return false
	}
	w.defined[object.Name] = definition{digest, object.ResourceVersion}
	return true
}

func (w *sideWatch) lose(object *metav1.PartialObjectMetadata) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.defined, object.Name)
}

func (w *sideWatch) since(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.defined[name].since
}

func newSideWatches(a *appliers, woken chan<- event.GenericEvent, c clock.PassiveClock) *sideWatches {
	return &sideWatches{
		appliers: a, clock: c, woken: woken,
		watches: map[sideKey]*sideWatch{}, users: map[types.NamespacedName]sideKeys{}, refused: map[sideKey]time.Time{}, clients: map[string]metadata.Interface{},
	}
}

// attend watches what a PoolSync wants beside its pools, and nothing that only it had
// wanted before.
func (w *sideWatches) attend(ctx context.Context, p *syncPass) {
	user, keys := userOf(p.sync), sideKeys{}
	for _, want := range p.target.objects {
		if want.id.beside() && !want.observed && len(keys) < maxSideWatches {
			keys[sideKey{user, want.id.namespace, want.groupVersionKind()}] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.users[p.name()] = keys
	w.sweep()
	for key := range keys {
		if w.watches[key] != nil || w.clock.Now().Before(w.refused[key]) {
			continue
		}
		if err := w.begin(ctx, key); err != nil {
			// The next full pass looks at them, and says what is wrong.
			logf.FromContext(ctx).V(1).Info("does not watch what stands beside pools", "kind", key.kind.Kind, "objects", key.namespace, "error", err.Error())
		}
	}
}

// forget lets go of what a PoolSync that is gone was watched for.
func (w *sideWatches) forget(sync types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.users, sync)
	w.sweep()
}

// stopAll ends with the controller.
func (w *sideWatches) stopAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	clear(w.users)
	w.sweep()
}

// sweep ends what nobody wants watched any more.
func (w *sideWatches) sweep() {
	wanted := sideKeys{}
	for _, keys := range w.users {
		for key := range keys {
			wanted[key] = true
		}
	}
	for key, watch := range w.watches {
		if !wanted[key] {
			watch.stop()
			delete(w.watches, key)
		}
	}
	for key, until := range w.refused {
		if !wanted[key] && w.clock.Now().After(until) {
			delete(w.refused, key)
		}
	}
}

// begin opens a watch.
func (w *sideWatches) begin(ctx context.Context, key sideKey) error {
	mapping, err := w.appliers.mapper.RESTMapping(key.kind.GroupKind(), key.kind.Version)
	if err != nil {
		return err
	}
	from := w.clients[key.user]
	if from == nil {
		if from, err = metadata.NewForConfig(w.appliers.configOf(key.user)); err != nil {
			return err
		}
		w.clients[key.user] = from
	}
	// What somebody takes the label off goes from what is watched.
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelPoolSyncName }
	informer := metadatainformer.NewFilteredMetadataInformer(from, mapping.Resource, key.namespace, 0, clientcache.Indexers{}, labelled).Informer()
	watched, stop := context.WithCancel(context.WithoutCancel(ctx))
	watch := &sideWatch{stop: stop, defined: map[string]definition{}}
	seen := func(object any) {
		if seen, ok := object.(*metav1.PartialObjectMetadata); ok && watch.see(seen) {
			w.tell(watched, key)
		}
	}
	registered, err := informer.AddEventHandler(clientcache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, object any) { seen(object) },
		DeleteFunc: func(object any) {
			if last, missed := object.(clientcache.DeletedFinalStateUnknown); missed {
				object = last.Obj
			}
			if gone, ok := object.(*metav1.PartialObjectMetadata); ok {
				watch.lose(gone)
				w.tell(watched, key)
			}
		},
	})
	if err == nil {
		err = informer.SetTransform(stripSide)
	}
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *clientcache.Reflector, failure error) {
			w.failed(ctx, key, watch, failure)
		})
	}
	if err != nil {
		stop()
		return err
	}
	watch.synced = registered.HasSynced
	w.watches[key] = watch
	go informer.RunWithContext(watched)
	return nil
}

// failed ends a watch that is refused. What else fails is tried again by itself.
func (w *sideWatches) failed(ctx context.Context, key sideKey, watch *sideWatch, failure error) {
	if !apierrors.IsForbidden(failure) && !apierrors.IsUnauthorized(failure) && !apierrors.IsNotFound(failure) {
		return
	}
	logf.FromContext(ctx).Info("looks at what stands beside pools only when Git is asked: the account that applies them may not watch them",
		"user", key.user, "kind", key.kind.Kind, "objects", key.namespace)
	w.mu.Lock()
	defer w.mu.Unlock()
	watch.stop()
	if w.watches[key] == watch {
		delete(w.watches, key)
		w.refused[key] = w.clock.Now().Add(sideAgain)
	}
}

// tell has all PoolSyncs looked at that have something watched there: labels are
// anybody's, and may have been another PoolSync's a moment ago.
func (w *sideWatches) tell(ctx context.Context, key sideKey) {
	w.mu.Lock()
	var users []types.NamespacedName
	for name, keys := range w.users {
		if keys[key] {
			users = append(users, name)
		}
	}
	w.mu.Unlock()
	for _, name := range users {
		sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		select {
		case w.woken <- event.GenericEvent{Object: sync}:
		case <-ctx.Done():
		}
	}
}

// asApplied says of an object that nobody has defined it anew since it was as it was
// applied; watched is false where such are not watched.
func (w *sideWatches) asApplied(sync *v1alpha1.PoolSync, s *sight, o *objectMemory) (as, watched bool) {
	w.mu.Lock()
	watch := w.watches[sideKey{userOf(sync), s.id.namespace, s.want.groupVersionKind()}]
	w.mu.Unlock()
	if watch == nil || !watch.synced() {
		return false, false
	}
	since := watch.since(s.id.name)
	return since != "" && s.before != nil && !s.changed() && o.quiet != "" && !older(o.quiet, since), true
}

// sideDigest is the annotation that stands for what was stripped.
const sideDigest = "digest"

// stripSide keeps of an object's metadata its name, its resourceVersion, and a digest of
// who wrote what of it when.
func stripSide(object any) (any, error) {
	from, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	defined := struct {
		Labels, Annotations map[string]string
		Deleted             *metav1.Time
		Fields              []metav1.ManagedFieldsEntry
	}{from.Labels, from.Annotations, from.DeletionTimestamp, slices.DeleteFunc(slices.Clone(from.ManagedFields), func(m metav1.ManagedFieldsEntry) bool { return m.Subresource != "" })}
	text, err := json.Marshal(defined)
	if err != nil {
		return nil, fmt.Errorf("encode what %s %s is: %w", from.Kind, from.Name, err)
	}
	sum := sha256.Sum256(text)
	return &metav1.PartialObjectMetadata{TypeMeta: from.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Namespace: from.Namespace, Name: from.Name, UID: from.UID, ResourceVersion: from.ResourceVersion,
		Annotations: map[string]string{sideDigest: hex.EncodeToString(sum[:])},
	}}, nil
}
