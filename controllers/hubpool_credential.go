package controllers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

// A pool credential is minted and rotated in steps that each leave a trace in the
// Secret which it is for, so that whoever comes after a crash knows what was done:
//
//	claim   the Secret is there, is ours, and has the key of the mint to come
//	mint    the hub makes a credential under that key, and shows it this once
//	write   the Secret has the credential, its id, and the ids that it replaces
//	finish  the hub revokes what was replaced, once nobody needs it
//
// A mint whose answer was lost is found by its key, which brings the id without the
// credential: that one nobody has, so it is revoked, and another is minted.

// keptCredential is what a Secret says of the credential in it.
type keptCredential struct {
	// object is nil where there is no Secret.
	object *corev1.Secret
	// id and created are of the credential, where it is as the controller wrote it.
	id      string
	created time.Time
	// replaces are credentials that it came after, mint the key of one to come.
	replaces []string
	mint     string
}

// credentialAct is what is to be done next.
type credentialAct string

const (
	credentialRests    credentialAct = ""
	credentialClaims   credentialAct = "claim"
	credentialMints    credentialAct = "mint"
	credentialFinishes credentialAct = "finish"
)

// credentialPlan is what decideCredential comes to.
type credentialPlan struct {
	act credentialAct
	// old are credentials of the HubPool's that are still accepted and that the
	// Secret does not have.
	old []string
	// due is when the one in the Secret is to be replaced; zero: never.
	due time.Time
}

// decideCredential decides on the next step: live are the ids that the hub accepts,
// known those that the status names, now the time at the hub.
func decideCredential(kept keptCredential, live map[string]bool, known []string, now time.Time, every *metav1.Duration) credentialPlan {
	var plan credentialPlan
	holds := kept.id != "" && live[kept.id]
	for _, id := range slices.Concat(kept.replaces, known, []string{kept.id}) {
		if live[id] && (!holds || id != kept.id) && !slices.Contains(plan.old, id) {
			plan.old = append(plan.old, id)
		}
	}
	slices.Sort(plan.old)
	if holds && every != nil && every.Duration > 0 {
		plan.due = kept.created.Add(every.Duration)
	}
	switch {
	case kept.mint != "":
		plan.act = credentialMints
	case !holds:
		plan.act = credentialClaims
	case len(plan.old) > 0:
		// One rotation ends before the next begins.
		plan.act = credentialFinishes
	case !plan.due.IsZero() && !now.Before(plan.due):
		plan.act = credentialClaims
	}
	return plan
}

// credential takes the steps that are due.
func (r *hubPoolReconciler) credential(ctx context.Context, p *hubPoolPass) *stageError {
	spec := p.pool.Spec.Credential
	if spec == nil || p.have.State != hubv1.PoolActive {
		return nil
	}
	// Few of them suffice; more would be a fight with somebody.
	for range 6 {
		kept, err := r.readKept(ctx, p)
		if err != nil {
			return err
		}
		list, failure := p.hub.credentials(ctx, p.pool.Name)
		if failure != nil {
			return hubFailure(failure)
		}
		live := map[string]bool{}
		for i := range list {
			live[list[i].ID] = true
		}
		plan := decideCredential(kept, live, p.knownCredentials(), p.hub.now(), spec.RotateEvery)
		p.noteCredential(kept, live, plan)
		switch plan.act {
		case credentialClaims:
			err = r.claim(ctx, p, kept, len(plan.old) > 0)
		case credentialMints:
			err = r.mint(ctx, p, kept, plan.old)
		case credentialFinishes:
			return r.finishRotation(ctx, p, kept.id, plan.old)
		default:
			p.memory.finishes = 0
			if !plan.due.IsZero() {
				p.comeBack(r.clock.Now().Add(plan.due.Sub(p.hub.now())))
			}
			return nil
		}
		if err != nil || p.waits != "" {
			return err
		}
	}
	return transient(v1alpha1.ReasonCredentialUnwritten, fmt.Errorf("the Secret %s changes as fast as it is written", p.secretName()))
}

// knownCredentials are those that the status says were minted.
func (p *hubPoolPass) knownCredentials() []string {
	if c := p.status.Credential; c != nil {
		return append(slices.Clone(c.Replaces), c.ID)
	}
	return nil
}

// noteCredential keeps in the status what a Secret says that may be deleted.
func (p *hubPoolPass) noteCredential(kept keptCredential, live map[string]bool, plan credentialPlan) {
	c := &v1alpha1.MintedCredential{Replaces: plan.old[:min(len(plan.old), maxReplaced)]}
	if live[kept.id] {
		// As the API server keeps it, or each pass would find another time there.
		c.ID, c.CreatedAt = kept.id, new(metav1.NewTime(kept.created.Truncate(time.Second)))
	}
	if c.ID == "" && len(c.Replaces) == 0 {
		c = nil
	}
	p.status.Credential = c
}

// maxReplaced is the API's bound.
const maxReplaced = 16

func (p *hubPoolPass) secretKey() client.ObjectKey {
	ref := p.pool.Spec.Credential.SecretRef
	return client.ObjectKey{Namespace: orElse(ref.Namespace, p.pool.Namespace), Name: ref.Name}
}

func (p *hubPoolPass) secretName() string { return p.secretKey().String() }

// credentialOf is the value of the label that makes a Secret a HubPool's.
func credentialOf(pool types.NamespacedName) string {
	return podspec.LabelValue(pool.Namespace + "." + pool.Name)
}

func (p *hubPoolPass) credentialOf() string { return credentialOf(p.name()) }

// readKept reads the Secret that the credential is for.
func (r *hubPoolReconciler) readKept(ctx context.Context, p *hubPoolPass) (keptCredential, *stageError) {
	object := &corev1.Secret{}
	err := r.live.Get(ctx, p.secretKey(), object)
	if apierrors.IsNotFound(err) {
		return keptCredential{}, nil
	}
	if err != nil {
		return keptCredential{}, transient(v1alpha1.ReasonCredentialUnwritten, fmt.Errorf("read the Secret %s: %w", p.secretName(), err))
	}
	object, failure := r.inheritSecret(ctx, p, object)
	if failure != nil {
		return keptCredential{}, failure
	}
	if object.Labels[v1alpha1.LabelCredentialOf] != p.credentialOf() {
		return keptCredential{}, stalled(v1alpha1.ReasonCredentialNotOurs, fmt.Errorf("the Secret %s is there already and was not made for this HubPool, so nothing is written into it", p.secretName()))
	}
	return keptIn(object, p.pool.Spec.Credential.SecretRef.Key), nil
}

// keptIn reads what the controller wrote into a Secret. What somebody else put in
// the credential's place is not it.
func keptIn(object *corev1.Secret, key string) keptCredential {
	kept := keptCredential{object: object, mint: object.Annotations[v1alpha1.AnnotationCredentialMint]}
	for id := range strings.SplitSeq(object.Annotations[v1alpha1.AnnotationCredentialReplaces], ",") {
		if id != "" {
			kept.replaces = append(kept.replaces, id)
		}
	}
	id := object.Annotations[v1alpha1.AnnotationCredentialID]
	created, err := time.Parse(time.RFC3339Nano, object.Annotations[v1alpha1.AnnotationCredentialCreated])
	text := string(object.Data[key])
	if err == nil && poolCredential.MatchString(text) && secret.Whole(text) && writtenByUs(object, key) {
		kept.id, kept.created = id, created
	} else if id != "" {
		kept.replaces = append(kept.replaces, id)
	}
	return kept
}

// writtenByUs says whether the controller wrote the value under a key: whoever
// changes it afterwards takes the field over.
func writtenByUs(object *corev1.Secret, key string) bool {
	return slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		if entry.Manager != v1alpha1.FieldManagerPoolSync || entry.FieldsV1 == nil {
			return false
		}
		var fields struct {
			Data map[string]json.RawMessage `json:"f:data"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		_, wrote := fields.Data["f:"+key]
		return wrote
	})
}

// claim makes the Secret ours, and says in it under which key a credential is about
// to be minted. lost says that it replaces one that somebody has taken away.
func (r *hubPoolReconciler) claim(ctx context.Context, p *hubPoolPass, kept keptCredential, lost bool) *stageError {
	if lost && kept.id == "" {
		if at, may := p.memory.rewrites.enter(r.clock.Now()); !may {
			p.comeBack(at)
			p.waits = "a while, because the credential is taken out of its Secret as fast as it is written"
			return nil
		}
	}
	mint := string(p.pool.UID) + "/" + rand.Text()
	if kept.object != nil {
		return r.writeSecret(ctx, p, kept.object, func(object *corev1.Secret) {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationCredentialMint, mint)
		})
	}
	key := p.secretKey()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.LabelCredentialOf: p.credentialOf()},
		Annotations: map[string]string{v1alpha1.AnnotationCredentialMint: mint},
	}}
	err := r.client.Create(ctx, object)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil // whose it is the next look says
	}
	return p.unwritten("create", err)
}

func (p *hubPoolPass) unwritten(doing string, err error) *stageError {
	return transient(v1alpha1.ReasonCredentialUnwritten, fmt.Errorf("%s the Secret %s: %w", doing, p.secretName(), err))
}

// writeSecret changes a Secret that is as it was read.
func (r *hubPoolReconciler) writeSecret(ctx context.Context, p *hubPoolPass, object *corev1.Secret, change func(*corev1.Secret)) *stageError {
	changed := object.DeepCopy()
	change(changed)
	err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{}))
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the next look finds what it has become
	}
	return p.unwritten("write", err)
}

// mint makes the credential that was announced, and writes it.
func (r *hubPoolReconciler) mint(ctx context.Context, p *hubPoolPass, kept keptCredential, old []string) *stageError {
	made, err := p.hub.mint(ctx, p.pool.Name, kept.mint)
	if err != nil {
		return hubFailure(err)
	}
	if made.Secret == "" {
		// Made before, and lost since: nobody has it.
		if made.ID == kept.id {
			// Written before; only the announcement is left.
			return r.writeSecret(ctx, p, kept.object, func(object *corev1.Secret) { delete(object.Annotations, v1alpha1.AnnotationCredentialMint) })
		}
		if err := p.hub.revoke(ctx, p.pool.Name, made.ID); err != nil {
			return hubFailure(err)
		}
		p.log(ctx, "revokes a pool credential that was lost", "credential", made.ID)
		return r.claim(ctx, p, kept, false)
	}
	if kept.id != "" && !slices.Contains(old, kept.id) {
		old = append(slices.Clone(old), kept.id)
	}
	failure := r.writeSecret(ctx, p, kept.object, func(object *corev1.Secret) {
		if object.Data == nil {
			object.Data = map[string][]byte{}
		}
		object.Data[p.pool.Spec.Credential.SecretRef.Key] = []byte(made.Secret)
		delete(object.Annotations, v1alpha1.AnnotationCredentialMint)
		for key, value := range map[string]string{
			v1alpha1.AnnotationCredentialID:       made.ID,
			v1alpha1.AnnotationCredentialCreated:  made.CreatedAt.UTC().Format(time.RFC3339Nano),
			v1alpha1.AnnotationCredentialReplaces: strings.Join(old, ","),
		} {
			metav1.SetMetaDataAnnotation(&object.ObjectMeta, key, value)
		}
	})
	if failure == nil {
		p.log(ctx, "mints a pool credential", "credential", made.ID, "secret", p.secretName())
		r.events.record(p.pool, poolEvent{reason: v1alpha1.ReasonCredentialMinted, key: made.ID,
			message: fmt.Sprintf("minted credential %s and wrote it into the Secret %s", made.ID, p.secretName())})
	}
	return failure
}

const (
	finishFirst = 2 * time.Second
	finishLast  = time.Minute
)

// finishRotation has the hub revoke what the Secret's credential replaces, once
// nobody needs it.
func (r *hubPoolReconciler) finishRotation(ctx context.Context, p *hubPoolPass, to string, from []string) *stageError {
	_, err := p.hub.finish(ctx, p.pool.Name, hubv1.FinishRotationRequest{To: to, From: from})
	if problemCode(err) == hubv1.CodeRotationUnfinished {
		p.comeBack(r.clock.Now().Add(r.jitter(retry.After(p.memory.finishes, finishFirst, finishLast))))
		p.memory.finishes++
		var unfinished *hubv1.Problem
		if errors.As(err, &unfinished) && len(unfinished.Errors) > 0 {
			p.waits = "earlier credentials, which are still needed: " + unfinished.Errors[0].Message
		}
		return nil
	}
	if err != nil {
		return hubFailure(err)
	}
	p.memory.finishes = 0
	p.status.Credential.Replaces = nil
	p.log(ctx, "revokes replaced pool credentials", "credentials", from)
	r.events.record(p.pool, poolEvent{reason: v1alpha1.ReasonCredentialRevoked, key: strings.Join(from, ","),
		message: fmt.Sprintf("revoked %s, replaced by %s", strings.Join(from, ", "), to)})
	return nil
}

// removeSecret removes what has no use any more once the pool is revoked.
func (r *hubPoolReconciler) removeSecret(ctx context.Context, p *hubPoolPass) *stageError {
	if p.pool.Spec.Credential == nil {
		return nil
	}
	kept, err := r.readKept(ctx, p)
	if err != nil || kept.object == nil {
		// One that is not ours, or that nobody may read any more, is not removed.
		return nil
	}
	failure := r.client.Delete(ctx, kept.object, client.Preconditions{UID: &kept.object.UID, ResourceVersion: &kept.object.ResourceVersion})
	if client.IgnoreNotFound(failure) != nil && !apierrors.IsForbidden(failure) {
		return p.unwritten("delete", failure)
	}
	return nil
}
