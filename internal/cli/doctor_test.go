package cli_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

func diagnosis(findings ...hubv1.Finding) hubv1.Diagnosis {
	d := hubv1.Diagnosis{Severity: hubv1.SeverityPass, CheckedAt: time.Now(), Findings: findings}
	if len(findings) > 0 {
		d.Severity = findings[0].Severity
	}
	return d
}

func TestDoctorExitCodes(t *testing.T) {
	warn := hubv1.Finding{ID: hubv1.FindingPoolsProtocol, Severity: hubv1.SeverityWarn, About: "gpu", Found: "old", Meaning: "it is old", Remedy: "upgrade it", Command: "upgrade"}
	fail := hubv1.Finding{ID: hubv1.FindingPoolsContact, Severity: hubv1.SeverityFail, About: "gpu", Found: "away", Meaning: "it is away", Remedy: "look", Command: "show gpu"}
	for name, c := range map[string]struct {
		d      hubv1.Diagnosis
		args   []string
		code   int
		stderr string
	}{
		"well":             {diagnosis(), nil, 0, ""},
		"a warning":        {diagnosis(warn), nil, 0, ""},
		"a strict warning": {diagnosis(warn), []string{"--fail-on", "warn"}, 1, ""},
		"strict and well":  {diagnosis(), []string{"--fail-on", "warn"}, 0, ""},
		"a failure":        {diagnosis(fail, warn), nil, 1, ""},
		"as JSON":          {diagnosis(fail), []string{"-o", "json"}, 1, ""},
		"no such severity": {diagnosis(), []string{"--fail-on", "pass"}, 2, "there is only warn and fail"},
	} {
		t.Run(name, func(t *testing.T) {
			stubHub(t, map[string]any{"GET /api/v1/doctor": c.d})
			got := cloop(t, append([]string{"hub", "doctor"}, c.args...)...)
			if got.code != c.code || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("exit code %d, want %d: %s", got.code, c.code, got.stderr)
			}
		})
	}
	stubHub(t, nil)
	if got := cloop(t, "hub", "doctor"); got.code != 2 {
		t.Errorf("a hub without a doctor: exit code %d: %s", got.code, got.stderr)
	}
}

func TestDoctorSaysWhatToDo(t *testing.T) {
	fail := func(pool string) hubv1.Finding {
		return hubv1.Finding{ID: hubv1.FindingPoolsContact, Severity: hubv1.SeverityFail, About: pool, Found: "1 run waits", Meaning: "nobody is there", Remedy: "look", Command: "show " + pool}
	}
	stubHub(t, map[string]any{"GET /api/v1/doctor": diagnosis(fail("cpu"), fail("gpu"), hubv1.Finding{ID: hubv1.FindingTLS, Severity: hubv1.SeverityPass, Found: "valid"})})
	cloop(t, "hub", "doctor").want(t, 1, ""+
		"SEVERITY   FINDING                   ABOUT   FOUND\n"+
		"fail       executors.pools.contact   cpu     1 run waits\n"+
		"fail       executors.pools.contact   gpu     1 run waits\n"+
		"pass       tls                       -       valid\n"+
		"\nexecutors.pools.contact: nobody is there.\n"+
		"  What to do: look.\n"+
		"  Command: show cpu\n"+
		"  Command: show gpu\n", "")
}

func TestPoolsShowWhatTheDoctorFinds(t *testing.T) {
	pool := gpu()
	pool.Findings = []hubv1.Finding{
		{ID: hubv1.FindingPoolsContact, Severity: hubv1.SeverityFail, About: "gpu", Found: "5 runs wait", Remedy: "look", Command: "show gpu"},
		{ID: hubv1.FindingPoolsProtocol, Severity: hubv1.SeverityWarn, About: "gpu", Found: "old", Remedy: "upgrade", Command: "crd"},
		{ID: hubv1.FindingPoolsProtocol, Severity: hubv1.SeverityWarn, About: "gpu", Found: "older", Remedy: "upgrade", Command: "crd"},
	}
	stubHub(t, map[string]any{
		"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{pool}}, "GET /api/v1/pools/gpu": pool,
		"GET /api/v1/pools/p1/runners": map[string]any{"items": []hubv1.PoolRunner{}},
	})
	if got := cloop(t, "executor", "pool", "list"); !strings.HasSuffix(got.stdout, "fail:contact,warn:protocol\n") {
		t.Errorf("listed as\n%s", got.stdout)
	}
	got := cloop(t, "executor", "pool", "show", "gpu")
	if want := "\nfail executors.pools.contact: 5 runs wait.\n  What to do: look.\n  Command: show gpu\n"; !strings.Contains(got.stdout, want) {
		t.Errorf("shown as\n%s", got.stdout)
	}
}
