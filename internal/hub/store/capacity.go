package store

import (
	"maps"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// handNow hands out what waits for the pool to the runners that are free now,
// and refuses the run, the last that was queued, unless one of them has it then.
// The change is undone by that, so nobody else's run was handed out by it.
func (tx *Tx) handNow(project, poolID, run string) error {
	pool, err := findPool(tx.ctx, tx, poolID)
	if err != nil {
		return err
	}
	if pool.Cordon == nil {
		listens, err := tx.listensAnywhere()
		if err == nil {
			err = tx.handOff(pool, listens)
		}
		if err != nil {
			return err
		}
	}
	row, err := findRun(tx.ctx, tx, run)
	if err != nil || row.State != hubv1.RunQueued {
		return err
	}
	situation, err := tx.store.poolSituation(tx.ctx, tx, poolID)
	if err != nil {
		return err
	}
	return problem.New(hubv1.CodeWaitingForCapacity, "a run of project %s would wait: %s", project, situation.of(row).sentence())
}

// listensHere says whether the runner has a watch open at this member.
func (tx *Tx) listensHere(r runnerRow) bool { return tx.store.isAttached(r.ID) }

// listensAnywhere says whether a runner has a watch open at any member. Each
// member hands runs to its own runners, which costs no question: only who cannot
// wait for the others asks for theirs.
func (tx *Tx) listensAnywhere() (func(runnerRow) bool, error) {
	if !tx.store.engine.shared() {
		return tx.listensHere, nil
	}
	// What it knows itself is newer than what it has written down.
	members, err := collect(tx.ctx, tx, scanText, "SELECT id FROM members WHERE id <> ? AND seen_at > ?", tx.store.members.id, nano(tx.now.Add(-alive)))
	return func(r runnerRow) bool { return tx.listensHere(r) || slices.Contains(members, r.heardBy) }, err
}

// hears writes down that the runner has a watch open at this member, which knows
// it without that: nothing is handed out by it here.
func (tx *Tx) hears(runner string) error {
	if !tx.store.engine.shared() {
		return nil
	}
	defer func(stirs bool) { tx.stirs = stirs }(tx.stirs)
	return tx.send("UPDATE runners SET heard_by = ? WHERE id = ? AND state <> 'retired'", tx.store.members.id, runner)
}

// unheardAtOnce bounds how many runners one statement is about.
const unheardAtOnce = 500

// unheard takes back what hears wrote of runners whose watch here has ended. It
// comes with the next sign of life: most watches end with their runner, and
// thousands when the member stops.
func (tx *Tx) unheard(runners []string) error {
	// One that has come back meanwhile stays.
	runners = slices.DeleteFunc(slices.Clone(runners), tx.store.isAttached)
	for some := range slices.Chunk(runners, unheardAtOnce) {
		args := []any{tx.store.members.id}
		for _, id := range some {
			args = append(args, id)
		}
		if err := tx.send("UPDATE runners SET heard_by = '' WHERE state <> 'retired' AND heard_by = ? AND id IN ("+places(len(some))+")", args...); err != nil {
			return err
		}
	}
	return nil
}

// takeUnheard are the runners whose watch here has ended since the last time.
func (s *Store) takeUnheard() []string {
	s.attachedMu.Lock()
	defer s.attachedMu.Unlock()
	gone := slices.Collect(maps.Keys(s.detached))
	clear(s.detached)
	return gone
}

// stillUnheard gives back what takeUnheard took, after it could not be written.
func (s *Store) stillUnheard(runners []string) {
	s.attachedMu.Lock()
	defer s.attachedMu.Unlock()
	for _, id := range runners {
		s.detached[id] = struct{}{}
	}
}
