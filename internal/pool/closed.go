package pool

import (
	"fmt"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// Closed is how the hub ended a pool.
type Closed struct {
	// Message says so, and what a person can do.
	Message string
	// Drained says that it was meant, and that no run was cut short.
	Drained bool
}

// ClosedAs is how a pool of the hub ended; nil where it did not. A hub that does not say
// how is believed that it drained where it said that it would.
func ClosedAs(at hubv1.Pool, before *Closed) *Closed {
	if at.State == hubv1.PoolActive {
		return nil
	}
	end := Closed{Message: fmt.Sprintf("the hub has revoked its pool %s", at.Name), Drained: at.State == hubv1.PoolDraining || before != nil && before.Drained}
	if at.End != nil {
		end.Drained = at.End.Drained
		end.Message += ", because " + at.End.Reason
	}
	if end.Drained {
		end.Message += ": take the ExecutorPool out of Git too, or give it the credential of another pool"
	} else {
		end.Message = withRemedy(v1alpha1.ReasonPoolRevoked, end.Message)
	}
	return &end
}

// revoked says whether the hub does not take the credential because it has revoked the
// pool. A Secret that was made for the pool goes with it.
func (s Snapshot) revoked() bool {
	return s.Memory.Closed != nil && (s.Link.State == LinkRefused || s.Link.State == LinkDown && s.Link.Reason == v1alpha1.ReasonCredentialUnreadable)
}
