package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
)

// Limits are the times and bounds that decide what happens without anybody
// asking.
type Limits struct {
	// TokenTTL is how long a runner token may wait to be redeemed.
	TokenTTL time.Duration
	// Lease is how long a runner is trusted after its last contact; the hub
	// acts a Margin later.
	Lease, Margin time.Duration
	// StartTimeout is how long a run may be handed without having started.
	StartTimeout time.Duration
	// CancelTimeout is how long a runner in contact may take to stop a run.
	CancelTimeout time.Duration
	// IdleRetire is how long a runner waits for a run.
	IdleRetire time.Duration
	// MaxHandOffs is how many runners may fail to start one attempt of a run.
	MaxHandOffs int
	// LogBytes is how much log is kept of one run.
	LogBytes int64
	// Waiting is how many runs may wait.
	Waiting Waiting
	// Retention is how long what is over is kept.
	Retention Retention
}

// Defaults returns the limits where the zero value stands for the default.
func (l Limits) Defaults() Limits {
	def(&l.TokenTTL, 15*time.Minute)
	def(&l.Lease, 45*time.Second)
	def(&l.Margin, 5*time.Second)
	def(&l.StartTimeout, 2*time.Minute)
	def(&l.CancelTimeout, 2*time.Minute)
	def(&l.IdleRetire, 15*time.Minute)
	def(&l.MaxHandOffs, 5)
	def(&l.LogBytes, 64<<20)
	l.Waiting = l.Waiting.Defaults()
	l.Retention = l.Retention.Defaults()
	return l
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Event is one committed change, for logs and metrics. It holds no credential.
type Event struct {
	Action, Actor, Pool, Object, State, Detail string
	// Took is how long the run was queued (ActionRunHand) or how long it took
	// from the queue to the start of its command (ActionRunStarted).
	Took time.Duration
}

// Options of a Store.
type Options struct {
	// Dir holds hub.db and is made if it is not there.
	Dir string
	// URL, if set, is of a PostgreSQL database that takes the place of Dir. Other
	// hubs may use it at the same time. It is in no error and no log line.
	URL string
	// Member is what this hub says of itself to others that use the database.
	Member Member
	// Clock is the hub's clock. With PostgreSQL the real clock stands for that of
	// the database, so that members whose clocks differ agree.
	Clock  clock.PassiveClock
	Limits Limits
	// Uptime is how long the machine has been up, by a clock that nobody sets and
	// that goes on while it sleeps. With it the hub knows when Clock was set; left
	// out, it never was.
	Uptime func() time.Duration
	// Observe is called once for each committed change, in order. It must not
	// block nor call the store.
	Observe func(Event)
	// Committed is called for each commit, with how many changes shared it and how
	// long the disk took. The same holds for it as for Observe.
	Committed func(changes int, took time.Duration)
	// Refused is called for each runner token that a controller asked for and did
	// not get, with the pool's name and why. It must not block.
	Refused func(pool string, code hubv1.Code)
	// Compare lists where the hub's definition of a pool differs from Git's, with
	// the paths and the values; nil: no pool says so.
	Compare func(git, hub hubv1.PoolDefinition) []hubv1.Drift
	// Trouble is called when changes can no longer be written, with the reason,
	// and with nil when they can be again. The same holds for it as for Observe.
	Trouble func(error)
}

// Store is the hub's database. It is safe for concurrent use.
type Store struct {
	Bus    Bus
	Limits Limits

	engine  engine
	reader  reader
	clock   clock.PassiveClock
	observe func(Event)
	trouble func(error)
	refused func(pool string, code hubv1.Code)
	compare func(git, hub hubv1.PoolDefinition) []hubv1.Drift
	// committed is Options.Committed.
	committed func(changes int, took time.Duration)
	// failing is why changes cannot be written; nil while they can.
	failing atomic.Pointer[hubv1.Problem]
	// wroteAt is when a change was written last, in Unix nanoseconds.
	wroteAt atomic.Int64
	// failed is when one could not be written last; the writer's own.
	failed   time.Time
	requests chan *request
	stopped  chan struct{} // closed by the writer when it has ended
	stop     chan struct{} // closed by Close
	closing  sync.Once
	// deadline has one value when a change brought a time at which Expire has
	// something to do.
	deadline chan struct{}

	// pages has a value for each page that is being read: at most so many, so that
	// there are connections for those who read little.
	pages chan struct{}

	present presence
	uses    uses
	// tokenUses is uses for users' tokens.
	tokenUses uses
	members   members

	uptime func() time.Duration
	// databaseClock says that times are by the database's clock.
	databaseClock bool
	// current is the reading that the batch in progress began with; the writer's
	// own.
	current reading
	// rest: id of a pool that is at rest in the batch in progress → the value of
	// opened by then. What writes anything ends it. The writer's own.
	rest    map[string]int64
	clockMu sync.Mutex // guards the next three
	// seen is the reading that leases and deadlines are by.
	seen reading
	// jumped is the uptime at which the clock was last set, if everJumped.
	jumped     time.Duration
	everJumped bool

	attachedMu sync.Mutex // guards the next two
	// attached: runner id → its open watches here. Only a runner that can hear
	// of a run is handed one, by the member that it hears.
	attached map[string]attachment
	// detached are the ids of runners whose last watch here has ended since the
	// member's last sign of life.
	detached map[string]struct{}
	// opened counts the watches that were ever opened here.
	opened int64
}

// attachment is a runner with watches open.
type attachment struct {
	pool    string
	watches int
}

// Open opens or makes the database and brings its schema up to date. It refuses
// a database that a newer hub has written (ErrNewer) or that is damaged
// (ErrDamaged).
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		Limits: o.Limits.Defaults(), clock: o.Clock, observe: o.Observe, trouble: o.Trouble, refused: o.Refused, compare: o.Compare, committed: o.Committed, uptime: o.Uptime,
		requests: make(chan *request), stopped: make(chan struct{}), stop: make(chan struct{}),
		deadline: make(chan struct{}, 1), pages: make(chan struct{}, maxPages), attached: map[string]attachment{}, detached: map[string]struct{}{},
	}
	if s.observe == nil {
		s.observe = func(Event) {}
	}
	if s.committed == nil {
		s.committed = func(int, time.Duration) {}
	}
	if s.refused == nil {
		s.refused = func(string, hubv1.Code) {}
	}
	if s.trouble == nil {
		s.trouble = func(error) {}
	}
	if err := s.open(ctx, o); err != nil {
		return nil, err
	}
	s.reader = s.engine.reader()
	var err error
	if s.seen, err = s.look(ctx, s.engine.clock); err != nil {
		return nil, errors.Join(err, s.engine.close())
	}
	go s.write()
	if err := s.join(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("join the hubs that use the database: %w", err), s.Close())
	}
	return s, nil
}

// open opens the database.
func (s *Store) open(ctx context.Context, o Options) (err error) {
	if o.URL == "" {
		s.engine, err = openSQLite(ctx, o.Dir, o.Clock)
		return err
	}
	s.members.id = newID("member")
	if _, real := o.Clock.(clock.RealClock); !real {
		s.engine, err = openPostgres(ctx, o.URL, s.members.id, o.Clock)
		return err
	}
	if s.uptime == nil {
		began := time.Now()
		s.uptime = func() time.Duration { return time.Since(began) }
	}
	s.databaseClock, s.clock = true, databaseTime{s}
	s.engine, err = openPostgres(ctx, o.URL, s.members.id, nil)
	return err
}

// Close takes leave of the other hubs, ends the writer and closes the database.
func (s *Store) Close() error {
	var err error
	s.closing.Do(func() {
		err = s.leave()
		close(s.stop)
	})
	<-s.stopped
	return errors.Join(err, s.engine.close())
}

// Abandon closes a database that is not used after all. If it was made when it was
// opened and nothing was ever done with it, it is removed.
func (s *Store) Abandon(ctx context.Context) error {
	blank, err := s.Blank(context.WithoutCancel(ctx))
	if err = errors.Join(err, s.Close()); err != nil || !blank {
		return err
	}
	return s.engine.unmake()
}

// Now is the time by which leases and deadlines are: with PostgreSQL that of the
// database.
func (s *Store) Now() time.Time { return s.clock.Now() }

// Deadline has a value whenever NextDeadline may have come nearer.
func (s *Store) Deadline() <-chan struct{} { return s.deadline }

// Attach says that the runner has a watch open and can be handed a run. The
// caller calls the returned function when the watch ends.
func (s *Store) Attach(ctx context.Context, runner Runner) (detach func(), err error) {
	// count says whether there is none left.
	count := func(by int) (over bool) {
		s.attachedMu.Lock()
		defer s.attachedMu.Unlock()
		watches := s.attached[runner.ID].watches + by
		s.opened += int64(max(by, 0))
		if watches <= 0 {
			delete(s.attached, runner.ID)
			if s.engine.shared() {
				s.detached[runner.ID] = struct{}{}
			}
			return true
		}
		delete(s.detached, runner.ID)
		s.attached[runner.ID] = attachment{pool: runner.PoolID, watches: watches}
		return false
	}
	count(1)
	detach = func() {
		if count(-1) {
			s.watchEnded(runner)
		}
	}
	// The transaction's end hands the runner a run if one is waiting.
	if err := s.update(ctx, func(tx *Tx) error { tx.consider(runner.PoolID); return tx.hears(runner.ID) }); err != nil {
		detach()
		return nil, err
	}
	return detach, nil
}

func (s *Store) isAttached(runner string) bool {
	s.attachedMu.Lock()
	defer s.attachedMu.Unlock()
	return s.attached[runner].watches > 0
}

// watchesOpened is how many watches were ever opened here.
func (s *Store) watchesOpened() int64 {
	s.attachedMu.Lock()
	defer s.attachedMu.Unlock()
	return s.opened
}
