package controllers

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

// credentialAge is how old a read of the pool credential gets: a rotation is
// noticed that soon even if the watch on Secrets missed it.
const credentialAge = 5 * time.Minute

// poolCredential is what a pool credential looks like. Anything else in the
// Secret, a password that a committer pointed at, is never sent to a hub.
var poolCredential = regexp.MustCompile(`^cloop_pool1_[0-9A-Za-z_-]{16,256}$`)

// heldCredential is the pool credential as it was last read.
type heldCredential struct {
	value  secret.String
	ref    v1alpha1.SecretKeyRef
	readAt time.Time
	// version is the Secret's resourceVersion that the cache showed then.
	version string
	// problem says why there is no value.
	problem string
}

// observeHub reads the credential when it is time, keeps the connection to the
// hub fitting, and takes the newest snapshot from it.
func (r *executorPoolReconciler) observeHub(ctx context.Context, o *observation) error {
	name := client.ObjectKeyFromObject(o.xpool)
	spec := o.xpool.Spec
	down := func(reason v1alpha1.Reason, message string) {
		r.hubs.close(name)
		o.snapshot.Link = pool.Link{State: pool.LinkDown, Reason: reason, Message: message}
	}
	if !hubAllowed(r.allowedHubs, spec.HubURL) {
		down(v1alpha1.ReasonHubNotAllowed, fmt.Sprintf("the hub %s is not on the list of allowed hubs", spec.HubURL))
		return nil
	}
	if err := r.readCredential(ctx, o); err != nil {
		return err
	}
	held := o.memory.credential
	if held.problem == "" && !o.memory.endedOf.Empty() && !held.value.Equal(o.memory.endedOf) {
		o.ends(nil, secret.String{}) // it is another pool's, or the pool was made again
	}
	if held.problem != "" {
		// A pool that is taken down together with its Secret, alone or with the
		// whole namespace, is still drained over the connection that it has.
		if conn := r.hubs.get(name); conn != nil && (o.snapshot.Pool.Deleting || namespaceGoes(ctx, r.live, name.Namespace)) {
			o.hub = conn
			o.snapshot.Link, o.snapshot.Hub = conn.state()
			return nil
		}
		down(v1alpha1.ReasonCredentialUnreadable, held.problem)
		return nil
	}
	conn, err := r.hubs.ensure(name, hubTarget{
		url: spec.HubURL, pin: spec.HubCAPin, bundle: spec.HubCABundle,
		credential: held.value, serves: servedOf(o.xpool),
	}, o.memory.served)
	if err != nil {
		down(v1alpha1.ReasonHubUnavailable, secret.Redact(err.Error()))
		return nil
	}
	o.hub = conn
	o.snapshot.Link, o.snapshot.Hub = conn.state()
	if o.snapshot.Link.State == pool.LinkUp {
		o.memory.served = conn.target
	}
	// The last snapshot of a pool that is revoked may be followed at once by a refusal.
	if hub := o.snapshot.Hub; hub != nil {
		o.ends(pool.ClosedAs(hub.Pool, o.memory.Closed), held.value)
	}
	return nil
}

// ends keeps how the hub ended the pool of a credential; nil: it did not.
func (o *observation) ends(end *pool.Closed, credential secret.String) {
	if end == nil {
		credential = secret.String{}
	}
	o.memory.Closed, o.memory.endedOf = end, credential
	o.snapshot.Memory.Closed = end
}

// servedOf is the ExecutorPool as the hub is told of it.
func servedOf(xpool *v1alpha1.ExecutorPool) hubclient.Served {
	return hubclient.Served{
		Name: xpool.Namespace + "/" + xpool.Name, UID: string(xpool.UID), HubPool: xpool.HubPoolName(), Created: xpool.CreationTimestamp.Unix(),
	}
}

// readCredential reads the Secret live when it was never read, is due again,
// has changed, or when the hub has refused what was read.
func (r *executorPoolReconciler) readCredential(ctx context.Context, o *observation) error {
	ref, held := o.xpool.Spec.PoolCredentialSecretRef, &o.memory.credential
	key := client.ObjectKey{Namespace: o.xpool.Namespace, Name: ref.Name}
	cached := metadataOf("Secret")
	if err := r.client.Get(ctx, key, cached); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the metadata of Secret %s: %w", ref.Name, err)
	}
	now := r.clock.Now()
	refused := false
	if conn := r.hubs.get(client.ObjectKeyFromObject(o.xpool)); conn != nil {
		refused = conn.refusedSince(held.readAt)
	}
	if !held.readAt.IsZero() && held.ref == ref && held.version == cached.ResourceVersion &&
		now.Sub(held.readAt) < credentialAge && !refused {
		return nil
	}
	read := heldCredential{ref: ref, readAt: now, version: cached.ResourceVersion}
	object := &corev1.Secret{}
	switch err := r.live.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		read.problem = fmt.Sprintf("the Secret %s does not exist", ref.Name)
	case apierrors.IsForbidden(err):
		read.problem = fmt.Sprintf("the controller may not read the Secret %s", ref.Name)
	case err != nil:
		return fmt.Errorf("read the Secret %s: %w", ref.Name, err)
	default:
		read.value, read.problem = credentialIn(object, ref)
	}
	*held = read
	return nil
}

// credentialIn takes the pool credential out of its Secret. The problem never
// quotes what is there.
func credentialIn(object *corev1.Secret, ref v1alpha1.SecretKeyRef) (secret.String, string) {
	text := strings.TrimSpace(string(object.Data[ref.Key]))
	switch {
	case text == "":
		return secret.String{}, fmt.Sprintf("the Secret %s has nothing under the key %s", ref.Name, ref.Key)
	case !poolCredential.MatchString(text):
		return secret.String{}, fmt.Sprintf("what the Secret %s has under the key %s is no pool credential", ref.Name, ref.Key)
	case !secret.Whole(text):
		return secret.String{}, fmt.Sprintf("the pool credential that the Secret %s has under the key %s is not whole: a character is missing or changed", ref.Name, ref.Key)
	}
	return secret.New(text), ""
}

// hubAllowed says whether a hub is on the list. An entry is a URL, or a host
// with or without a port; an empty list allows every hub.
func hubAllowed(list []string, hubURL string) bool {
	if len(list) == 0 {
		return true
	}
	hub, err := url.Parse(hubURL)
	if err != nil || hub.Scheme != "https" {
		return false
	}
	for _, entry := range list {
		if !strings.Contains(entry, "://") {
			entry = "https://" + entry
		}
		allowed, err := url.Parse(entry)
		if err == nil && allowed.Scheme == "https" && strings.EqualFold(authority(allowed), authority(hub)) {
			return true
		}
	}
	return false
}

// authority is host and port, the default port included.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return u.Hostname() + ":" + port
}
