package policy

// SetBudget gives all evaluations together another bound.
func (r *Rules) SetBudget(cost int64) { r.budget = cost }
