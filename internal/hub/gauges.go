package hub

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/metric"
)

var (
	poolDemand   = metric.Definition{Name: "cloop_executor_pool_demand", Kind: metric.Gauge, Help: "Runs that wait for the pool; none while it is cordoned or draining.", Labels: byPool}
	poolRunners  = metric.Definition{Name: "cloop_executor_pool_runners", Kind: metric.Gauge, Help: "Runners of the pool that are not retired, by state.", Labels: []string{"pool", "state"}}
	poolRoom     = metric.Definition{Name: "cloop_executor_pool_room", Kind: metric.Gauge, Help: "Runners that the pool may still have below its maximum.", Labels: byPool}
	poolWait     = metric.Definition{Name: "cloop_executor_pool_oldest_wait_seconds", Kind: metric.Gauge, Help: "How long the run waits that waits longest for the pool; 0 while none does.", Labels: byPool}
	poolContacts = metric.Definition{Name: "cloop_executor_pool_controllers", Kind: metric.Gauge, Help: "Controllers of the pool that are in contact.", Labels: byPool}
	poolDrift    = metric.Definition{Name: "cloop_pool_drift", Kind: metric.Gauge, Help: "Fields on which two surfaces of the pool disagree.", Labels: []string{"pool", "surface"}}
	syncReady    = metric.Definition{Name: "cloop_fleet_sync_ready", Kind: metric.Gauge, Help: "1 where the sync has applied what its repository says, 0 where it has not.", Labels: []string{"sync"}}
	hubReady     = metric.Definition{Name: "cloop_hub_ready", Kind: metric.Gauge, Help: "1 while /readyz is ok, 0 while it is not."}
	hubWritable  = metric.Definition{Name: "cloop_hub_database_writable", Kind: metric.Gauge, Help: "1 while changes can be written to the database, 0 while they cannot."}
	hubDiskFree  = metric.Definition{Name: "cloop_hub_disk_free_bytes", Kind: metric.Gauge, Help: "Room on the disk of the data directory."}
	hubDiskSize  = metric.Definition{Name: "cloop_hub_disk_size_bytes", Kind: metric.Gauge, Help: "Size of the disk of the data directory."}
	certExpiry   = metric.Definition{Name: "cloop_hub_certificate_expiry_timestamp_seconds", Kind: metric.Gauge, Help: "When the certificate that the hub shows ends, as a Unix time."}
	certFailing  = metric.Definition{Name: "cloop_hub_certificate_reload_failing", Kind: metric.Gauge, Help: "1 while the certificate's files are newer than what the hub shows and cannot be used."}
	hubFindings  = metric.Definition{Name: "cloop_hub_doctor_findings", Kind: metric.Gauge, Help: "What `cloop hub doctor` finds, passes left out.", Labels: []string{"finding", "severity"}}

	gauges = []metric.Definition{
		poolDemand, poolRunners, poolRoom, poolWait, poolContacts, poolDrift, syncReady,
		hubReady, hubWritable, hubDiskFree, hubDiskSize, certExpiry, certFailing, hubFindings,
	}
)

// collector reads the gauges when they are asked for, so that they cannot drift
// from what they tell of.
type collector struct {
	examine func(context.Context) (doctor.Snapshot, error)
	ready   func(context.Context) error
}

// scrapeTimeout bounds the reading of one scrape.
const scrapeTimeout = 5 * time.Second

// Describe tells prometheus what Collect gives.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, gauge := range gauges {
		out <- gauge.Desc()
	}
}

// Collect reads the hub. What cannot be read is left out: a hub whose database
// is gone must still say that it is not ready.
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	say := func(d metric.Definition, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d.Desc(), prometheus.GaugeValue, value, labels...)
	}
	say(hubReady, asNumber(c.ready(ctx) == nil))
	s, err := c.examine(ctx)
	say(hubWritable, asNumber(err == nil && s.Database.Trouble == ""))
	if err != nil {
		return
	}
	for _, pool := range s.Pools {
		collectPool(say, s.Now, pool)
	}
	for _, sync := range s.Syncs {
		say(syncReady, asNumber(sync.State == hubv1.SyncReady), sync.Name)
	}
	if s.Disk.Total > 0 {
		say(hubDiskFree, float64(s.Disk.Free))
		say(hubDiskSize, float64(s.Disk.Total))
	}
	say(certExpiry, float64(s.Certificate.NotAfter.Unix()))
	say(certFailing, asNumber(s.Certificate.ReloadError != ""))
	type kind struct {
		id       hubv1.FindingID
		severity hubv1.Severity
	}
	found := map[kind]int{}
	for _, f := range doctor.Wrong(doctor.Judge(s).Findings) {
		found[kind{f.ID, f.Severity}]++
	}
	for k, n := range found {
		say(hubFindings, float64(n), string(k.id), string(k.severity))
	}
}

func collectPool(say func(metric.Definition, float64, ...string), now time.Time, p doctor.Pool) {
	demand := p.Queued
	if p.State != hubv1.PoolActive || p.Cordon != nil {
		demand = 0
	}
	say(poolDemand, float64(demand), p.Name)
	live := int32(0)
	for state, n := range map[hubv1.RunnerState]int32{
		hubv1.RunnerStarting: p.Runners.Starting, hubv1.RunnerIdle: p.Runners.Idle,
		hubv1.RunnerBusy: p.Runners.Busy, hubv1.RunnerRetiring: p.Runners.Retiring,
	} {
		say(poolRunners, float64(n), p.Name, string(state))
		live += n
	}
	say(poolRoom, float64(max(p.MaxRunners-live, 0)), p.Name)
	wait := time.Duration(0)
	if !p.OldestQueued.IsZero() {
		wait = max(now.Sub(p.OldestQueued), 0)
	}
	say(poolWait, wait.Seconds(), p.Name)
	contacts := 0
	for _, c := range p.Controllers {
		if c.Connected {
			contacts++
		}
	}
	say(poolContacts, float64(contacts), p.Name)
	say(poolDrift, float64(len(p.Drift)), p.Name, fleet.SurfaceGitHub)
}

func asNumber(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
