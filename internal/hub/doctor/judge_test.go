package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/doctor"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// well is a pool with nothing wrong: a controller is in contact, nothing waits.
func well(change func(*doctor.Pool)) doctor.Pool {
	p := doctor.Pool{
		Pool: hubv1.Pool{
			Name: "gpu", State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4},
			Runners:     hubv1.RunnerCounts{Idle: 1},
			Controllers: []hubv1.ControllerContact{{Instance: "c-0", Build: "1.2.0", Connected: true, LastContact: now, Features: []string{"one", "two"}}},
		},
		Credentials: 1, Features: []string{"one", "two"},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// waits makes runs wait for that long.
func waits(p *doctor.Pool, d time.Duration) { p.Queued, p.OldestQueued = 2, ago(d) }

func gone(p *doctor.Pool, d time.Duration) {
	p.Controllers[0].Connected, p.Controllers[0].LastContact = false, ago(d)
}

func TestPoolFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Pool)
		// want are findings as "severity id", and what each says.
		want []string
		says string
	}{
		"nothing is wrong":           {nil, []string{"pass executors.pools"}, "1 runner of at most 4 (0 starting, 1 idle, 0 busy), 0 runs queued; build 1.2.0 is in contact"},
		"nobody came and none waits": {func(p *doctor.Pool) { p.Controllers = nil }, []string{"pass executors.pools"}, "no controller seen yet"},
		"away, but none waits":       {func(p *doctor.Pool) { gone(p, time.Hour) }, []string{"pass executors.pools"}, "build 1.2.0 was in contact last, at 2026-03-01T11:00:00Z"},
		"waits without a credential": {func(p *doctor.Pool) { waits(p, time.Second); p.Credentials, p.Controllers = 0, nil }, []string{"fail executors.pools.contact"}, "2 runs wait, and the pool has no live credential"},
		"waits and nobody came":      {func(p *doctor.Pool) { waits(p, time.Second); p.Controllers = nil }, []string{"fail executors.pools.contact"}, "no controller that serves the pool has been in contact"},
		"away for ten minutes":       {func(p *doctor.Pool) { waits(p, time.Second); gone(p, 10*time.Minute) }, []string{"fail executors.pools.contact"}, "in contact for 10 min, since 2026-03-01T11:50:00Z"},
		"away for less":              {func(p *doctor.Pool) { waits(p, time.Second); gone(p, 10*time.Minute-1) }, []string{"pass executors.pools"}, ""},
		"away, and waits for long":   {func(p *doctor.Pool) { waits(p, time.Hour); gone(p, time.Hour) }, []string{"fail executors.pools.contact"}, ""},
		"full for ten minutes": {func(p *doctor.Pool) {
			waits(p, 10*time.Minute)
			p.Runners = hubv1.RunnerCounts{Starting: 1, Idle: 1, Busy: 2}
		}, []string{"warn executors.pools.capacity"}, "2 runs wait, the oldest for 10 min, and the pool has every runner that it may: 4 runners of at most 4 (1 starting, 1 idle, 2 busy)"},
		"full for less": {func(p *doctor.Pool) { waits(p, 10*time.Minute-1); p.Runners.Busy = 4 }, []string{"pass executors.pools"}, ""},
		"room that is not used": {func(p *doctor.Pool) { waits(p, 11*time.Minute); p.Runners = hubv1.RunnerCounts{Busy: 2} },
			[]string{"warn executors.pools.capacity"}, "does not use the room that the pool has: 2 runners of at most 4"},
		"cordoned and one waits": {func(p *doctor.Pool) {
			waits(p, time.Second)
			p.Cordon = &hubv1.Cordon{Reason: "node upgrades", By: "user:ada"}
		}, []string{"warn executors.pools.capacity"}, "cordoned by user:ada: node upgrades"},
		"cordoned and none waits": {func(p *doctor.Pool) { p.Cordon = &hubv1.Cordon{Reason: "x", By: "git"} }, []string{"pass executors.pools"}, ""},
		"storage": {func(p *doctor.Pool) { p.Trouble = []string{"claim x is Pending", "claim y is full"} },
			[]string{"warn executors.pools.storage", "warn executors.pools.storage"}, "the controller says: claim x is Pending"},
		"one credential, two ExecutorPools": {func(p *doctor.Pool) {
			p.Controllers[0].ExecutorPool, p.Controllers[0].Rival = "b/gpu", "a/gpu"
		}, []string{"warn executors.pools.duplicate"}, "b/gpu serves with a credential that a/gpu serves with already"},
		"an older controller":  {func(p *doctor.Pool) { p.Controllers[0].Features = []string{"one"} }, []string{"warn executors.pools.protocol"}, "controller c-0, build 1.2.0, does not speak two"},
		"an older one, gone":   {func(p *doctor.Pool) { p.Controllers[0].Features = nil; gone(p, 25*time.Hour) }, []string{"pass executors.pools"}, ""},
		"a newer controller":   {func(p *doctor.Pool) { p.Controllers[0].Features = []string{"one", "two", "three"} }, []string{"pass executors.pools"}, ""},
		"a revoked pool":       {func(p *doctor.Pool) { p.State = hubv1.PoolRevoked; p.Credentials = 0 }, nil, ""},
		"cordoned and no hope": {func(p *doctor.Pool) { waits(p, 1); p.Credentials = 0; p.Cordon = &hubv1.Cordon{By: "git"} }, []string{"fail executors.pools.contact", "warn executors.pools.capacity"}, ""},
	} {
		t.Run(name, func(t *testing.T) { compare(t, doctor.Examine(now, well(c.change)), c.want, c.says) })
	}
}

func compare(t *testing.T, found []hubv1.Finding, want []string, says string) {
	t.Helper()
	var got []string
	for _, f := range found {
		got = append(got, string(f.Severity)+" "+string(f.ID))
		if f.Meaning == "" || f.Found == "" || f.Severity != hubv1.SeverityPass && (f.Remedy == "" || f.Command == "" || strings.Contains(f.Command, "ABOUT")) {
			t.Errorf("not whole: %+v", f)
		}
		kind, _ := doctor.Of(f.ID)
		if !slices.Contains(kind.Severities, f.Severity) {
			t.Errorf("%s does not come as %s", f.ID, f.Severity)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("found %q, want %q: %+v", got, want, found)
	}
	if len(found) > 0 && !strings.Contains(found[0].Found, says) {
		t.Errorf("found %q, want %q", found[0].Found, says)
	}
}

// sound is a hub with nothing wrong and no pool.
func sound(change func(*doctor.Snapshot)) doctor.Snapshot {
	looked := ago(30 * time.Second)
	s := doctor.Snapshot{
		Now:         now,
		Disk:        doctor.Disk{Free: 50 << 30, Total: 100 << 30},
		Members:     []doctor.Member{{Build: "1.2.0", Address: "a:8443", Features: []string{"one", "two"}}},
		Certificate: doctor.Certificate{File: "/tls.crt", NotBefore: ago(24 * time.Hour), NotAfter: now.Add(89 * 24 * time.Hour)},
		Syncs: []doctor.Sync{{
			Sync:     hubv1.Sync{Name: "fleet", State: hubv1.SyncReady, Message: "main at abc defines 3 pools", LastRun: &looked},
			Interval: time.Minute, Since: ago(time.Hour),
		}},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestHubFindings(t *testing.T) {
	const gib = 1 << 30
	first := []hubv1.Token{{ID: "token_1", User: "admin", CreatedAt: ago(time.Hour)}}
	for name, c := range map[string]struct {
		change func(*doctor.Snapshot)
		want   string
		says   string
	}{
		"nothing is wrong": {nil, "", ""},
		"database":         {func(s *doctor.Snapshot) { s.Database.Trouble = "the hub's disk is full" }, "fail storage.database", "disk is full"},
		"disk nearly full": {func(s *doctor.Snapshot) { s.Disk.Free = 5 * gib }, "warn storage.disk", "5120 MiB of 100 GiB are free"},
		"a large disk":     {func(s *doctor.Snapshot) { s.Disk = doctor.Disk{Free: 50 * gib, Total: 1000 * gib} }, "", ""},
		"a small disk":     {func(s *doctor.Snapshot) { s.Disk = doctor.Disk{Free: gib, Total: 2 * gib} }, "", ""},
		"little on any":    {func(s *doctor.Snapshot) { s.Disk = doctor.Disk{Free: 200 << 20, Total: 1 * gib} }, "warn storage.disk", "200 MiB"},
		"no room":          {func(s *doctor.Snapshot) { s.Disk.Free = 1 << 20 }, "fail storage.disk", "1 MiB"},
		"an unknown disk":  {func(s *doctor.Snapshot) { s.Disk = doctor.Disk{} }, "", ""},
		"an older hub": {func(s *doctor.Snapshot) {
			s.Members = append(s.Members, doctor.Member{Build: "1.1.0", Address: "b:8443", Features: []string{"one"}})
		}, "warn members.builds", "the hub of build 1.1.0 cannot do two, so no hub does"},
		"two of a kind":         {func(s *doctor.Snapshot) { s.Members = append(s.Members, s.Members[0]) }, "", ""},
		"the first token alone": {func(s *doctor.Snapshot) { s.Access = doctor.Access{First: first, Others: []string{"admin"}} }, "", ""},
		"others without it":     {func(s *doctor.Snapshot) { s.Access = doctor.Access{Others: []string{"bob"}} }, "", ""},
		"the first token is left": {func(s *doctor.Snapshot) {
			s.Access = doctor.Access{First: first, Others: []string{"admin", "ann", "bob", "cid", "dan", "eve"}}
		}, "warn access.bootstrap", "user:admin, made at 2026-03-01T11:00:00Z, is live and was never used, and user:ann, user:bob, user:cid, 2 more may"},
		"a clock ahead":  {func(s *doctor.Snapshot) { s.Ahead = 5 * time.Second }, "warn members.clock", "5s ahead of"},
		"a clock behind": {func(s *doctor.Snapshot) { s.Ahead = -time.Minute }, "warn members.clock", "1m0s behind"},
		"a clock nearly": {func(s *doctor.Snapshot) { s.Ahead = -2 * time.Second }, "", ""},
		"certificate ends": {func(s *doctor.Snapshot) {
			s.Certificate.NotBefore, s.Certificate.NotAfter = ago(70*24*time.Hour), now.Add(20*24*time.Hour)
		}, "warn tls.expiry", "ends in 20 days"},
		"a short one lasts": {func(s *doctor.Snapshot) { s.Certificate.NotAfter = now.Add(23 * time.Hour) }, "", ""},
		"a short one ends":  {func(s *doctor.Snapshot) { s.Certificate.NotAfter = now.Add(11 * time.Hour) }, "warn tls.expiry", "11 h"},
		"certificate over":  {func(s *doctor.Snapshot) { s.Certificate.NotAfter = ago(time.Hour) }, "fail tls.expiry", "over since 2026-03-01T11:00:00Z"},
		"certificate early": {func(s *doctor.Snapshot) { s.Certificate.NotBefore = now.Add(time.Hour) }, "fail tls.expiry", "valid only from"},
		"a broken reload":   {func(s *doctor.Snapshot) { s.Certificate.ReloadError = "no PEM" }, "warn tls.reload", "no PEM"},
		"a sync fails":      {func(s *doctor.Snapshot) { s.Syncs[0].State, s.Syncs[0].Message = hubv1.SyncFailed, "pools/gpu.yaml:3" }, "fail syncs.failed", "pools/gpu.yaml:3"},
		"a stale sync":      {func(s *doctor.Snapshot) { at := ago(6 * time.Minute); s.Syncs[0].LastRun = &at }, "warn syncs.stale", "6 min ago"},
		"late, not stale":   {func(s *doctor.Snapshot) { at := ago(5 * time.Minute); s.Syncs[0].LastRun = &at }, "", ""},
		"just started":      {func(s *doctor.Snapshot) { s.Syncs[0].LastRun, s.Syncs[0].Since = nil, ago(time.Minute) }, "", ""},
		"back after a day": {func(s *doctor.Snapshot) {
			at := ago(24 * time.Hour)
			s.Syncs[0].LastRun, s.Syncs[0].Since = &at, ago(time.Minute)
		}, "", ""},
		"never looked": {func(s *doctor.Snapshot) { s.Syncs[0].LastRun = nil }, "warn syncs.stale", "not looked since the hub started"},
		"statuses":     {func(s *doctor.Snapshot) { s.Syncs[0].StatusError = "403" }, "warn syncs.statuses", "403"},
		"webhooks":     {func(s *doctor.Snapshot) { s.Syncs[0].WebhookError = "another secret" }, "warn syncs.webhooks", "another secret"},
	} {
		t.Run(name, func(t *testing.T) {
			d := doctor.Judge(sound(c.change))
			var want []string
			severity := hubv1.SeverityPass
			if c.want != "" {
				want = []string{c.want}
				severity = hubv1.Severity(strings.Fields(c.want)[0])
			}
			if d.Severity != severity || !d.CheckedAt.Equal(now) {
				t.Errorf("the hub is %s at %s", d.Severity, d.CheckedAt)
			}
			compare(t, doctor.Wrong(slices.Clone(d.Findings)), want, c.says)
			compare(t, d.Findings[len(want):], passing(want), "")
		})
	}
}

// passing are the groups that pass where the findings are wrong.
func passing(wrong []string) []string {
	return slices.DeleteFunc([]string{"pass storage", "pass members", "pass access", "pass tls", "pass syncs"}, func(group string) bool {
		return slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, strings.TrimPrefix(group, "pass ")+".") })
	})
}

func TestTheWorstComesFirst(t *testing.T) {
	s := sound(func(s *doctor.Snapshot) {
		s.Pools = []doctor.Pool{well(nil), well(func(p *doctor.Pool) { p.Name = "a"; p.Controllers[0].Features = nil })}
		s.Disk.Free = 1 << 20
		s.Certificate.ReloadError = "no PEM"
	})
	compare(t, doctor.Judge(s).Findings,
		[]string{"fail storage.disk", "warn executors.pools.protocol", "warn tls.reload", "pass executors.pools", "pass members", "pass access", "pass syncs"}, "")
}
