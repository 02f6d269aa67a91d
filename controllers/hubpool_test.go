package controllers

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

func TestAHubPoolBecomesAPoolOfItsHub(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(func(p *v1alpha1.HubPool) {
		p.Annotations = map[string]string{v1alpha1.AnnotationRevision: "main@sha1:abc", v1alpha1.AnnotationSourcePath: "hub/gpu.yaml"}
	})
	p, wait := s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "main@sha1:abc")
	have := s.atHub()
	if have.MaxRunners != 3 || have.Labels["gpu"] != "true" || have.Source == nil || have.Source.Sync != "cluster:test/"+s.ns+"/"+s.name || have.Source.Path != "hub/gpu.yaml" {
		t.Errorf("the hub has %+v from %+v", have.PoolDefinition, have.Source)
	}
	at := p.Status.Hub
	if at == nil || at.ID != have.ID || at.State != "active" || at.Source == nil || at.Source.Revision != "main@sha1:abc" || at.Source.Digest != have.Source.Digest {
		t.Errorf("the status has %+v", at)
	}
	if !slices.Equal(p.Finalizers, []string{v1alpha1.FinalizerHubPool}) || wait < time.Minute || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("finalizers %q, comes back in %s, observed %d", p.Finalizers, wait, p.Status.ObservedGeneration)
	}
	if drifted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionDrifted); drifted == nil || drifted.Reason != string(v1alpha1.ReasonNoDrift) {
		t.Errorf("Drifted is %+v", drifted)
	}

	again, _ := s.pass()
	if again.ResourceVersion != p.ResourceVersion || s.atHub().Revision != have.Revision {
		t.Error("a quiet pass writes")
	}
	s.restart()
	s.pass()
	if s.atHub().Revision != have.Revision {
		t.Error("a new process changes what is as it should be")
	}

	s.edit(func(p *v1alpha1.HubPool) {
		p.Spec.MaxRunners, p.Spec.Cordon = 5, &v1alpha1.Cordon{Reason: "node upgrades"}
	})
	p, _ = s.pass()
	if have = s.atHub(); have.MaxRunners != 5 || have.Cordon == nil || have.Cordon.Reason != "node upgrades" || !strings.Contains(p.Status.Hub.Cordon, "node upgrades") {
		t.Errorf("the hub has %+v, cordoned %+v", have.PoolDefinition, have.Cordon)
	}
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.Cordon = nil })
	if s.pass(); s.atHub().Cordon != nil {
		t.Error("it stays cordoned")
	}
}

// Whoever asks with Flux's annotation gets a look at everything.
func TestARequestToReconcileAHubPoolIsServed(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool()
	s.pass()
	s.edit(func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, fluxmeta.ReconcileRequestAnnotation, "now")
	})
	told := 0
	s.hub.meets(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			told++
		}
		return false
	})
	if p, _ := s.pass(); p.Status.LastHandledReconcileAt != "now" || told != 1 {
		t.Errorf("handled %q, told the hub %d times", p.Status.LastHandledReconcileAt, told)
	}
}

func TestAnOverrideAtTheHubShowsAsDrift(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool()
	s.pass()
	if _, err := s.hub.admin.OverridePool(s.ctx, s.name, "", hubv1.UpdatePoolRequest{MaxRunners: new(int32(9))}, "a release is late", time.Hour); err != nil {
		t.Fatal(err)
	}
	s.restart()
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	if s.atHub().MaxRunners != 9 || p.Status.Hub.MaxRunners != 9 {
		t.Errorf("the override is fought: the hub has %d", s.atHub().MaxRunners)
	}
	d := p.Status.Drift
	if len(d) != 1 || d[0].Path != "/spec/maxRunners" || d[0].Cause != v1alpha1.DriftBreakGlass || d[0].Git != "3" || d[0].Hub != "9" || d[0].Manager == "" {
		t.Errorf("drift is %+v", d)
	}
	drifted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionDrifted)
	if drifted == nil || drifted.Reason != string(v1alpha1.ReasonOverridden) || !strings.Contains(drifted.Message, "a release is late") {
		t.Errorf("Drifted is %+v", drifted)
	}
	if _, err := s.hub.admin.EndOverride(s.ctx, s.name); err != nil {
		t.Fatal(err)
	}
	s.restart()
	if p, _ = s.pass(); len(p.Status.Drift) != 1 || p.Status.Drift[0].Corrected == nil {
		t.Errorf("drift is %+v", p.Status.Drift)
	}
}

func TestWithoutAHubAHubPoolIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(func(p *v1alpha1.HubPool) { p.Spec.Hub = nil })
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonLeftToHub, "spec.hub")
	if len(p.Finalizers) != 0 || meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReconciling) {
		t.Errorf("finalizers %q, conditions %+v", p.Finalizers, p.Status.Conditions)
	}
}

// Each fault has a reason and says what to do, and goes with what caused it.
func TestWhatKeepsAHubPoolFromItsHub(t *testing.T) {
	t.Parallel()
	refusal := func(s *hubStage, status int, p hubv1.Problem) {
		s.hub.meets(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut {
				return false
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(p)
			return true
		})
	}
	for name, test := range map[string]struct {
		so      func(*testing.T, *hubStage)
		reason  v1alpha1.Reason
		text    string
		stalled bool
	}{
		"no token": {func(t *testing.T, s *hubStage) {
			if err := s.client.Delete(s.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "hub-token"}}); err != nil {
				t.Fatal(err)
			}
		}, v1alpha1.ReasonTokenUnreadable, "does not exist", false},
		"no token in the key": {func(_ *testing.T, s *hubStage) { s.token("") }, v1alpha1.ReasonTokenUnreadable, "nothing under the key", false},
		"another secret":      {func(_ *testing.T, s *hubStage) { s.token("hunter2-the-password-of-git") }, v1alpha1.ReasonTokenUnreadable, "no whole token", false},
		"an ended token":      {func(_ *testing.T, s *hubStage) { s.token(whole("cloop_usr1_" + strings.Repeat("a", 43))) }, v1alpha1.ReasonTokenRefused, "", true},
		"a token that may only read": {func(_ *testing.T, s *hubStage) {
			s.scoped(hubv1.Ceiling{}, hubv1.PermissionExecutorRead)
		}, v1alpha1.ReasonTokenRefused, "executor.manage", true},
		"a ceiling": {func(_ *testing.T, s *hubStage) {
			s.scoped(hubv1.Ceiling{MaxRunners: 2})
		}, v1alpha1.ReasonDefinitionRefused, "maxRunners", true},
		"another hub than allowed": {func(_ *testing.T, s *hubStage) { s.restartWith(s.client, "hub.example.com") }, v1alpha1.ReasonHubNotAllowed, "allowed", true},
		"no hub":                   {func(_ *testing.T, s *hubStage) { s.hub.shut() }, v1alpha1.ReasonHubUnavailable, "", false},
		"a hub that fails":         {func(_ *testing.T, s *hubStage) { refusal(s, 500, hubv1.Problem{Code: hubv1.CodeInternal}) }, v1alpha1.ReasonHubUnavailable, "", false},
		"an older hub":             {func(_ *testing.T, s *hubStage) { refusal(s, 404, hubv1.Problem{}) }, v1alpha1.ReasonHubTooOld, "upgrade the hub", false},
		"a sync of the hub's": {func(_ *testing.T, s *hubStage) {
			refusal(s, 409, hubv1.Problem{Code: hubv1.CodePoolManagedByGit, Detail: "pool gpu belongs to Git: fleet.git hub/gpu.yaml", Source: &hubv1.Provenance{Sync: "fleet"}})
		}, v1alpha1.ReasonHubSyncOwns, "fleet.git", true},
		"another cluster's": {func(t *testing.T, s *hubStage) {
			_, err := s.hub.admin.DefinePool(s.ctx, s.name, hubv1.DefinePoolRequest{
				Definition: hubv1.PoolDefinition{MaxRunners: 1}, Provenance: hubv1.Provenance{Sync: hubv1.ClusterOwner("other", "fleet", s.name)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}, v1alpha1.ReasonOwnedByAnother, "of cluster other", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			s.pool()
			test.so(t, s)
			p, wait := s.pass()
			s.wants(p, test.reason, test.text)
			ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
			if advice, _, _ := strings.Cut(test.reason.Remedy(), "; "); advice == "" || !strings.Contains(ready.Message, advice) {
				t.Errorf("it does not say what to do: %s", ready.Message)
			}
			if got := meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled); got != test.stalled || wait <= 0 || wait > 2*time.Minute {
				t.Errorf("Stalled is %v, comes back in %s", got, wait)
			}
			// And all is well again once that is over.
			s.token(sharedHub.token)
			s.hub.open()
			s.restart()
			if test.reason == v1alpha1.ReasonOwnedByAnother {
				return
			}
			p, _ = s.pass()
			s.wants(p, v1alpha1.ReasonPushed, "")
		})
	}
}

// A definition that the hub refuses after it had another shows as a commit that
// waits.
func TestARefusedChangeShowsAsDrift(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.scoped(hubv1.Ceiling{MaxRunners: 4})
	s.pool()
	s.pass()
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.MaxRunners = 5 })
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonDefinitionRefused, "maxRunners")
	if d := p.Status.Drift; len(d) != 1 || d[0].Cause != v1alpha1.DriftCommitNotApplied || d[0].Git != "5" || d[0].Hub != "3" || s.atHub().MaxRunners != 3 {
		t.Errorf("drift is %+v", d)
	}
}

// A hub that is asked too often says when to come back, and until then nothing is
// asked, for no HubPool.
func TestAHubThatWantsAPauseGetsIt(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool()
	asked := 0
	s.hub.meets(func(w http.ResponseWriter, _ *http.Request) bool {
		asked++
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonHubUnavailable, "")
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	p, wait := s.pass()
	s.wants(p, v1alpha1.ReasonHubUnavailable, "pause")
	if asked != 1 || wait < 6*time.Second || wait > 8*time.Second {
		t.Errorf("asked %d times, comes back in %s", asked, wait)
	}
}

// An annotation that says neither is no word to take over a pool.
func TestAHubPoolThatSaysNeitherIsNotPushed(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationObserve, "True")
	})
	told := 0
	s.hub.meets(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			told++
		}
		return false
	})
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonDefinitionRefused, `the annotation cloop.dev/observe is "True", and nothing is pushed: write "true"`)
	if told > 0 || len(p.Finalizers) > 0 {
		t.Errorf("the hub was told %d times, finalizers are %q", told, p.Finalizers)
	}
}

// Who adopts the pools that a hub has wants to see first what Git would change.
func TestAnObservedHubPoolIsComparedAndNothingElse(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	observe := func(p *v1alpha1.HubPool, value string) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationObserve, value)
	}
	s.pool(func(p *v1alpha1.HubPool) { observe(p, "true") })
	told := 0
	s.hub.meets(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			told++
		}
		return false
	})
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonObserved, "the hub does not have the pool")
	if len(p.Status.Drift) != 1 || p.Status.Drift[0].Path != "" || p.Status.Drift[0].Outcome != v1alpha1.OutcomeObserved || len(p.Finalizers) > 0 {
		t.Errorf("drift is %+v, finalizers are %q", p.Status.Drift, p.Finalizers)
	}
	if told > 0 {
		t.Errorf("the hub was told %d times", told)
	}
	// It is adopted, and let go of again.
	s.edit(func(p *v1alpha1.HubPool) { observe(p, "false") })
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "the hub has the pool")
	s.edit(func(p *v1alpha1.HubPool) {
		observe(p, "true")
		p.Spec.MaxRunners, p.Spec.DeletionPolicy = 9, v1alpha1.DeletionRevoke
	})
	told = 0
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonObserved, "only compared: the hub has the pool")
	have := s.atHub()
	open := slices.DeleteFunc(slices.Clone(p.Status.Drift), func(e v1alpha1.DriftEntry) bool { return e.Corrected != nil })
	if told > 0 || have.MaxRunners != 3 || len(open) != 2 || open[1].Path != "/spec/maxRunners" || open[1].Git != "9" || open[1].Hub != "3" || open[1].Outcome != v1alpha1.OutcomeObserved {
		t.Errorf("told %d times, the hub has %d runners, drift is %+v", told, have.MaxRunners, open)
	}
	if drifted := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionDrifted); drifted == nil || drifted.Reason != string(v1alpha1.ReasonObserved) {
		t.Errorf("Drifted is %+v", drifted)
	}
	// Deleted, it leaves the pool at the hub whatever the policy is.
	if err := s.client.Delete(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	s.pass()
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source != nil || have.MaxRunners != 3 {
		t.Errorf("the hub has it %s from %+v, with %d runners", have.State, have.Source, have.MaxRunners)
	}
}

// told waits until a watch of the hub's has the HubPool looked at.
func (s *hubStage) told(of string) {
	s.t.Helper()
	select {
	case e := <-s.r.hubs.changed:
		if e.Object.GetName() != s.name {
			s.t.Fatalf("HubPool %s is looked at", e.Object.GetName())
		}
	case <-time.After(patience):
		s.t.Fatalf("nothing tells of %s", of)
	}
}

// The hub tells of a pool when it comes and when it goes, also where nobody but
// somebody at the hub makes it.
func TestAnObservedPoolIsSeenWhenItComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationObserve, "true")
	})
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonObserved, "the hub does not have the pool")
	s.told("there being no pool")
	define := func(name, from string) {
		t.Helper()
		if _, err := s.hub.admin.DefinePool(s.ctx, name, hubv1.DefinePoolRequest{
			Definition: hubv1.PoolDefinition{MaxRunners: 7}, Provenance: hubv1.Provenance{Sync: hubv1.ClusterOwner("other", "fleet", name)}, MovedFrom: from,
		}); err != nil {
			t.Fatal(err)
		}
	}
	define(s.name, "")
	s.told("the pool that is made")
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonObserved, "the hub has the pool as "+s.atHub().ID)
	define(s.name+"-now", s.name)
	s.told("the pool that has another name now")
	p, _ = s.pass()
	s.wants(p, v1alpha1.ReasonObserved, "the hub does not have the pool")
}
