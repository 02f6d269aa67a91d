package api

import (
	"context"
	"net/http"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/doctor"
)

func (s *server) diagnosis() {
	register(s, requires(hubv1.PermissionHubRead, op(http.MethodGet, apiBase+"/doctor", "doctor", "Say what is wrong with the hub and its pools")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.Diagnosis], error) {
			snapshot, err := s.Examine(ctx)
			if err != nil {
				return nil, err
			}
			return answer(doctor.Judge(snapshot), nil)
		})
}

// listPools lists pools with what is wrong with each.
func (s *server) listPools(ctx context.Context, revoked bool) ([]hubv1.Pool, error) {
	patients, err := s.Store.Patients(ctx, "")
	if err != nil {
		return nil, err
	}
	pools := make([]hubv1.Pool, 0, len(patients))
	wrong := map[string][]hubv1.Finding{} // pool id → findings
	for _, p := range patients {
		wrong[p.ID] = s.wrongWith(p)
		p.Findings = wrong[p.ID]
		pools = append(pools, p.Pool)
	}
	if !revoked {
		return pools, nil
	}
	all, err := s.Store.ListPools(ctx, true)
	for i := range all {
		all[i].Findings = wrong[all[i].ID]
	}
	return all, err
}

// showPool finds a pool by name or id, with what is wrong with it.
func (s *server) showPool(ctx context.Context, ref string) (hubv1.Pool, error) {
	pool, _, err := s.Store.GetPool(ctx, ref)
	if err != nil {
		return pool, err
	}
	patients, err := s.Store.Patients(ctx, pool.ID)
	for _, p := range patients {
		pool.Findings = s.wrongWith(p)
	}
	return pool, err
}

func (s *server) wrongWith(p doctor.Pool) []hubv1.Finding {
	return doctor.Wrong(doctor.Examine(s.Store.Now(), p))
}
