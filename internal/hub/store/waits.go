package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
)

// situation is what is known of a run that waits and of its pool.
type situation struct {
	pool   string
	cordon *hubv1.Cordon
	// source is where Git has the pool's definition, where it does.
	source  *hubv1.Provenance
	maximum int32
	runners hubv1.RunnerCounts
	// credentials is how many of the pool's credentials are live.
	credentials int
	// contacts are the pool's controllers, those in contact first.
	contacts []hubv1.ControllerContact
	// refusals are what controllers in contact say keeps runners from starting,
	// the newest credential's first.
	refusals []saidRefusal
	// passedOver is why the idle runners do not take the run; nil where there are
	// none, or one may.
	passedOver *passedOver
	// again is why the run waits once more; empty where it has not been handed
	// out before.
	again string
}

// sentence says why the run waits, what keeps it waiting and what a person can do
// about it, where there is something. What comes first would keep it waiting
// whatever is done about the rest.
func (w situation) sentence() string {
	name := w.pool
	reason := "waits for a runner of pool " + name
	switch {
	case w.cordon != nil:
		reason = fmt.Sprintf("pool %s is cordoned: %s (%s)", name, w.cordon.Reason, w.whoseCordon())
	case w.maximum == 0:
		reason += ", which may have none: raise its maxRunners"
	case w.passedOver != nil:
		reason += fmt.Sprintf(", of which %d %s idle and cannot take it: %s", w.runners.Idle, count.Is(w.runners.Idle), w.passedOver)
		if w.held() >= w.maximum {
			reason += fmt.Sprintf("; the pool has as many as it may have (maxRunners %d), so it is next when one of them is retired, or raise maxRunners", w.maximum)
		}
	case w.credentials == 0:
		reason += ", which has no live credential, so no controller can serve it: make one with `cloop executor pool rotate-credential " + name + "` and give it to its controller"
	case len(w.contacts) == 0:
		reason += ", and no controller of it has been in contact: install one with the pool's credential, or look at its Pods"
	case !w.contacts[0].Connected:
		reason += ", and no controller of it is in contact since " + w.contacts[0].LastContact.Format(time.RFC3339) + ": look at its Pods"
	case w.held() >= w.maximum && w.runners.Starting == 0:
		reason += w.full()
	case len(w.refusals) > 0:
		reason += ": " + w.trouble()
	case w.held() >= w.maximum:
		reason += w.full()
	case w.runners.Starting > 0:
		reason += fmt.Sprintf(", of which %s starting", fmt.Sprint(w.runners.Starting)+" "+count.Is(w.runners.Starting))
	case w.runners.Idle > 0:
		reason += ", of which one is idle and about to take it"
	default:
		reason += fmt.Sprintf(", which has %d of %d and is to start one; should that last, the ExecutorPool's conditions and Events say why", w.held(), w.maximum)
	}
	if w.again != "" {
		reason += " (" + w.again + ")"
	}
	return reason
}

// whoseCordon says who cordoned the pool and what ends it.
func (w situation) whoseCordon() string {
	switch {
	case w.cordon.By != cordonByGit:
		return fmt.Sprintf("by %s; `cloop executor pool uncordon %s` ends that", w.cordon.By, w.pool)
	case w.source == nil:
		return fmt.Sprintf("by Git, which has let go of the pool; `cloop executor pool uncordon %s` ends that", w.pool)
	}
	return fmt.Sprintf("by Git: %s of %s at %s; removing spec.cordon there ends that", w.source.Path, w.source.Repository, w.source.Revision)
}

// full says that the pool has as many runners as it may have, and which.
func (w situation) full() string {
	return fmt.Sprintf(", which has as many as it may have (maxRunners %d: %s): it is next when one is done, or raise maxRunners", w.maximum, w.counts())
}

// trouble is what a controller said, in its words.
func (w situation) trouble() string {
	said, who := w.refusals[0], "its controller"
	// What follows it goes on with the sentence.
	said.Message = strings.TrimRight(said.Message, ". ")
	if others := w.serving() - 1; others > 0 {
		who = fmt.Sprintf("one of its %d controllers", others+1)
	}
	switch said.Kind {
	case hubv1.RefusalStorage:
		return who + " has no volume for a runner: " + said.Message
	case hubv1.RefusalPlacement:
		return who + " has started runners that do not come up: " + said.Message
	}
	return who + " cannot start runners: " + said.Message
}

// serving is how many credentials a controller in contact uses: the replicas of
// one controller share theirs.
func (w situation) serving() int { return len(inContact(w.contacts)) }

func (w situation) held() int32 {
	return w.runners.Starting + w.runners.Idle + w.runners.Busy + w.runners.Retiring
}

// counts lists the states that there are runners in.
func (w situation) counts() string {
	var parts []string
	for _, of := range []struct {
		state hubv1.RunnerState
		n     int32
	}{
		{hubv1.RunnerBusy, w.runners.Busy}, {hubv1.RunnerStarting, w.runners.Starting},
		{hubv1.RunnerIdle, w.runners.Idle}, {hubv1.RunnerRetiring, w.runners.Retiring},
	} {
		if of.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of.n, of.state))
		}
	}
	return strings.Join(parts, ", ")
}

// shown are runs as people see them: one that waits says why, as of now.
func (s *Store) shown(ctx context.Context, q querier, rows ...runRow) ([]hubv1.Run, error) {
	out := make([]hubv1.Run, 0, len(rows))
	pools := map[string]*poolSituation{} // pool id → how it stands
	for _, r := range rows {
		if r.State == hubv1.RunQueued {
			pool := pools[r.PoolID]
			if pool == nil {
				var err error
				if pool, err = s.poolSituation(ctx, q, r.PoolID); err != nil {
					return nil, err
				}
				pools[r.PoolID] = pool
			}
			r.Reason = pool.of(r).sentence()
		}
		if r.returned() {
			var err error
			if r.Earlier, err = earlier(ctx, q, r.ID); err != nil {
				return nil, err
			}
		}
		out = append(out, r.Run)
	}
	return out, nil
}

// poolSituation is what is the same for all runs that wait for a pool.
type poolSituation struct {
	situation
	idle []runnerRow
}

// of is how a run of the pool stands.
func (p *poolSituation) of(run runRow) situation {
	w := p.situation
	w.again = run.Reason
	var over passedOver
	for _, r := range p.idle {
		why := mayTake(run.candidate(), r)
		if why == 0 {
			return w
		}
		over.add(why)
	}
	if len(p.idle) > 0 {
		w.passedOver = &over
	}
	return w
}

func (s *Store) poolSituation(ctx context.Context, q querier, id string) (*poolSituation, error) {
	pool, err := findPool(ctx, q, id)
	if err != nil {
		return nil, err
	}
	p := &poolSituation{situation: situation{pool: pool.Name, cordon: pool.Cordon, source: pool.Source, maximum: pool.MaxRunners, runners: pool.Runners}}
	if p.contacts, err = s.allContacts(ctx, q, id); err != nil {
		return nil, err
	}
	if p.refusals, err = refusals(ctx, q, id, p.contacts); err != nil {
		return nil, err
	}
	live, _, err := first(ctx, q, scanInt, "SELECT COUNT(*) FROM credentials WHERE pool_id = ? AND revoked_at IS NULL", id)
	if err != nil {
		return nil, err
	}
	p.credentials = int(live)
	if pool.Runners.Idle > 0 {
		p.idle, err = collect(ctx, q, scanRunner, selectRunners+" WHERE pool_id = ? AND state <> 'retired' AND state = 'idle' ORDER BY enrolled_at, id LIMIT 64", id)
	}
	return p, err
}

// saidRefusal is what a credential's controller says keeps its runners from starting.
type saidRefusal struct {
	hubv1.Refusal
	credential string
}

// refusals are what a pool's controllers say keeps runners from starting, the
// newest credential's first. What one said that is not in contact any more, or
// has another credential by now, is over: it would have to say it again.
func refusals(ctx context.Context, q querier, pool string, contacts []hubv1.ControllerContact) ([]saidRefusal, error) {
	all, err := collect(ctx, q, scanRefusal, `SELECT id, refusal, refusal_kind FROM credentials
		WHERE pool_id = ? AND revoked_at IS NULL AND refusal <> '' ORDER BY created_at DESC, id`, pool)
	serving := inContact(contacts)
	return slices.DeleteFunc(all, func(r saidRefusal) bool { return !serving[r.credential] }), err
}

// inContact are the ids of the credentials that a controller in contact uses.
func inContact(contacts []hubv1.ControllerContact) map[string]bool {
	ids := map[string]bool{}
	for _, c := range contacts {
		if c.Connected {
			ids[c.CredentialID] = true
		}
	}
	return ids
}

func scanRefusal(row scanner) (r saidRefusal, err error) {
	return r, row.Scan(&r.credential, &r.Message, &r.Kind)
}
