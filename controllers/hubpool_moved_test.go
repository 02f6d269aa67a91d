package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// wasCalled has a HubPool say that it was another one.
func wasCalled(from string) func(*v1alpha1.HubPool) {
	return func(p *v1alpha1.HubPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationMovedFrom, from)
	}
}

// A HubPool under a new name has the pool of the old one, with its id, its credential
// and what waits for it, whichever of the two is looked at first, also by a process
// that was just started.
func TestARenamedHubPoolKeepsItsPool(t *testing.T) {
	t.Parallel()
	for name, oldFirst := range map[string]bool{"the old one is looked at first": true, "the new one is looked at first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			was, now := s.name, s.name+"-now"
			as := func(name string) *v1alpha1.HubPool {
				s.name = name
				p, _ := s.pass()
				return p
			}
			s.pool(revokes, mints(s.ns, 0))
			s.wants(as(was), v1alpha1.ReasonPushed, "")
			before, live := s.atHub(), s.live()

			// Both are there until what applies them takes the old one out.
			s.name = now
			s.pool(revokes, mints(s.ns, 0), wasCalled(s.ns+"/"+was), func(p *v1alpha1.HubPool) { p.Spec.MaxRunners = 5 })
			s.wants(as(now), v1alpha1.ReasonRenameWaits, "HubPool "+was+" under another name")
			s.name = was
			if pool := s.atHub(); pool.State != hubv1.PoolActive || pool.ID != before.ID || pool.MaxRunners != 3 {
				t.Fatalf("while both are there, the hub has %+v", pool)
			}
			s.delete()
			if oldFirst {
				s.wants(as(was), v1alpha1.ReasonProgressing, "HubPool "+now+" to take the pool over")
				if pool := s.atHub(); pool.State != hubv1.PoolActive {
					t.Fatalf("before the new one has it, the hub has %+v", pool)
				}
				s.restart()
			}
			s.wants(as(now), v1alpha1.ReasonPushed, "")
			s.restart()
			if p := as(was); p != nil {
				t.Fatalf("the old one is still there: %+v", p.Status.Conditions)
			}
			s.wants(as(now), v1alpha1.ReasonPushed, "")
			after := s.atHub()
			if after.ID != before.ID || after.State != hubv1.PoolActive || after.MaxRunners != 5 || after.Name != now {
				t.Errorf("the hub has %+v, and had %+v", after, before)
			}
			kept := s.secret(s.ns)
			if kept == nil || !live[kept.Annotations[v1alpha1.AnnotationCredentialID]] || len(s.live()) != 1 || kept.Labels[v1alpha1.LabelCredentialOf] != credentialOf(s.request().NamespacedName) {
				t.Errorf("the Secret is %+v, and live are %v", kept, s.live())
			}
			// It is a HubPool as any other from then on.
			s.delete()
			s.untilGone()
			if s.atHub().State != hubv1.PoolRevoked || s.secret(s.ns) != nil {
				t.Errorf("once it is gone the hub has %+v, and the Secret is %+v", s.atHub(), s.secret(s.ns))
			}
		})
	}
}

// What says that it was another one and has a pool of its own, or is only compared,
// keeps no deletion from being carried out, and takes no pool from anyone.
func TestAHubPoolThatOnlyClaimsToBeAnotherHasNothingOfIt(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]func(s *hubStage, was string) []func(*v1alpha1.HubPool){
		"it is only compared": func(_ *hubStage, was string) []func(*v1alpha1.HubPool) {
			return []func(*v1alpha1.HubPool){wasCalled(was), func(p *v1alpha1.HubPool) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationObserve, "true")
			}}
		},
		"it has a pool": func(*hubStage, string) []func(*v1alpha1.HubPool) { return nil },
		"of another namespace": func(_ *hubStage, was string) []func(*v1alpha1.HubPool) {
			return []func(*v1alpha1.HubPool){wasCalled("other/" + was)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			was, now := s.name, s.name+"-now"
			s.pool(revokes)
			p, _ := s.pass()
			s.wants(p, v1alpha1.ReasonPushed, "")
			before := s.atHub()
			s.name = now
			change := claims(s, was)
			s.pool(change...)
			s.pass()
			if change == nil {
				s.edit(wasCalled(was))
				s.pass()
			}
			s.name = was
			s.delete()
			s.untilGone()
			if pool := s.atHub(); pool.ID != before.ID || pool.State != hubv1.PoolRevoked {
				t.Errorf("the hub has %+v", pool)
			}
		})
	}
}

// Of several HubPools that say that they were one, the one takes its pool over that has
// none yet, the oldest of several, and each of the others says so and has no pool made.
func TestOfSeveralHubPoolsThatWereOneTheOldestWithoutAPoolIsIt(t *testing.T) {
	t.Parallel()
	for name, oldFirst := range map[string]bool{"the old one is looked at first": true, "the others are looked at first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHubStage(t)
			was := s.name
			// By their names, what is left over of an earlier rename comes first.
			leftOver, heir, late := was+"-a", was+"-b", was+"-c"
			as := func(name string) *v1alpha1.HubPool {
				s.name = name
				p, _ := s.pass()
				return p
			}
			unmade := func(name string) {
				t.Helper()
				if pool, err := s.hub.admin.GetPool(s.ctx, name); err == nil {
					t.Errorf("the hub has %s as %s", pool.Name, pool.ID)
				}
			}
			s.name = leftOver
			s.pool()
			s.wants(as(leftOver), v1alpha1.ReasonPushed, "")
			its := s.atHub().ID
			s.edit(wasCalled(was))
			s.name = was
			s.pool(revokes)
			s.wants(as(was), v1alpha1.ReasonPushed, "")
			before := s.atHub().ID
			for _, name := range []string{heir, late} {
				s.name = name
				s.pool(revokes, wasCalled(was))
				s.wants(as(name), v1alpha1.ReasonRenameWaits, "HubPool "+was+" under another name")
			}
			s.name = was
			s.delete()
			if oldFirst {
				s.wants(as(was), v1alpha1.ReasonProgressing, "HubPool "+heir+" to take the pool over")
			}
			s.wants(as(late), v1alpha1.ReasonRenameWaits, "HubPool "+heir+" says too that it was "+was)
			unmade(late)
			s.wants(as(heir), v1alpha1.ReasonPushed, before)
			s.wants(as(leftOver), v1alpha1.ReasonPushed, its)
			s.wants(as(late), v1alpha1.ReasonRenameTaken, "HubPool "+heir+" says too that it was "+was+", and has taken the pool over: for a new pool beside that one take the annotation")
			if p := as(was); p != nil {
				t.Fatalf("the old one is still there: %+v", p.Status.Conditions)
			}
			s.wants(as(late), v1alpha1.ReasonRenameTaken, "HubPool "+heir)
			unmade(late)
			if s.name = heir; s.atHub().ID != before || s.atHub().State != hubv1.PoolActive {
				t.Errorf("the hub has %+v, and had %s", s.atHub(), before)
			}
			// Whoever wants a new pool says so.
			s.name = late
			s.edit(func(p *v1alpha1.HubPool) { p.Annotations = nil })
			s.wants(as(late), v1alpha1.ReasonPushed, "")
			if id := s.atHub().ID; id == before || id == its {
				t.Errorf("the new pool is %s", id)
			}
		})
	}
}

// A repository with what is left over of renames from long ago meets a hub that knows
// none of the pools.
func TestHubPoolsThatWereOneAreEachNewWhereTheHubNeverHadIt(t *testing.T) {
	t.Parallel()
	s := newHubStage(t)
	was := s.name
	for _, name := range []string{was + "-a", was + "-b"} {
		s.name = name
		s.pool(wasCalled(was))
		p, _ := s.pass()
		s.wants(p, v1alpha1.ReasonPushed, "")
	}
}
