package hub_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hubclient"
)

func failedSync(s hubv1.Sync) bool { return s.State == hubv1.SyncFailed }

func TestTheDoctorFindsAHubWell(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	for _, err := range controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c-0", Build: "1.2.0", Features: []string{hubv1.FeatureRunnerStates, hubv1.FeatureRunnerGone}}) {
		check(t, err)
		d, err := r.admin.Doctor(r.ctx())
		check(t, err)
		for _, f := range d.Findings {
			if f.Severity != hubv1.SeverityPass {
				t.Errorf("the hub has %+v", f)
			}
		}
		if !d.CheckedAt.Equal(r.clock.Now()) {
			t.Errorf("it was looked at at %s", d.CheckedAt)
		}
		if f := findingOf(d, hubv1.FindingPools); f == nil || f.About != pool.Name || !strings.Contains(f.Found, "build 1.2.0 is in contact") {
			t.Errorf("the pool is %+v", f)
		}
		break
	}
}

func TestTheDoctorAndThePoolSayTheSame(t *testing.T) {
	r := serve(t, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{{Name: "fleet", URL: "https://127.0.0.1:1/fleet.git"}}
	})
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	r.run("app")
	find := func(id hubv1.FindingID, severity hubv1.Severity, found string) {
		t.Helper()
		d, err := r.admin.Doctor(r.ctx())
		check(t, err)
		f := findingOf(d, id)
		if f == nil || f.Severity != severity || f.About != "gpu" || !strings.Contains(f.Found, found) {
			t.Fatalf("found %+v of %+v", f, d.Findings)
		}
		shown, err := r.admin.GetPool(r.ctx(), "gpu")
		check(t, err)
		listed, err := r.admin.ListPools(r.ctx())
		check(t, err)
		all, err := r.admin.ListAllPools(r.ctx())
		check(t, err)
		for _, pool := range []hubv1.Pool{shown, listed[0], all[0]} {
			if len(pool.Findings) == 0 || pool.Findings[0] != *f {
				t.Errorf("the pool has %+v, want %+v", pool.Findings, f)
			}
		}
		page := r.page("/metrics")
		if want := `cloop_hub_doctor_findings{finding="` + string(id) + `",severity="` + string(severity) + `"} 1`; !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	find(hubv1.FindingPoolsContact, hubv1.SeverityFail, "no controller that serves the pool")

	for _, err := range controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c-0", Build: "0.9.0", Features: []string{hubv1.FeatureRunnerStates}}) {
		check(t, err)
		find(hubv1.FindingPoolsProtocol, hubv1.SeverityWarn, "build 0.9.0, does not speak runner-gone")
		check(t, controller.SetRefusal(r.ctx(), hubv1.Refusal{Message: "quota exceeded"}))
		find(hubv1.FindingPoolsStorage, hubv1.SeverityWarn, "quota exceeded")
		check(t, controller.SetRefusal(r.ctx(), hubv1.Refusal{}))
		r.clock.Step(10 * time.Minute)
		find(hubv1.FindingPoolsCapacity, hubv1.SeverityWarn, "does not use the room")
		if page := r.page("/metrics"); !strings.Contains(page, `cloop_executor_pool_oldest_wait_seconds{pool="gpu"} 600`) || !strings.Contains(page, `cloop_executor_pool_room{pool="gpu"} 1`) {
			t.Error("the metrics do not have the wait or the room")
		}
		_, err := controller.MintRunner(r.ctx(), "runner-one")
		check(t, err)
		find(hubv1.FindingPoolsCapacity, hubv1.SeverityWarn, "has every runner that it may")
		_, err = controller.MintRunner(r.ctx(), "runner-two")
		wantCode(t, err, hubv1.CodePoolAtMaximum)
		if page := r.page("/metrics"); !strings.Contains(page, `cloop_executor_pool_mint_refusals_total{code="pool_at_maximum",pool="gpu"} 1`) {
			t.Error("the refusal is not counted")
		}
		break
	}
	until(t, r.admin.WatchSync(r.ctx(), "fleet"), "it has failed", failedSync)
	d, err := r.admin.Doctor(r.ctx())
	check(t, err)
	if f := findingOf(d, hubv1.FindingSyncsFailed); f == nil || f.About != "fleet" || f.Severity != hubv1.SeverityFail {
		t.Errorf("the sync is %+v", d.Findings)
	}
	if page := r.page("/metrics"); !strings.Contains(page, `cloop_fleet_sync_ready{sync="fleet"} 0`) || !strings.Contains(page, `cloop_fleet_syncs_total{state="failed",sync="fleet"} `) {
		t.Error("the metrics do not have the sync")
	}
}

// A server that takes the connection and never answers.
func TestTheDoctorFindsASyncThatDoesNotComeToItsEnd(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	defer func() { _ = silent.Close() }()
	r := serve(t, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{{Name: "fleet", URL: "https://" + silent.Addr().String() + "/fleet.git", Interval: 5 * time.Minute}}
	})
	found := func() *hubv1.Finding {
		t.Helper()
		d, err := r.admin.Doctor(r.ctx())
		check(t, err)
		return findingOf(d, hubv1.FindingSyncsStale)
	}
	if f := found(); f != nil {
		t.Fatalf("at its start: %+v", f)
	}
	r.clock.Step(18 * time.Minute) // three intervals and two minutes are 17
	if f := found(); f == nil || f.Severity != hubv1.SeverityWarn || f.About != "fleet" || !strings.Contains(f.Found, "not looked since the hub started, 18 min ago, and is to look every 5m0s") {
		t.Errorf("found %+v", f)
	}
}

// The first token is worth a word once somebody else can do without it.
func TestTheDoctorFindsAFirstTokenThatIsLeft(t *testing.T) {
	r := serve(t, nil)
	found := func() *hubv1.Finding {
		t.Helper()
		d, err := r.admin.Doctor(r.ctx())
		check(t, err)
		return findingOf(d, hubv1.FindingAccessBootstrap)
	}
	r.plain("bob")
	must(t)(r.admin.CreateGroup(r.ctx(), hubv1.CreateGroupRequest{Name: "admins"}))
	must(t)(r.admin.AddMember(r.ctx(), "admins", "bob"))
	must(t)(r.admin.GiveRole(r.ctx(), access.RoleAdmin, hubv1.BindingRequest{Subject: "group:admins"}))
	r.token(r.admin, hubv1.CreateTokenRequest{Name: "small", User: "bob", Scopes: []hubv1.Permission{hubv1.PermissionHubRead}})
	soon := r.clock.Now().Add(time.Hour)
	r.token(r.admin, hubv1.CreateTokenRequest{Name: "ends", User: "bob", ExpiresAt: &soon})
	r.token(r.admin, hubv1.CreateTokenRequest{Name: "access", User: "bob", Scopes: []hubv1.Permission{hubv1.PermissionAccessManage, hubv1.PermissionAccessRead}})
	if f := found(); f != nil {
		t.Fatalf("bob could not do without the first token: %+v", f)
	}
	if d, err := r.admin.Doctor(r.ctx()); err != nil || !strings.Contains(findingOf(d, hubv1.FindingAccess).Found, "nobody else could do without") {
		t.Errorf("that it is needed is not said: %v", err)
	}
	bob := r.client(r.token(r.admin, hubv1.CreateTokenRequest{Name: "t", User: "bob", ExpiresAt: new(r.clock.Now().Add(90 * 24 * time.Hour))}).Secret)
	me, err := r.admin.Self(r.ctx())
	check(t, err)
	f := found()
	if f == nil || f.Severity != hubv1.SeverityWarn || f.About != me.Token.ID || f.Command != "cloop hub token revoke "+me.Token.ID || !strings.Contains(f.Found, "user:bob may do everything too") {
		t.Fatalf("found %+v", f)
	}
	check(t, bob.RevokeToken(r.ctx(), f.About))
	r.admin = bob
	if f := found(); f != nil {
		t.Errorf("it is revoked, and yet %+v", f)
	}
}
