package hubv1

import (
	"fmt"
	"strings"
)

// Code is the stable, machine-readable name of a problem.
type Code string

// Codes of problem documents, with the HTTP status they come with.
const (
	CodeInvalid            Code = "invalid"             // 422
	CodeUnauthenticated    Code = "unauthenticated"     // 401
	CodeForbidden          Code = "forbidden"           // 403
	CodeNotFound           Code = "not_found"           // 404
	CodeMethodNotAllowed   Code = "method_not_allowed"  // 405
	CodeConflict           Code = "conflict"            // 409
	CodePreconditionFailed Code = "precondition_failed" // 412
	CodePoolExists         Code = "pool_exists"         // 409
	CodePoolManagedByGit   Code = "pool_managed_by_git" // 409
	CodePoolAtMaximum      Code = "pool_at_maximum"     // 409
	CodePoolCordoned       Code = "pool_cordoned"       // 409
	CodePoolRevoked        Code = "pool_revoked"        // 409
	CodeRotationUnfinished Code = "rotation_unfinished" // 409
	CodeHoldsUnknown       Code = "holds_unknown"       // 409
	CodeTokenRedeemed      Code = "token_redeemed"      // 409
	CodeTokenRefused       Code = "token_refused"       // 401
	CodeRunnerRetired      Code = "runner_retired"      // 410
	CodeRunNotHeld         Code = "run_not_held"        // 409
	CodeLogOffset          Code = "log_offset"          // 409
	CodeLogRemoved         Code = "log_removed"         // 410
	CodeProjectUnbound     Code = "project_unbound"     // 409
	CodeAudience           Code = "audience"            // 403
	CodeOwner              Code = "owner"               // 403
	CodeTooLarge           Code = "too_large"           // 413
	CodeQueueFull          Code = "queue_full"          // 409
	CodeTooSlow            Code = "too_slow"            // 408
	CodeMediaType          Code = "media_type"          // 415
	CodeRateLimited        Code = "rate_limited"        // 429
	CodeTooManyWatches     Code = "too_many_watches"    // 429
	CodeUnavailable        Code = "unavailable"         // 503
	CodeStorageUnavailable Code = "storage_unavailable" // 503
	CodeStorageDamaged     Code = "storage_damaged"     // 500
	CodeInternal           Code = "internal"            // 500

	// What a project asks of its runners.
	CodeRefNotFound         Code = "ref_not_found"        // 422
	CodeRequirementsInvalid Code = "requirements_invalid" // 422
	CodeRequirementsUnmet   Code = "requirements_unmet"   // 409

	// CodeWaitingForCapacity: what needs a runner at once finds none free.
	CodeWaitingForCapacity Code = "waiting_for_pool_capacity" // 409
	// CodeMemberTooOld: a hub that shares the database cannot do what is asked for.
	CodeMemberTooOld Code = "member_too_old" // 503
	// CodePreconditionRequired: a change of what others may change has no If-Match.
	CodePreconditionRequired Code = "precondition_required" // 428
)

// Problem is an RFC 9457 problem document. It is the error that hubclient
// returns, so callers test its Code with errors.As.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title,omitempty"`
	Status int    `json:"status"`
	// Detail says in one sentence what was refused and why.
	Detail string `json:"detail,omitempty"`
	Code   Code   `json:"code"`
	// Remedy says what to do next.
	Remedy string `json:"remedy,omitempty"`
	// Errors names each invalid field.
	Errors []FieldError `json:"errors,omitempty"`
	// Source is set with CodePoolManagedByGit: the commit and file that own
	// the pool.
	Source *Provenance `json:"source,omitempty"`
	// Offset is set with CodeLogOffset: the offset to go on from.
	Offset *int64 `json:"offset,omitempty"`
	// Unchanged is set with a failure of the hub's own (5xx) that is known to have
	// changed nothing: it need not be looked for.
	Unchanged bool `json:"unchanged,omitempty"`
	// RetryAfterSeconds is set where that is known, as the header Retry-After.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
}

// FieldError is one invalid field of a request.
type FieldError struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

// Error is the problem in one line: what, which fields, what to do.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Detail)
	if p.Detail == "" {
		fmt.Fprintf(&b, "%s (HTTP %d)", p.Title, p.Status)
	}
	for _, field := range p.Errors {
		fmt.Fprintf(&b, "; %s: %s", field.Location, field.Message)
	}
	if p.Remedy != "" {
		b.WriteString(": ")
		b.WriteString(p.Remedy)
	}
	return b.String()
}
