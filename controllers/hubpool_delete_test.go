package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// untilGone makes passes until the HubPool is gone.
func (s *hubStage) untilGone() {
	s.t.Helper()
	for deadline := time.Now().Add(patience); s.get() != nil; {
		if time.Now().After(deadline) {
			s.t.Fatalf("it stays: %+v", s.get().Status)
		}
		s.pass()
	}
}

func TestADeletedHubPoolOrphansItsPool(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(mints(s.ns, 0))
	s.pass()
	s.delete()
	s.untilGone()
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source != nil || len(s.live()) != 1 || s.secret(s.ns) == nil {
		t.Errorf("the pool is %s from %+v, credentials %v", have.State, have.Source, s.live())
	}
	// Made again it takes the pool and the credential over.
	s.pool(mints(s.ns, 0))
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	s.mintedWell(s.ns)
}

// The policy that counts is the one that the document had when it went, also where
// the hub was never told of it.
func TestADeletedHubPoolGoesByItsLastPolicy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.HubPool){
		"revoked": revokes, "orphaned": func(p *v1alpha1.HubPool) { p.Spec.DeletionPolicy = v1alpha1.DeletionOrphan },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			s.pool(func(p *v1alpha1.HubPool) {
				if name == "orphaned" {
					revokes(p)
				}
			})
			s.pass()
			s.edit(change)
			s.delete()
			s.untilGone()
			want := map[string]hubv1.PoolState{"revoked": hubv1.PoolRevoked, "orphaned": hubv1.PoolActive}[name]
			if have := s.atHub(); have.State != want || have.Source != nil {
				t.Errorf("the pool is %s, from %+v", have.State, have.Source)
			}
		})
	}
}

// A run in progress finishes before its pool is revoked.
func TestARevokedHubPoolWaitsForItsRun(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(mints(s.ns, 0), revokes)
	s.pass()
	runner := s.busyRunner()
	s.delete()
	p, wait := s.pass()
	if p == nil || s.atHub().State != hubv1.PoolDraining || s.atHub().Runners.Busy != 1 || wait > hubRetryLast {
		t.Fatalf("the run is not waited for: %+v", s.atHub())
	}
	s.wants(p, v1alpha1.ReasonProgressing, "busy runners finish")
	if p.Status.Hub.State != string(hubv1.PoolDraining) || s.secret(s.ns) == nil {
		t.Errorf("the status has %+v", p.Status.Hub)
	}
	runner()
	s.untilGone()
	if s.atHub().State != hubv1.PoolRevoked || s.secret(s.ns) != nil {
		t.Errorf("the pool is %s, the Secret %v", s.atHub().State, s.secret(s.ns))
	}
}

// busyRunner has a runner of the pool execute a run, and returns how it ends.
func (s *hubStage) busyRunner() (finish func()) {
	s.t.Helper()
	dial := func(token string) *hubclient.Client {
		c, err := hubclient.New(hubclient.Options{URL: "https://" + sharedHub.addr, Pin: sharedHub.pin, Token: secret.New(token)})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(c.CloseIdleConnections)
		return c
	}
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	project := "p" + s.ns[max(0, len(s.ns)-30):]
	_, err := s.hub.admin.CreateProject(s.ctx, hubv1.CreateProjectRequest{Name: project, Remote: "https://git.example.com/app.git"})
	must(err)
	_, err = s.hub.admin.BindProject(s.ctx, project, "pool:"+s.atHub().ID)
	must(err)
	minted, err := dial(string(s.secret(s.ns).Data["credential"])).MintRunner(s.ctx, "first-runner")
	must(err)
	enrolled, err := dial("").Enroll(s.ctx, hubv1.EnrollRequest{Token: minted.Token, Name: "a", Build: "test", Features: []string{hubv1.FeatureRequirements}})
	must(err)
	_, err = s.hub.admin.StartRun(s.ctx, hubv1.StartRunRequest{Project: project, Command: []string{"true"}}, "")
	must(err)
	runner := dial(enrolled.Session)
	var run hubv1.Assignment
	for snapshot, err := range runner.RunnerWatch(s.ctx) {
		must(err)
		if snapshot.Run != nil {
			run = *snapshot.Run
			break
		}
	}
	return func() {
		s.t.Helper()
		must(runner.RunResult(s.ctx, run.RunID, hubv1.ResultRequest{Attempt: run.Attempt, ExitCode: new(int32(0)), FinishedAt: time.Now()}))
		must(runner.Bye(s.ctx, "done"))
	}
}

// Without its hub a HubPool stays, until somebody says that it need not, which is
// recorded.
func TestAHubPoolStaysUntilItsHubAnswersOrSomebodyLetsItGo(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(revokes)
	s.pass()
	s.hub.shut()
	s.restart()
	s.delete()
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonHubUnavailable, v1alpha1.AnnotationOrphan+"=true")
	s.edit(func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationOrphan, "yes")
	})
	if p, _ = s.pass(); p == nil {
		t.Fatal("it went although nobody said so")
	}
	s.edit(func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationOrphan, "true")
	})
	if p, _ = s.pass(); p != nil {
		t.Fatalf("it stays: %+v", p.Status)
	}
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source == nil {
		t.Errorf("the pool is %s, from %+v", have.State, have.Source)
	}
	if said := s.recorded.String(); !strings.Contains(said, "Orphaned: ") || !strings.Contains(said, "the hub was not told") {
		t.Errorf("recorded is %q", said)
	}
}

// Where the hub answers, it is told that the pool is nobody's, and the policy is not
// carried out.
func TestAnOrphanedHubPoolIsNotRevoked(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(revokes, func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationOrphan, "true")
	})
	s.pass()
	// As it is at the hub, also where it is so by an override.
	if _, err := s.hub.admin.OverridePool(s.ctx, s.name, "", hubv1.UpdatePoolRequest{MaxRunners: new(int32(1))}, "fire", time.Hour); err != nil {
		t.Fatal(err)
	}
	s.delete()
	if p, _ := s.pass(); p != nil {
		t.Fatalf("it stays: %+v", p.Status)
	}
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source != nil || have.MaxRunners != 1 || have.Override != nil {
		t.Errorf("the pool is %s, from %+v, with %d runners", have.State, have.Source, have.MaxRunners)
	}
}

// What is another's stays as it is, and what the token does not show any more is not
// taken for gone.
func TestADeletedHubPoolTouchesNothingOfAnothers(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	other := hubv1.Provenance{Sync: hubv1.ClusterOwner("other", "fleet", s.name)}
	_, err := s.hub.admin.DefinePool(s.ctx, s.name, hubv1.DefinePoolRequest{Definition: hubv1.PoolDefinition{MaxRunners: 1, DeletionPolicy: "Revoke"}, Provenance: other})
	if err != nil {
		t.Fatal(err)
	}
	s.pool(revokes)
	s.pass()
	s.delete()
	s.untilGone()
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source == nil || have.Source.Sync != other.Sync {
		t.Errorf("the pool is %s, from %+v", have.State, have.Source)
	}
}

// A HubPool that has lost its pool says so, also where the other says the same of the
// pool, and takes nothing with it: the credential is what the pool is served with.
func TestAHubPoolThatLostItsPoolLeavesItsCredential(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(revokes, mints(s.ns, 0))
	s.pass()
	s.mintedWell(s.ns)
	have, err := s.hub.admin.ReleasePool(s.ctx, s.name, "")
	if err != nil {
		t.Fatal(err)
	}
	other := hubv1.Provenance{Sync: hubv1.ClusterOwner("other", "fleet", s.name)}
	if _, err := s.hub.admin.DefinePool(s.ctx, s.name, hubv1.DefinePoolRequest{Definition: have.PoolDefinition, Provenance: other}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the HubPool says whose the pool is", func() error {
		p, _ := s.pass()
		if ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Reason != string(v1alpha1.ReasonOwnedByAnother) {
			return fmt.Errorf("it says %+v", ready)
		}
		return nil
	})
	s.delete()
	s.untilGone()
	if s.secret(s.ns) == nil {
		t.Error("the credential went with it")
	}
	if have := s.atHub(); have.State != hubv1.PoolActive || have.Source == nil || have.Source.Sync != other.Sync {
		t.Errorf("the pool is %s, from %+v", have.State, have.Source)
	}
}

func TestATokenThatShowsLessKeepsAHubPool(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(revokes)
	s.pass()
	s.scoped(hubv1.Ceiling{Names: []string{"else-*"}})
	s.delete()
	p, _ := s.pass()
	if p == nil {
		t.Fatal("it went, and its pool stays")
	}
	s.wants(p, v1alpha1.ReasonTokenRefused, "does not show")
	if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionStalled) {
		t.Error("nobody is asked to help")
	}
	s.token(sharedHub.token)
	s.untilGone()
	if s.atHub().State != hubv1.PoolRevoked {
		t.Errorf("the pool is %s", s.atHub().State)
	}
}

// A pool that somebody revoked at the hub is not brought back behind their back.
func TestAPoolThatIsRevokedByHandStaysRevoked(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	s.pool(mints(s.ns, 0))
	s.pass()
	if _, err := s.hub.admin.RevokePool(s.ctx, s.name); err != nil {
		t.Fatal(err)
	}
	s.restart()
	for range 2 {
		p, _ := s.pass()
		s.wants(p, v1alpha1.ReasonPoolRevoked, "revoked")
	}
	s.edit(func(p *v1alpha1.HubPool) { p.Spec.MaxRunners = 4 })
	p, _ := s.pass()
	s.wants(p, v1alpha1.ReasonPushed, "")
	s.mintedWell(s.ns)
}
