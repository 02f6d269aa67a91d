package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

func TestThePoolsThatARequestMayMake(t *testing.T) {
	r := serve(t, nil)
	long := strings.Repeat("a", 63)
	for name, c := range map[string]struct{ body, location string }{
		"a name":                          {`{"name":"` + long + `","maxRunners":1}`, ""},
		"digits and dashes":               {`{"name":"0-a","maxRunners":0}`, ""},
		"no name":                         {`{"name":"","maxRunners":1}`, "body.name"},
		"a longer name":                   {`{"name":"` + long + `a","maxRunners":1}`, "body.name"},
		"capitals":                        {`{"name":"Gpu","maxRunners":1}`, "body.name"},
		"a dot":                           {`{"name":"a.b","maxRunners":1}`, "body.name"},
		"an underscore, as ids have":      {`{"name":"pool_a","maxRunners":1}`, "body.name"},
		"a dash first":                    {`{"name":"-a","maxRunners":1}`, "body.name"},
		"a dash last":                     {`{"name":"a-","maxRunners":1}`, "body.name"},
		"no maximum":                      {`{"name":"a1"}`, "body"},
		"below 0":                         {`{"name":"a2","maxRunners":-1}`, "body.maxRunners"},
		"the highest maximum":             {`{"name":"a3","maxRunners":100000}`, ""},
		"a higher maximum":                {`{"name":"a4","maxRunners":100001}`, "body.maxRunners"},
		"half a runner":                   {`{"name":"a5","maxRunners":1.5}`, "body.maxRunners"},
		"labels":                          {`{"name":"a6","maxRunners":1,"labels":{"gpu":"true","example.com/a":""}}`, ""},
		"a label with no key":             {`{"name":"a7","maxRunners":1,"labels":{"":"a"}}`, "body.labels"},
		"a label key's prefix":            {`{"name":"a8","maxRunners":1,"labels":{"Not A Domain/a":"b"}}`, "body.labels"},
		"a long label":                    {`{"name":"a9","maxRunners":1,"labels":{"a":"` + long + `a"}}`, "body.labels.a"},
		"principals":                      {`{"name":"b1","maxRunners":1,"audience":["user:alice@example.com","group:ml-team","role:admin"],"owner":"group:ml-team"}`, ""},
		"nobody's kind":                   {`{"name":"b2","maxRunners":1,"audience":["team:ml"]}`, "body.audience[0]"},
		"a kind without a name":           {`{"name":"b3","maxRunners":1,"audience":["user:"]}`, "body.audience[0]"},
		"one twice":                       {`{"name":"b4","maxRunners":1,"audience":["user:a","user:a"]}`, "body.audience[1]"},
		"a line in a principal":           {`{"name":"b5","maxRunners":1,"audience":["user:a\nb"]}`, "body.audience[0]"},
		"an owner's kind":                 {`{"name":"b6","maxRunners":1,"owner":"team:ml"}`, "body.owner"},
		"capabilities":                    {`{"name":"b7","maxRunners":1,"capabilities":{"kernelIsolated":true}}`, ""},
		"a capability's name":             {`{"name":"b8","maxRunners":1,"capabilities":{"kernel isolated":true}}`, "body.capabilities"},
		"an installation":                 {`{"name":"c1","maxRunners":4,"install":{"namespace":"ml","release":"ml","minRunners":1,"persistence":{"size":"50Gi","storageClassName":"fast-ssd","reclaimPolicy":"Retain"}}}`, ""},
		"a namespace":                     {`{"name":"c2","maxRunners":1,"install":{"namespace":"a b"}}`, "body.install.namespace"},
		"a release that Helm cannot have": {`{"name":"c3","maxRunners":1,"install":{"release":"` + long + `"}}`, "body.install.release"},
		"a size that is none":             {`{"name":"c4","maxRunners":1,"install":{"persistence":{"size":"large"}}}`, "body.install.persistence.size"},
		"no size":                         {`{"name":"c5","maxRunners":1,"install":{"persistence":{}}}`, "body.install.persistence"},
		"a storage class":                 {`{"name":"c6","maxRunners":1,"install":{"persistence":{"size":"1Gi","storageClassName":"A B"}}}`, "body.install.persistence.storageClassName"},
		"a reclaim policy":                {`{"name":"c7","maxRunners":1,"install":{"persistence":{"size":"1Gi","reclaimPolicy":"Keep"}}}`, "body.install.persistence.reclaimPolicy"},
		"more idle runners than runners":  {`{"name":"c8","maxRunners":1,"install":{"minRunners":2}}`, "body.install"},
	} {
		t.Run(name, func(t *testing.T) {
			status, problem := r.raw("POST", "/api/v1/pools", c.body)
			if c.location == "" {
				if status != 201 {
					t.Fatalf("answered %d %+v", status, problem)
				}
				return
			}
			if status != 422 || problem.Code != hubv1.CodeInvalid || problem.Remedy == "" {
				t.Fatalf("answered %d %+v", status, problem)
			}
			for _, field := range problem.Errors {
				if field.Location == c.location && field.Message != "" {
					return
				}
			}
			t.Errorf("no error at %s: %+v", c.location, problem.Errors)
		})
	}
}

func TestHowAPoolIsInstalledIsKept(t *testing.T) {
	r := serve(t, nil)
	hints := &hubv1.InstallHints{Namespace: "ml", MinRunners: 1, Persistence: &hubv1.PersistenceHints{Size: "50Gi", ReclaimPolicy: "Retain"}}
	request := hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4}, Install: hints}
	made, err := r.admin.CreatePool(r.ctx(), request)
	check(t, err)
	same := func(pool hubv1.Pool) {
		t.Helper()
		if pool.Install == nil || pool.Install.Namespace != "ml" || pool.Install.MinRunners != 1 || *pool.Install.Persistence != *hints.Persistence {
			t.Errorf("kept is %+v", pool.Install)
		}
	}
	same(made.Pool)
	five := int32(5)
	must(t)(r.admin.UpdatePool(r.ctx(), "gpu", "", hubv1.UpdatePoolRequest{MaxRunners: &five}))
	pool, err := r.admin.GetPool(r.ctx(), "gpu")
	check(t, err)
	same(pool)
	// Made again, it is installed as is said then.
	must(t)(r.admin.RevokePool(r.ctx(), "gpu"))
	request.Install = nil
	made, err = r.admin.CreatePool(r.ctx(), request)
	check(t, err)
	if made.Pool.Install != nil || made.Pool.ID != pool.ID {
		t.Errorf("made again with %+v", made.Pool.Install)
	}
}

// A change says which revision of the pool is meant, so that nobody overwrites
// what somebody else has changed meanwhile.
func TestAChangeOfAPoolNamesItsRevision(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	admin := r.token(r.admin, hubv1.CreateTokenRequest{Name: "test"}).Secret
	_, header, _ := r.ask("GET", "/api/v1/pools/gpu", admin, "")
	first := header.Get("ETag")
	if first != hubclient.ETag(pool) {
		t.Fatalf("the ETag of %d is %s", pool.Revision, first)
	}
	for _, step := range []struct {
		name, match string
		status      int
		code        hubv1.Code
		maximum     int32
	}{
		{"without a revision", "", 428, hubv1.CodePreconditionRequired, 1},
		{"with what is no revision", `"latest"`, 412, hubv1.CodePreconditionFailed, 1},
		{"with its revision", first, 200, "", 2},
		{"with the one before", first, 412, hubv1.CodePreconditionFailed, 2},
		{"with any", "*", 200, "", 5},
	} {
		headers := map[string]string{}
		if step.match != "" {
			headers["If-Match"] = step.match
		}
		want := step.maximum
		if step.status != 200 {
			want = 99
		}
		status, header, answer := r.askWith("PATCH", "/api/v1/pools/gpu", admin, fmt.Sprintf(`{"maxRunners":%d}`, want), headers)
		var p hubv1.Problem
		check(t, json.Unmarshal(answer, &p))
		now, err := r.admin.GetPool(r.ctx(), "gpu")
		check(t, err)
		if status != step.status || p.Code != step.code || now.MaxRunners != step.maximum || step.code != "" && p.Remedy == "" {
			t.Errorf("%s: %d %s, and the maximum is %d", step.name, status, answer, now.MaxRunners)
		}
		if step.code == "" && header.Get("ETag") != hubclient.ETag(now) {
			t.Errorf("%s: the ETag is %s", step.name, header.Get("ETag"))
		}
	}
	page, err := r.admin.Audit(r.ctx(), hubv1.AuditQuery{Action: "executor_pool.update", Limit: 10})
	if err != nil || len(page.Items) != 2 || page.Items[0].Actor != "user:admin" || !strings.Contains(page.Items[1].Detail, `"maxRunners":5`) {
		t.Errorf("the audit trail has %+v, %v", page.Items, err)
	}
}

func TestARotationOverTheAPI(t *testing.T) {
	r := serve(t, nil)
	pool, old := r.pool("gpu", 2)
	ctx := r.ctx()
	next, stop := pull(old.PoolWatch(ctx, hubclient.Hello{Instance: "c-0", Build: "b1"}))
	defer stop()
	if _, err := next(); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(time.Minute)
	made, err := r.admin.CreateCredential(ctx, "gpu")
	check(t, err)
	_, err = r.admin.FinishRotation(ctx, "gpu", hubv1.FinishRotationRequest{})
	p := wantCode(t, err, hubv1.CodeRotationUnfinished)
	if p.Status != 409 || !strings.Contains(p.Remedy, "--force") || len(p.Errors) != 1 {
		t.Errorf("refused with %+v", p)
	}
	// The controller takes the new one and lets go of the old.
	r.clock.Step(time.Minute)
	fresh := r.client(made.Secret)
	must(t)(fresh.PoolSnapshot(ctx))
	_, err = r.admin.FinishRotation(ctx, "gpu", hubv1.FinishRotationRequest{})
	wantCode(t, err, hubv1.CodeRotationUnfinished)
	done, err := r.admin.FinishRotation(ctx, "gpu", hubv1.FinishRotationRequest{Force: true})
	check(t, err)
	if done.Kept.ID != made.ID || done.Kept.Secret != "" || len(done.Revoked) != 1 {
		t.Errorf("finished as %+v", done)
	}
	// An open watch of the old one ends.
	for {
		if _, err := next(); err != nil {
			break
		}
	}
	_, err = old.PoolSnapshot(ctx)
	wantCode(t, err, hubv1.CodeUnauthenticated)
	must(t)(fresh.PoolSnapshot(ctx))
	list, err := r.admin.ListCredentials(ctx, pool.ID, true)
	check(t, err)
	if len(list) != 2 || list[0].RevokedAt != nil || list[0].UsedAt == nil || list[1].RevokedAt == nil {
		t.Errorf("listed as %+v", list)
	}
	must(t)(r.admin.RevokeCredential(ctx, "gpu", made.ID))
	_, err = fresh.PoolSnapshot(ctx)
	wantCode(t, err, hubv1.CodeUnauthenticated)
	if strings.Contains(r.log.String(), made.Secret) {
		t.Error("the log has the credential")
	}
}

func TestAControllerIsToldThatItIsADuplicate(t *testing.T) {
	r := serve(t, nil)
	_, controller := r.pool("gpu", 2)
	hello := func(name, uid string, created int64) hubclient.Hello {
		return hubclient.Hello{Instance: name, Build: "b1", Serves: hubclient.Served{Name: name, UID: uid, HubPool: "gpu", Created: created}}
	}
	served, close := context.WithCancel(r.ctx())
	defer close()
	first, stopFirst := pull(controller.PoolWatch(served, hello("west/gpu", "u1", 1)))
	defer stopFirst()
	if snapshot, err := first(); err != nil || snapshot.Duplicate != "" {
		t.Fatalf("alone: %q %v", snapshot.Duplicate, err)
	}
	second, stop := pull(controller.PoolWatch(r.ctx(), hello("east/gpu", "u2", 2)))
	defer stop()
	if snapshot, err := second(); err != nil || snapshot.Duplicate != "west/gpu" {
		t.Fatalf("the second is a duplicate of %q %v", snapshot.Duplicate, err)
	}
	shown, err := r.admin.GetPool(r.ctx(), "gpu")
	check(t, err)
	if !slices.ContainsFunc(shown.Findings, func(f hubv1.Finding) bool {
		return f.ID == hubv1.FindingPoolsDuplicate && strings.Contains(f.Found, "east/gpu") && f.Remedy != ""
	}) {
		t.Errorf("the pool shows %+v", shown.Findings)
	}
	close()
	for {
		snapshot, err := second()
		if err != nil {
			t.Fatal(err)
		}
		if snapshot.Duplicate == "" {
			break
		}
	}
}

func TestTheHubSaysWhatItIs(t *testing.T) {
	r := serve(t, nil)
	info, err := r.admin.Hub(r.ctx())
	if err != nil || info.Build != "edge" || len(info.Features) == 0 || info.Chart != "" {
		t.Errorf("it says %+v %v", info, err)
	}
	_, err = r.client("").Hub(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
}

func TestARunnerIsMintedAsHoldingAVolume(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 2)
	r.project("app", pool)
	r.run("app")
	holds := ""
	until(t, controller.PoolWatch(r.ctx(), hubclient.Hello{Instance: "c", Features: []string{hubv1.FeatureRunnerHolds}}), "it is said whose run waits",
		func(s hubv1.PoolSnapshot) bool {
			if len(s.Waiting) == 1 {
				holds = s.Waiting[0].Holds
			}
			return holds != ""
		})
	minted, err := controller.MintHolding(r.ctx(), hubv1.MintRequest{Key: "key-one1", Holds: holds})
	check(t, err)
	runners, err := r.admin.ListPoolRunners(r.ctx(), "gpu")
	if err != nil || len(runners) != 1 || runners[0].ID != minted.RunnerID || runners[0].HoldsProject != "app" {
		t.Errorf("listed as %+v %v", runners, err)
	}
	_, err = controller.MintHolding(r.ctx(), hubv1.MintRequest{Key: "key-two2", Holds: strings.Repeat("0", 32)})
	wantCode(t, err, hubv1.CodeHoldsUnknown)
	_, err = controller.MintHolding(r.ctx(), hubv1.MintRequest{Key: "key-two2", Holds: "app"})
	wantCode(t, err, hubv1.CodeInvalid)
}

// Whether it comes from the API, from the command line or from Git, what is left
// out means the same.
func TestAPoolHasTheHarnessThatADocumentHas(t *testing.T) {
	r := serve(t, nil)
	if pool, _ := r.pool("demo", 1); pool.Harness != hubv1.DefaultHarness {
		t.Errorf("its harness is %q", pool.Harness)
	}
	if got := fleet.DefinitionOf(&v1alpha1.HubPool{}).Harness; got != hubv1.DefaultHarness {
		t.Errorf("a document's is %q", got)
	}
}

// What its controller had before is no credential in the wrong place.
func TestAControllerGoesOnWithTheRunnersOfTheCredentialBefore(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("demo", 2)
	r.project("app", pool)
	earlier, err := r.admin.CreateCredential(r.ctx(), pool.ID)
	check(t, err)
	id, runner := r.enroll(r.client(earlier.Secret), "key-00000001")
	run := r.run("app")
	assigned := until(t, runner.RunnerWatch(r.ctx()), "the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	check(t, runner.RunStarted(r.ctx(), run.ID, hubv1.StartedRequest{Attempt: assigned.Run.Attempt, StartedAt: r.clock.Now()}))

	next, err := r.admin.CreateCredential(r.ctx(), pool.ID)
	check(t, err)
	after := r.client(next.Secret)
	killed := hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: new(int32(137))}
	_, err = after.RunnerGone(r.ctx(), id, killed)
	wantCode(t, err, hubv1.CodeForbidden)
	check(t, after.Succeed(r.ctx(), secret.New(earlier.Secret)))
	must(t)(after.RunnerGone(r.ctx(), id, killed))
	if got := r.untilRun(run.ID, hubv1.RunQueued); len(got.Earlier) != 1 || got.Earlier[0].PodEnd == nil || got.Earlier[0].PodEnd.Reason != "OOMKilled" {
		t.Errorf("the run's earlier attempts: %+v", got.Earlier)
	}
}
