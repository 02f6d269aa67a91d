package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// clusterName is what hubs know this cluster by: what the operator calls it, or
// what no other cluster has.
type clusterName struct {
	configured string

	mu    sync.Mutex // guards found
	found string
}

// legalClusterName is what a hub takes.
var legalClusterName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// get reads the name, once.
func (c *clusterName) get(ctx context.Context, live client.Reader) (string, error) {
	if c.configured != "" {
		return c.configured, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == "" {
		system := &corev1.Namespace{}
		if err := live.Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
			return "", fmt.Errorf("tell this cluster from others by its namespace kube-system: %w: let the controller's account read it, or name the cluster with --cluster-name", err)
		}
		c.found = string(system.UID)
	}
	return c.found, nil
}

// pushAnswer is what a hub said to a definition: revision is the pool's since then.
// The zero value is of no definition.
type pushAnswer struct {
	request  string
	revision int64
}

// ownerOf is what the hub knows a HubPool by.
func (r *hubPoolReconciler) ownerOf(ctx context.Context, pool types.NamespacedName) (string, *stageError) {
	cluster, err := r.cluster.get(ctx, r.live)
	if err != nil {
		return "", transient(v1alpha1.ReasonApplyFailed, err)
	}
	return hubv1.ClusterOwner(cluster, pool.Namespace, pool.Name), nil
}

func (r *hubPoolReconciler) owner(ctx context.Context, p *hubPoolPass) (string, *stageError) {
	return r.ownerOf(ctx, p.name())
}

// definition is what the hub is to be told.
func (r *hubPoolReconciler) definition(ctx context.Context, p *hubPoolPass) (hubv1.DefinePoolRequest, *stageError) {
	request := hubv1.DefinePoolRequest{Definition: fleet.DefinitionOf(p.pool), Provenance: r.provenance(ctx, p.pool)}
	if p.pool.Spec.Cordon != nil {
		request.Cordon = &hubv1.CordonRequest{Reason: p.pool.Spec.Cordon.Reason}
	}
	var err *stageError
	request.Provenance.Sync, err = r.owner(ctx, p)
	return request, err
}

// maxPushedSource bounds the texts of a Provenance at the hub, in bytes.
const maxPushedSource = 1024

// provenance is where the HubPool itself comes from, as far as a PoolSync of the
// same namespace says so. Labels and annotations that somebody made up say no more
// than that.
func (r *hubPoolReconciler) provenance(ctx context.Context, pool *v1alpha1.HubPool) hubv1.Provenance {
	from := hubv1.Provenance{
		Path:     shorten(secret.Redact(pool.Annotations[v1alpha1.AnnotationSourcePath]), maxPushedSource),
		Revision: shorten(secret.Redact(pool.Annotations[v1alpha1.AnnotationRevision]), maxRevision),
	}
	name := syncNamed(pool)
	if name.Name == "" || name.Namespace != pool.Namespace {
		return from
	}
	sync := &v1alpha1.PoolSync{}
	if err := r.client.Get(ctx, name, sync); err == nil {
		from.Repository = shorten(secret.Redact(sync.Spec.Source.Git.URL), maxPushedSource)
	}
	return from
}

// push tells the hub what the pool should be, where it has something else.
func (r *hubPoolReconciler) push(ctx context.Context, p *hubPoolPass) *stageError {
	request, err := r.definition(ctx, p)
	if err != nil {
		return err
	}
	if err := anothers(p.have, request.Provenance.Sync); err != nil {
		return err
	}
	key := requestKey(request)
	if !p.asked() && !toPush(request, key, p.have, p.memory.answered) {
		return r.pushed(p)
	}
	if request.MovedFrom, err = r.inherits(ctx, p, request.Provenance.Sync); err != nil {
		return err
	}
	have, failure := p.hub.definePool(ctx, p.pool.Name, request)
	if problemCode(failure) == hubv1.CodeNotFound {
		return transient(v1alpha1.ReasonHubTooOld, fmt.Errorf("the hub %s does not take definitions from clusters", p.pool.Spec.Hub.URL))
	}
	if failure != nil {
		return hubFailure(failure)
	}
	if p.have == nil || deviates(request, p.have) {
		p.log(ctx, "pushes a pool to its hub", "hub", p.pool.Spec.Hub.URL, "revision", request.Provenance.Revision, "state", have.State)
	}
	p.memory.answered = pushAnswer{key, have.Revision}
	p.have = &have
	p.hub.watch(p.pool.Name)
	if request.MovedFrom != "" {
		from, _ := predecessor(p.pool)
		p.log(ctx, "renames a pool at its hub", "from", from.Name, "hub", p.url())
		r.hubs.tell(ctx, from)
	}
	return r.pushed(p)
}

// anothers says that somebody else has the pool, as the hub would: it need not be
// asked, and where both say the same of the pool nothing else tells of it.
func anothers(have *hubv1.Pool, owner string) *stageError {
	if have == nil || have.Source == nil || have.Source.Sync == owner || have.State == hubv1.PoolRevoked {
		return nil
	}
	reason := v1alpha1.ReasonHubSyncOwns
	if ofCluster(have.Source.Sync) {
		reason = v1alpha1.ReasonOwnedByAnother
	}
	return stalled(reason, fmt.Errorf("pool %s is managed by %s", have.Name, have.Source))
}

// pushed says what there is to say of a pool that the hub was told of.
func (r *hubPoolReconciler) pushed(p *hubPoolPass) *stageError {
	switch p.have.State {
	case hubv1.PoolRevoked:
		return stalled(v1alpha1.ReasonPoolRevoked, fmt.Errorf("somebody has revoked pool %s at the hub, and its definition has not changed since", p.pool.Name))
	case hubv1.PoolDraining:
		p.waits = "the pool to drain at the hub, which makes it again after that"
	}
	return nil
}

func requestKey(request hubv1.DefinePoolRequest) string {
	data, err := json.Marshal(request)
	if err != nil {
		return "" // texts, numbers and maps of them always encode
	}
	return string(data)
}

// toPush says whether to tell the hub: of what this process has not told it yet,
// which costs it nothing where it has that already, and where the pool is otherwise
// although nobody has overridden it. What the hub did not do when it was told it
// does not do when it is told again.
func toPush(request hubv1.DefinePoolRequest, key string, have *hubv1.Pool, answered pushAnswer) bool {
	if have == nil || answered.request != key {
		return true
	}
	return answered.revision != have.Revision && deviates(request, have)
}

// deviates says whether a pool is otherwise than it was defined.
func deviates(request hubv1.DefinePoolRequest, have *hubv1.Pool) bool {
	want := request.Provenance
	want.Digest = fleet.Digest(request.Definition)
	switch {
	case have.Source == nil || *have.Source != want || have.State == hubv1.PoolRevoked:
		return true
	case have.Override != nil || have.State == hubv1.PoolDraining:
		return false
	}
	return request.Cordon != nil && have.Cordon == nil || len(fleet.CompareHub(request.Definition, have.PoolDefinition)) > 0
}
