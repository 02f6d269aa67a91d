package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
)

func TestWhatACredentialNeedsNext(t *testing.T) {
	now := time.Now()
	day := &metav1.Duration{Duration: 24 * time.Hour}
	kept := func(id string, age time.Duration, replaces ...string) keptCredential {
		return keptCredential{object: &corev1.Secret{}, id: id, created: now.Add(-age), replaces: replaces}
	}
	minting := func(k keptCredential) keptCredential { k.mint = "key"; return k }
	for name, test := range map[string]struct {
		kept  keptCredential
		live  string
		known []string
		every *metav1.Duration
		act   credentialAct
		old   string
	}{
		"no Secret":                    {keptCredential{}, "", nil, nil, credentialClaims, ""},
		"no Secret any more":           {keptCredential{}, "a b", []string{"a"}, nil, credentialClaims, "a"},
		"claimed":                      {minting(kept("", 0)), "", nil, nil, credentialMints, ""},
		"written":                      {kept("a", time.Hour), "a", []string{"a"}, nil, credentialRests, ""},
		"revoked at the hub":           {kept("a", time.Hour), "b", []string{"a"}, nil, credentialClaims, ""},
		"another cluster's beside it":  {kept("a", time.Hour), "a b", []string{"a"}, day, credentialRests, ""},
		"due":                          {kept("a", 24*time.Hour), "a", nil, day, credentialClaims, ""},
		"due, but never to be rotated": {kept("a", 24*time.Hour), "a", nil, nil, credentialRests, ""},
		"due and claimed":              {minting(kept("a", 25*time.Hour)), "a", nil, day, credentialMints, ""},
		"rotated":                      {kept("b", time.Hour, "a"), "a b c", []string{"a"}, day, credentialFinishes, "a"},
		"due, the last not ended":      {kept("b", 25*time.Hour, "a"), "a b", nil, day, credentialFinishes, "a"},
		"rotated and ended":            {kept("b", time.Hour, "a"), "b", []string{"b"}, day, credentialRests, ""},
		"after a Secret that was lost": {kept("b", time.Hour), "a b", []string{"a"}, nil, credentialFinishes, "a"},
	} {
		live := map[string]bool{}
		for _, id := range strings.Fields(test.live) {
			live[id] = true
		}
		plan := decideCredential(test.kept, live, test.known, now, test.every)
		if plan.act != test.act || strings.Join(plan.old, " ") != test.old {
			t.Errorf("%s: %q with %q, want %q with %q", name, plan.act, plan.old, test.act, test.old)
		}
	}
}

// mintedWell fails unless the Secret has the one credential of the pool's that the
// hub accepts, beside those that are somebody else's.
func (s *hubStage) mintedWell(namespace string, others ...string) *corev1.Secret {
	s.t.Helper()
	object := s.secret(namespace)
	if object == nil {
		s.t.Fatal("there is no Secret")
	}
	live := s.live()
	id := object.Annotations[v1alpha1.AnnotationCredentialID]
	if !live[id] || len(live) != 1+len(others) || object.Annotations[v1alpha1.AnnotationCredentialMint] != "" {
		s.t.Fatalf("the Secret has %q, the hub accepts %v", object.Annotations, live)
	}
	if pool := s.use(object).Pool; pool.Name != s.name {
		s.t.Fatalf("the credential is of pool %s", pool.Name)
	}
	return object
}

func TestACredentialIsMintedAndRotated(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	other := clustertest.Namespace(t, s.config)
	s.pool(mints(other, time.Hour))
	p, wait := s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	first := s.mintedWell(other)
	if c := p.Status.Credential; c == nil || c.ID != first.Annotations[v1alpha1.AnnotationCredentialID] || c.CreatedAt == nil || wait > 2*lookForSecret {
		t.Errorf("the status has %+v; comes back in %s", c, wait)
	}
	if again, _ := s.pass(); again.ResourceVersion != p.ResourceVersion || s.secret(other).ResourceVersion != first.ResourceVersion {
		t.Error("a quiet pass writes")
	}
	// Another cluster serves the pool with a credential of its own, and is away when
	// this one is rotated.
	elsewhere, err := s.hub.admin.CreateCredential(s.ctx, s.name)
	if err != nil {
		t.Fatal(err)
	}

	s.age(other, 2*time.Hour)
	p, wait = s.pass()
	second := s.secret(other)
	if second.Annotations[v1alpha1.AnnotationCredentialReplaces] != first.Annotations[v1alpha1.AnnotationCredentialID] || len(s.live()) != 3 {
		t.Fatalf("the Secret has %q, the hub accepts %v", second.Annotations, s.live())
	}
	s.wants(p, v1alpha1.ReasonPushed, "still needed")
	if c := p.Status.Credential; len(c.Replaces) != 1 || wait > 5*time.Second {
		t.Errorf("the status has %+v; comes back in %s", c, wait)
	}
	s.use(second)
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	s.mintedWell(other, elsewhere.ID)
	if len(p.Status.Credential.Replaces) != 0 || !s.live()[elsewhere.ID] {
		t.Errorf("the status has %+v, the hub accepts %v", p.Status.Credential, s.live())
	}
	s.noSecrets(other, p, first, second)
}

// noSecrets fails where a credential is in a status, an Event or the hub's log.
func (s *hubStage) noSecrets(namespace string, p *v1alpha1.HubPool, had ...*corev1.Secret) {
	s.t.Helper()
	seen := fmt.Sprintf("%+v %+v %s %s", p.Status, p.Annotations, s.recorded, s.hub.log)
	for _, object := range append(had, s.secret(namespace)) {
		if text := string(object.Data["credential"]); text != "" && strings.Contains(seen, text) {
			s.t.Error("a pool credential is shown")
		}
		if strings.Contains(fmt.Sprint(object.Annotations), string(object.Data["credential"])) {
			s.t.Error("a pool credential is in an annotation")
		}
	}
	if strings.Contains(seen, sharedHub.token) {
		s.t.Error("the management token is shown")
	}
}

// age makes the Secret's credential older.
func (s *hubStage) age(namespace string, by time.Duration) {
	s.t.Helper()
	object := s.secret(namespace)
	before := object.DeepCopy()
	at, err := time.Parse(time.RFC3339Nano, object.Annotations[v1alpha1.AnnotationCredentialCreated])
	if err != nil {
		s.t.Fatal(err)
	}
	object.Annotations[v1alpha1.AnnotationCredentialCreated] = at.Add(-by).Format(time.RFC3339Nano)
	if err := s.client.Patch(s.ctx, object, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// How old a credential is goes by the clock of the hub that made it.
func TestACredentialAgesByTheHubsClock(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(mints(s.ns, 24*time.Hour))
	s.pass()
	first := s.mintedWell(s.ns)
	s.hub.goesAhead(23 * time.Hour)
	s.restart()
	if _, wait := s.pass(); s.secret(s.ns).ResourceVersion != first.ResourceVersion || wait > time.Hour+time.Minute {
		t.Error("it is rotated early")
	}
	s.hub.goesAhead(25 * time.Hour)
	s.restart()
	if s.pass(); s.secret(s.ns).Annotations[v1alpha1.AnnotationCredentialID] == first.Annotations[v1alpha1.AnnotationCredentialID] {
		t.Error("it is not rotated")
	}
}

// Whatever happens to the Secret, the pool has a credential again, and what was lost
// is revoked.
func TestALostCredentialIsReplaced(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*hubStage, *corev1.Secret) error{
		"the Secret is deleted": func(s *hubStage, object *corev1.Secret) error { return s.client.Delete(s.ctx, object) },
		"its data is taken out": func(s *hubStage, object *corev1.Secret) error {
			object.Data = nil
			return s.client.Update(s.ctx, object)
		},
		"something else is put in": func(s *hubStage, object *corev1.Secret) error {
			object.Data["credential"] = []byte(fakeCredential)
			return s.client.Update(s.ctx, object)
		},
		"it is revoked at the hub": func(s *hubStage, object *corev1.Secret) error {
			_, err := s.hub.admin.RevokeCredential(s.ctx, s.name, object.Annotations[v1alpha1.AnnotationCredentialID])
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			s.pool(mints(s.ns, 0))
			s.pass()
			first := s.mintedWell(s.ns)
			if err := lose(s, first.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			s.pass()
			s.use(s.secret(s.ns))
			s.pass()
			second := s.mintedWell(s.ns)
			if second.Annotations[v1alpha1.AnnotationCredentialID] == first.Annotations[v1alpha1.AnnotationCredentialID] {
				t.Error("it has the credential that was lost")
			}
		})
	}
}

// What somebody else made is not written into, whatever a committer names.
func TestAForeignSecretIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu-pool-credential"}, Data: map[string][]byte{"credential": []byte("somebody's")}}
	if err := s.client.Create(s.ctx, foreign); err != nil {
		t.Fatal(err)
	}
	s.pool(mints(s.ns, 0))
	p, wait := s.pass()
	s.wants(p, v1alpha1.ReasonCredentialNotOurs, "gpu-pool-credential")
	if got := s.secret(s.ns); got.ResourceVersion != foreign.ResourceVersion || len(s.live()) != 0 || wait > 2*time.Minute {
		t.Errorf("it is %+v, the hub accepts %v; comes back in %s", got, s.live(), wait)
	}
	// The pool itself is defined, and a Secret that goes makes room.
	s.atHub()
	if err := s.client.Delete(s.ctx, foreign); err != nil {
		t.Fatal(err)
	}
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	s.mintedWell(s.ns)
}

func TestANamespaceThatTakesNoSecret(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	going := clustertest.Namespace(t, s.config)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: going, Name: "slow", Finalizers: []string{"example.com/ends-slowly"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	if err := s.client.Create(s.ctx, pod); err != nil {
		t.Fatal(err)
	}
	deleteNamespace(t, s.client, going)
	t.Cleanup(func() {
		_ = s.client.Patch(context.Background(), pod, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	s.pool(mints("nowhere-"+s.ns[max(0, len(s.ns)-20):], 0))
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonCredentialUnwritten, "not found")
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.Credential.SecretRef.Namespace = going })
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonCredentialUnwritten, "being terminated")
	if live := s.live(); len(live) != 0 {
		t.Errorf("credentials were minted that nobody has: %v", live)
	}
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.Credential.SecretRef.Namespace = "" })
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	s.mintedWell(s.ns)
}

// errKilled is what a process sees that dies: nothing.
var errKilled = errors.New("killed")

// deadline kills a process at its n-th change: before it is made, or after it was
// made and before the answer came. From then on nothing of it arrives anywhere.
type deadline struct {
	after bool

	mu   sync.Mutex // guards what follows: the hub's changes are met as it serves them
	left int
	dead bool
	// done counts the changes.
	done int
}

// stands says whether the process is dead, and how many changes it has begun.
func (d *deadline) stands() (dead bool, done int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead, d.done
}

// change says whether a change is made, and whether its answer arrives.
func (d *deadline) change() (made, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false, false
	}
	d.done++
	d.left--
	d.dead = d.left == 0
	return !d.dead || d.after, !d.dead
}

// through is the API server as the process sees it.
func (s *hubStage) through(d *deadline) client.Client {
	s.t.Helper()
	base, err := client.NewWithWatch(s.config, client.Options{Scheme: newScheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	do := func(change func() error) error {
		made, answered := d.change()
		if made {
			if err := change(); err != nil {
				return err
			}
		}
		if !answered {
			return errKilled
		}
		return nil
	}
	return interceptor.NewClient(base, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return do(func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return do(func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return do(func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return do(func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// A process is killed at each of its changes, in the cluster and at the hub, before
// it is made and after. The next one always comes to the same: one credential, which
// the Secret has, and in the end nothing that is left over.
func TestAKilledHubPoolControllerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	lives := []struct {
		name string
		live func(*hubStage)
	}{
		{"made", func(s *hubStage) { s.pool(mints(s.ns, time.Hour), revokes) }},
		{"rotated", func(s *hubStage) { s.age(s.ns, 2*time.Hour) }},
		{"changed", func(s *hubStage) { s.edit(func(p *v1alpha1.HubPool) { p.Spec.MaxRunners++ }) }},
		{"deleted", func(s *hubStage) { s.delete() }},
	}
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after %v", after), func(t *testing.T) {
			t.Parallel()
			kills, s := 0, newHubStage(t)
			for at := 1; ; at++ {
				died := false
				for _, l := range lives {
					l.live(s)
					died = s.untilKilled(at, after) || died
					s.settle()
					if l.name != "deleted" {
						s.mintedWell(s.ns)
					}
				}
				for deadline := time.Now().Add(patience); s.get() != nil && time.Now().Before(deadline); {
					s.pass() // the hub drains the pool in its own time
				}
				if s.get() != nil || s.secret(s.ns) != nil || len(s.live()) != 0 {
					t.Fatalf("killed at change %d: left are %+v, the Secret %v, credentials %v", at, s.get(), s.secret(s.ns), s.live())
				}
				if got := s.atHub().State; got != "revoked" {
					t.Fatalf("killed at change %d: the pool is %s", at, got)
				}
				if !died {
					break
				}
				kills++
			}
			if kills < 6 {
				t.Errorf("only %d changes", kills)
			}
		})
	}
}

// untilKilled makes passes until the process is killed or at rest, and says which.
func (s *hubStage) untilKilled(at int, after bool) bool {
	d := &deadline{left: at, after: after}
	mutates := func(r *http.Request) bool { return r.Method != http.MethodGet }
	var lost sync.Map // request → its answer does not arrive
	s.hub.meets(func(_ http.ResponseWriter, r *http.Request) bool {
		if mutates(r) {
			made, answered := d.change()
			if !made {
				panic(http.ErrAbortHandler)
			}
			if !answered {
				lost.Store(r, true)
			}
		}
		return false
	})
	s.hub.loses(func(r *http.Request) bool { _, is := lost.Load(r); return is })
	s.restartWith(s.through(d))
	for before := -1; ; {
		dead, done := d.stands()
		if dead || done == before || done >= 100 {
			break
		}
		before = done
		_, _ = s.r.Reconcile(s.ctx, s.request()) // what becomes of it is seen in the end
		s.useWhatThereIs()
	}
	s.hub.meets(nil)
	s.hub.loses(nil)
	dead, _ := d.stands()
	return dead
}

// settle has the next process come to rest.
func (s *hubStage) settle() {
	s.t.Helper()
	s.restart()
	for range 2 {
		s.pass()
		s.useWhatThereIs()
	}
	s.pass()
}

// useWhatThereIs has an executor controller take the credential from the Secret.
func (s *hubStage) useWhatThereIs() {
	object := s.secret(s.ns)
	if object == nil || len(object.Data["credential"]) == 0 || object.Annotations[v1alpha1.AnnotationCredentialID] == s.used {
		return
	}
	s.used = object.Annotations[v1alpha1.AnnotationCredentialID]
	s.use(object)
}
