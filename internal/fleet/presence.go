package fleet

import (
	"fmt"
	"time"

	"cloop.dev/cloop/apis/v1alpha1"
)

// ControllerLease is the Lease under which one fleet controller of several acts.
type ControllerLease struct {
	// Holder is empty once a controller has given it back and no other has come.
	Holder string
	// Renewed is the last sign of the holder.
	Renewed time.Time
	// Lasts is how long another controller waits for the next one.
	Lasts time.Duration
}

const (
	// leaseGrace is how long after a Lease has run out another controller may
	// take to take it, and clocks may differ.
	leaseGrace = time.Minute
	// missedIntervals are as many as a controller that runs never misses.
	missedIntervals = 3
)

// AnnotationReconcile asks a Flux-style controller to reconcile now. Its value is
// when that was asked for.
const AnnotationReconcile = "reconcile.fluxcd.io/requestedAt"

// Unserved says why nobody acts on a PoolSync; empty where somebody does, or
// where nothing tells. lease is nil where there is none or it may not be read.
// pushed is since when there is a commit that the PoolSync has not seen; zero
// where there is none or that is not known.
func Unserved(sync *v1alpha1.PoolSync, lease *ControllerLease, pushed, now time.Time) string {
	if sync.SuspendedAt(now) {
		return ""
	}
	if lease != nil {
		over := lease.Renewed.Add(lease.Lasts + leaseGrace)
		switch {
		case now.Before(over):
			return "" // it runs, so it will come to it
		case lease.Holder == "":
			return fmt.Sprintf("the fleet controller does not run: nobody holds its Lease in namespace %s since %s: start it, or look at its Pods",
				sync.Namespace, lease.Renewed.UTC().Format(time.RFC3339))
		}
		return fmt.Sprintf("the fleet controller does not run: %s, which holds its Lease in namespace %s, gave the last sign at %s: look at its Pods",
			lease.Holder, sync.Namespace, lease.Renewed.UTC().Format(time.RFC3339))
	}
	patience := missedIntervals*sync.Spec.Interval.Duration + leaseGrace
	for _, due := range []struct {
		since time.Time
		what  string
	}{
		{changedSince(sync), "its spec has changed"},
		{askedSince(sync), "it was asked to reconcile"},
		{pushed, "there is a newer commit"},
	} {
		if !due.since.IsZero() && now.Sub(due.since) > patience {
			return fmt.Sprintf("nobody has acted on it although %s, at %s, and it is due every %s: does the fleet controller run?",
				due.what, due.since.UTC().Format(time.RFC3339), sync.Spec.Interval.Duration)
		}
	}
	return ""
}

// changedSince is since when a PoolSync has a spec that no controller has seen;
// zero where one has, or where that is not known.
func changedSince(sync *v1alpha1.PoolSync) time.Time {
	if sync.Status.ObservedGeneration >= sync.Generation {
		return time.Time{}
	}
	at := sync.CreationTimestamp.Time
	for _, entry := range sync.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(at) {
			at = entry.Time.Time
		}
	}
	return at
}

// askedSince is since when a request to reconcile waits; zero where none does.
func askedSince(sync *v1alpha1.PoolSync) time.Time {
	asked := sync.Annotations[AnnotationReconcile]
	if asked == sync.Status.LastHandledReconcileAt {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, asked)
	if err != nil {
		return time.Time{} // it need not be a time
	}
	return at
}
