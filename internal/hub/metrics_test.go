package hub_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/metric"
)

// What a hub exposes is what the reference lists.
func TestEveryMetricIsListed(t *testing.T) {
	r := serve(t, func(o *hub.Options) {
		o.Syncs = []hub.SyncConfig{{Name: "fleet", URL: "https://127.0.0.1:1/fleet.git"}}
	})
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	r.run("app")
	until(t, r.admin.WatchSync(r.ctx(), "fleet"), "it has failed", failedSync)
	_, _ = r.enroll(controller, "runner-one")
	_, _ = controller.MintRunner(r.ctx(), "runner-two")
	listed := map[string]metric.Definition{}
	for _, d := range hub.Metrics() {
		if _, twice := listed[d.Name]; twice || d.Help == "" {
			t.Errorf("%s is listed twice or says nothing", d.Name)
		}
		listed[d.Name] = d
	}
	bounded := []string{"pool", "state", "code", "sync", "result", "route", "status", "surface", "finding", "severity", "limit", "le"}
	for _, found := range regexp.MustCompile(`(?m)^# TYPE (cloop_\S+) (\S+)$`).FindAllStringSubmatch(r.page("/metrics"), -1) {
		d, known := listed[found[1]]
		if !known || string(d.Kind) != found[2] {
			t.Errorf("%s, a %s, is listed as %+v", found[1], found[2], d)
		}
		for _, label := range d.Labels {
			if !slices.Contains(bounded, label) {
				t.Errorf("%s has the label %s, which nothing bounds", d.Name, label)
			}
		}
	}
}

// Demand, runners by state, and what was minted, refused and retired are the
// hub's own record.
func TestAPoolsMetricsFollowItsRunners(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	shows := func(when string, want ...string) {
		t.Helper()
		page := r.page("/metrics")
		for _, line := range want {
			if !strings.Contains(page, "\ncloop_executor_pool_"+line+"\n") {
				t.Errorf("%s there is no %s", when, line)
			}
		}
	}
	run := r.run("app")
	shows("while it waits", `demand{pool="gpu"} 1`, `runners{pool="gpu",state="busy"} 0`, `room{pool="gpu"} 1`)
	minted, err := controller.MintRunner(r.ctx(), "runner-one")
	check(t, err)
	_, err = controller.MintRunner(r.ctx(), "runner-two")
	wantCode(t, err, hubv1.CodePoolAtMaximum)
	shows("once a token is minted", `runners{pool="gpu",state="starting"} 1`, `mints_total{pool="gpu"} 1`, `mint_refusals_total{code="pool_at_maximum",pool="gpu"} 1`, `room{pool="gpu"} 0`)
	enrolled, err := r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: "r", Build: "test", Features: []string{hubv1.FeatureRequirements}})
	check(t, err)
	runner := r.client(enrolled.Session)
	shows("once it is enrolled", `runners{pool="gpu",state="idle"} 1`)
	until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	shows("while it runs", `demand{pool="gpu"} 0`, `runners{pool="gpu",state="busy"} 1`)
	check(t, runner.RunResult(r.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0))}))
	check(t, runner.Bye(r.ctx(), "done"))
	shows("when it is over", `runners{pool="gpu",state="busy"} 0`, `runners{pool="gpu",state="retiring"} 0`, `retirements_total{pool="gpu"} 1`)

	// A token works once, and the log says why another use of it is refused.
	_, err = r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: "r"})
	wantCode(t, err, hubv1.CodeTokenRefused)
	if log := r.log.String(); !strings.Contains(log, `msg="remote: connect rejected" reason="the runner token is revoked or has been redeemed: its runner is retired"`) || strings.Contains(log, minted.Token) {
		t.Errorf("the log has\n%s", log)
	}
}
