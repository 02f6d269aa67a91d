package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
)

func TestAContradictionOfHubAndClusterIsACondition(t *testing.T) {
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	up := pool.Link{State: pool.LinkUp}
	type look struct {
		after   time.Duration // since the beginning
		cluster int32         // maxRunners there; the hub has 4
		link    pool.Link
		want    string // status, reason and cause of the entry
	}
	for name, tc := range map[string]struct {
		object, hub string // revisions
		override    *hubv1.Override
		looks       []look
	}{
		"a commit comes to one before the other": {"main@sha1:a", "b", nil, []look{
			{0, 3, up, "False NoDrift"},
			{time.Minute, 9, up, "False Converging Converging"},
			{2 * time.Minute, 9, up, "False Converging Converging"},
			{150 * time.Second, 3, up, "False DriftCorrected Corrected"},
			{150*time.Second + keepCorrected, 3, up, "False NoDrift"},
		}},
		"it lasts": {"main@sha1:a", "b", nil, []look{
			{0, 9, up, "False Converging Converging"},
			{convergesWithin, 9, up, "True RuleBroken RuleBroken"},
			{time.Hour, 8, up, "True RuleBroken RuleBroken"},
			{2 * time.Hour, 4, up, "False DriftCorrected Corrected"},
		}},
		"both are at one commit": {"main@sha1:a", "a", nil, []look{
			{0, 9, up, "True RuleBroken RuleBroken"},
			{time.Second, 4, up, "False DriftCorrected Corrected"},
			{2 * time.Second, 9, up, "True RuleBroken RuleBroken"},
		}},
		"nothing of it is from Git": {"", "", nil, []look{
			{0, 9, up, "False Converging Converging"},
			{convergesWithin, 9, up, "True RuleBroken RuleBroken"},
		}},
		"somebody has set Git aside": {"main@sha1:a", "b", &hubv1.Override{By: "user:dana", Reason: "maintenance", Until: began.Add(time.Hour)}, []look{
			{0, 9, up, "True Overridden BreakGlass"},
			{time.Second, 3, up, "False DriftCorrected Corrected"},
		}},
		"nobody knows what the hub has": {"main@sha1:a", "a", nil, []look{
			{0, 9, pool.Link{State: pool.LinkConnecting}, "Unknown Connecting RuleBroken"},
			{time.Second, 9, up, "True RuleBroken RuleBroken"},
			{time.Minute, 9, pool.Link{State: pool.LinkDown, Reason: v1alpha1.ReasonHubUnavailable}, "Unknown HubUnavailable RuleBroken"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			status := &v1alpha1.ExecutorPoolStatus{}
			for _, l := range tc.looks {
				xpool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu", Annotations: map[string]string{v1alpha1.AnnotationRevision: tc.object}}}
				xpool.Spec.MaxRunners = l.cluster
				hub := hubv1.Pool{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4}, Source: &hubv1.Provenance{Revision: tc.hub}, Override: tc.override}
				now := began.Add(l.after)
				since := status.Drift
				status.Drift = follow(status.Drift, contradictions(xpool, hub, status.Drift, now), everything, metav1.NewTime(now)).entries
				setContradicted(fluxConditions{&status.Conditions, 1, now}, status.Drift, l.link)
				c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDrifted)
				got := []string{string(c.Status), c.Reason}
				for i, e := range status.Drift {
					if e.Corrected != nil {
						got = append(got, e.Outcome)
						continue
					}
					got = append(got, e.Cause)
					if i < len(since) && since[i].Corrected == nil && !e.Since.Equal(&since[i].Since) {
						t.Errorf("after %s it is there since %s, before since %s", l.after, e.Since, since[i].Since)
					}
				}
				if strings.Join(got, " ") != l.want {
					t.Errorf("after %s: %s, want %s (%s)", l.after, strings.Join(got, " "), l.want, c.Message)
				}
			}
		})
	}
}

func TestABrokenRuleIsToldAndItsEndToo(t *testing.T) {
	s := newStage(t, 2)
	const commit = "0123456789012345678901234567890123456789"
	const revision = "main@sha1:" + commit
	s.hub.change(func() { s.hub.source = &hubv1.Provenance{Revision: commit} })
	p := s.pool()
	if c := s.reason(v1alpha1.ConditionDrifted, v1alpha1.ReasonConverging); !strings.Contains(c.Message, "/spec/maxRunners is 2 at the hub and 4 in the cluster; status.drift lists what: wait for the sync") {
		t.Errorf("Drifted says %q", c.Message)
	}

	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRevision, revision)
	if err := s.client.Patch(s.ctx, p, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	c := s.reason(v1alpha1.ConditionDrifted, v1alpha1.ReasonRuleBroken)
	if c.Status != metav1.ConditionTrue || c.ObservedGeneration != 1 {
		t.Errorf("Drifted is %+v", c)
	}
	if told := s.event(v1alpha1.ReasonRuleBroken); !strings.Contains(told, "/spec/maxRunners is 2 at the hub and 4 in the cluster: change one of the two in Git") {
		t.Errorf("the Event says %q", told)
	}

	s.hub.change(func() { s.hub.max = 4 })
	s.reason(v1alpha1.ConditionDrifted, v1alpha1.ReasonDriftCorrected)
	if told := s.event(v1alpha1.ReasonDriftCorrected); told != "hub and cluster agree again in /spec/maxRunners" {
		t.Errorf("the Event says %q", told)
	}
}
