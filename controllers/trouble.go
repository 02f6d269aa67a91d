package controllers

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// troubleGrace is how long what may pass by itself has to last until a Warning
// Event tells of it: a system that comes up has its parts in any order, and each
// of them may be started again. The condition says it at once.
const troubleGrace = 30 * time.Second

// trouble is what is wrong with an object, and what was told of it.
type trouble struct {
	// since is when it began; zero: all is well.
	since time.Time
	// told is the reason of the last Event about it.
	told v1alpha1.Reason
}

// troubleOf is the trouble that a condition shows which an earlier process left.
// passing says that it may pass by itself.
func troubleOf(bad *metav1.Condition, passing bool, now time.Time) trouble {
	if bad == nil {
		return trouble{}
	}
	t := trouble{since: bad.LastTransitionTime.Time}
	if !passing || !now.Before(t.since.Add(troubleGrace)) {
		t.told = v1alpha1.Reason(bad.Reason)
	}
	return t
}

// lasts notes that something is wrong, and says whether to tell of it now. Where
// that has to wait, at is until when.
func (t *trouble) lasts(reason v1alpha1.Reason, passing bool, now time.Time) (tell bool, at time.Time) {
	if t.since.IsZero() {
		t.since = now
	}
	if t.told == reason {
		return false, time.Time{}
	}
	if due := t.since.Add(troubleGrace); passing && now.Before(due) {
		return false, due
	}
	t.told = reason
	return true, time.Time{}
}
