package policy

import (
	"time"

	"cloop.dev/cloop/schemas"
)

// CompileWithin is Compile with another bound on one evaluation.
func CompileWithin(definitions []*Definition, limit uint64) (*Rules, []schemas.Problem) {
	return compileAll(definitions, limit)
}

// SetBudget gives all evaluations together another bound.
func (r *Rules) SetBudget(cost int64) { r.budget = cost }

// SetPatience gives one evaluation another time.
func (r *Rules) SetPatience(d time.Duration) { r.patience = d }

// Bounds are what one evaluation, and all together, may cost.
func (r *Rules) Bounds() (each uint64, all int64) { return r.limit, r.budget }
