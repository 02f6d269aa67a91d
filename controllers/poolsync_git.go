package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// Keys of the Secret that spec.source.git.secretRef names.
const (
	gitUsernameKey = "username"
	gitPasswordKey = "password"
	gitBearerKey   = "bearerToken"
	gitBundleKey   = "ca.crt"

	gitIdentityKey           = "identity"
	gitIdentityPassphraseKey = "identity.password"
	gitKnownHostsKey         = "known_hosts"
)

// Keys of the Secret that spec.source.git.proxySecretRef names, as Flux has them.
const (
	proxyAddressKey  = "address"
	proxyUsernameKey = "username"
	proxyPasswordKey = "password"
)

// resolve asks Git, or the source of Flux, what to follow.
func (r *poolSyncReconciler) resolve(ctx context.Context, p *syncPass) *stageError {
	if p.sync.Spec.SourceRef != nil {
		return r.resolveArtifact(ctx, p)
	}
	git, err := r.openGit(ctx, p)
	if err != nil {
		return transient(v1alpha1.ReasonSourceUnavailable, err)
	}
	if p.status.ObservedGeneration == p.sync.Generation {
		// Else it may be of another repository.
		p.before = p.status.LastAttemptedRevision
	}
	revision, err := git.Follow(ctx, refOf(p.sync), p.before)
	if err != nil {
		return transient(v1alpha1.ReasonSourceUnavailable, err)
	}
	p.revision, p.commit = revision, revision.Commit
	p.status.LastAttemptedRevision = revision.String()
	return nil
}

func refOf(sync *v1alpha1.PoolSync) fleet.Ref {
	return fleet.Ref(sync.Spec.Source.Git.Ref)
}

// tellHistory tells of a branch or tag that was made to name something else than what
// follows. It is followed all the same.
func (r *poolSyncReconciler) tellHistory(ctx context.Context, p *syncPass) {
	if p.commit == "" || p.artifact != nil {
		return
	}
	log := logf.FromContext(ctx)
	said, err := p.memory.git.Rewritten(ctx, p.before, p.revision)
	if err != nil {
		log.V(1).Info("does not know what became of the history", "before", p.before, "revision", p.revision.String(), "error", err.Error())
	}
	if said == "" {
		return
	}
	log.Info("sees history rewritten", "before", p.before, "revision", p.revision.String())
	r.events.record(p.sync, poolEvent{
		warning: true, reason: v1alpha1.ReasonHistoryRewritten, message: said + ": " + v1alpha1.ReasonHistoryRewritten.Remedy(), key: p.revision.String(),
	})
}

// verify holds the commit to the signatures that are asked for, before anything of
// it is read. It does so whenever Git is asked: signers come and go.
func (r *poolSyncReconciler) verify(ctx context.Context, p *syncPass) *stageError {
	asked := p.sync.Spec.Source.Git.Verify
	if asked == nil {
		return nil
	}
	object, _, err := r.secretOf(ctx, p.sync, &asked.SecretRef, "read the signers")
	if err != nil {
		return unreadSigners(p.sync, err)
	}
	signers, err := fleet.ParseSigners(object.Data)
	if err != nil {
		return unreadSigners(p.sync, fmt.Errorf("read the signers of the Secret %s: %w", asked.SecretRef.Name, err))
	}
	by, err := p.memory.git.Verify(ctx, p.revision, fleet.VerifyMode(asked.Mode, signers, r.clock.Now()))
	switch {
	case errors.Is(err, fleet.ErrUnverified):
		return stalled(v1alpha1.ReasonNotVerified, err)
	case err != nil:
		return transient(v1alpha1.ReasonSourceUnavailable, err)
	}
	p.verifiedBy = shorten(by, maxVerifiedBy)
	return nil
}

// unreadSigners is of signers whom nobody can tell: no signature helps before the
// Secret is right.
func unreadSigners(sync *v1alpha1.PoolSync, err error) *stageError {
	failed := transient(v1alpha1.ReasonNotVerified, err)
	failed.remedy = fmt.Sprintf("put the signers' public keys into the Secret %s/%s, or name another one in spec.source.git.verify.secretRef; nothing was changed", sync.Namespace, sync.Spec.Source.Git.Verify.SecretRef.Name)
	if apierrors.IsForbidden(err) {
		failed.remedy = fmt.Sprintf("let the fleet controller's account get Secrets of namespace %s; nothing was changed", sync.Namespace)
	}
	return failed
}

// maxVerifiedBy is the API's bound on status.verifiedBy, in bytes.
const maxVerifiedBy = 1024

// openGit returns the repository's reader, a new one where URL or credential
// have changed.
func (r *poolSyncReconciler) openGit(ctx context.Context, p *syncPass) (*fleet.Git, error) {
	source := p.sync.Spec.Source.Git
	auth, version, err := r.gitAuth(ctx, p.sync)
	if err != nil {
		return nil, err
	}
	openedFor := source.URL + " " + version
	if p.memory.git != nil && p.memory.gitFor == openedFor {
		return p.memory.git, nil
	}
	git, err := fleet.OpenGit(r.cloneDir(p.memory), source.URL, auth)
	if err != nil {
		return nil, err
	}
	p.memory.git, p.memory.gitFor = git, openedFor
	return git, nil
}

// cloneDir is of one PoolSync alone: two that follow one repository would take
// each other's trees away.
func (r *poolSyncReconciler) cloneDir(m *syncMemory) string {
	return filepath.Join(r.cacheDir, string(m.uid))
}

// sweepClones removes the clones of PoolSyncs that went while nobody ran. Where the
// PoolSyncs cannot be read, nothing is known to be gone.
func (r *poolSyncReconciler) sweepClones(ctx context.Context, namespace string) {
	log := logf.FromContext(ctx)
	all := &v1alpha1.PoolSyncList{}
	if err := r.client.List(ctx, all, client.InNamespace(namespace)); err != nil {
		log.Error(err, "cannot tell which clones nobody needs")
		return
	}
	var keep []string
	for i := range all.Items {
		keep = append(keep, string(all.Items[i].UID))
	}
	removed, err := fleet.Sweep(r.cacheDir, keep)
	if err != nil {
		log.Error(err, "leaves clones of PoolSyncs behind that are gone")
	}
	if len(removed) > 0 {
		log.Info("removes clones of PoolSyncs that are gone", "dirs", removed)
	}
}

func (r *poolSyncReconciler) removeClone(m *syncMemory) {
	if err := os.RemoveAll(r.cloneDir(m)); err != nil {
		logf.Log.Error(err, "leaves a clone behind", "dir", r.cloneDir(m))
	}
}

// gitAuth reads the credential. It is read each time and kept only inside the
// reader, so that a rotation is noticed at the next sync; version changes with it.
func (r *poolSyncReconciler) gitAuth(ctx context.Context, sync *v1alpha1.PoolSync) (auth fleet.Auth, version string, err error) {
	source := sync.Spec.Source.Git
	object, version, err := r.secretOf(ctx, sync, source.SecretRef, "read the Git credential")
	if err != nil {
		return fleet.Auth{}, "", err
	}
	// Made of a file, each may end with a newline.
	value := func(key string) string { return secret.Line(object.Data[key]) }
	auth = fleet.Auth{
		Username: value(gitUsernameKey),
		Password: secret.New(value(gitPasswordKey)),
		Bearer:   secret.New(value(gitBearerKey)),
		CABundle: object.Data[gitBundleKey],
		Identity: secret.New(value(gitIdentityKey)),
		// Flux has the passphrase under password.
		Passphrase: secret.New(cmp.Or(value(gitIdentityPassphraseKey), value(gitPasswordKey))),
		KnownHosts: object.Data[gitKnownHostsKey],
	}
	if source.ProxySecretRef == nil {
		return auth, version, nil
	}
	object, proxyVersion, err := r.secretOf(ctx, sync, source.ProxySecretRef, "read the proxy of spec.source.git.proxySecretRef")
	if err != nil {
		return fleet.Auth{}, "", err
	}
	auth.Proxy = &fleet.Proxy{Address: value(proxyAddressKey), Username: value(proxyUsernameKey), Password: secret.New(value(proxyPasswordKey))}
	return auth, version + " " + proxyVersion, nil
}

// secretOf reads a Secret of the PoolSync's namespace, an empty one where none is named;
// version changes with it.
func (r *poolSyncReconciler) secretOf(ctx context.Context, sync *v1alpha1.PoolSync, ref *v1alpha1.LocalObjectReference, doing string) (object *corev1.Secret, version string, err error) {
	object = &corev1.Secret{}
	if ref == nil {
		return object, "", nil
	}
	if err := r.live.Get(ctx, types.NamespacedName{Namespace: sync.Namespace, Name: ref.Name}, object); err != nil {
		return nil, "", fmt.Errorf("%s: %w", doing, err)
	}
	return object, string(object.UID) + "/" + object.ResourceVersion, nil
}
