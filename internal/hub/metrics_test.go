package hub_test

import (
	"regexp"
	"slices"
	"testing"

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
	bounded := []string{"pool", "state", "code", "sync", "result", "route", "status", "finding", "severity", "le"}
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
