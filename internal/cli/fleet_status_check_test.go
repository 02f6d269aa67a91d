package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/cli"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/forgetest"
)

const statusRemote = "https://git.example.com/platform/fleet.git"

// threeCommits is a repository on a forge; it is entered, and no CI system is
// around.
func threeCommits(t *testing.T, remote string) (commits [3]string) {
	t.Helper()
	for _, name := range []string{"GITLAB_CI", "GITEA_ACTIONS", "FORGEJO_ACTIONS", "GITHUB_ACTIONS", "CI_JOB_URL", "GITHUB_RUN_ID", "CI_COMMIT_BRANCH", "CLOOP_FORGE_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	dir := fleetRepository(t)
	gitIn(t, dir, "remote", "add", "origin", remote)
	for i := range commits {
		if i > 0 {
			gitIn(t, dir, "commit", "--quiet", "--allow-empty", "--message=Go on")
		}
		commits[i] = gitIn(t, dir, "rev-parse", "HEAD")
	}
	return commits
}

// syncOf is a PoolSync of the repository that has seen and applied commits.
func syncOf(remote, attempted, applied string, ready metav1.ConditionStatus, reason v1alpha1.Reason, message string) v1alpha1.PoolSync {
	sync := poolSync(ready, message)
	sync.Spec.Source.Git.URL = remote
	sync.Status.Conditions[0].Reason = string(reason)
	sync.Status.LastAttemptedRevision, sync.Status.LastAppliedRevision = attempted, applied
	if applied != "" {
		sync.Status.LastAppliedRevision = "main@sha1:" + applied
	}
	return sync
}

type shownReport struct {
	Revision string
	Statuses []struct {
		Context, State, Description, Link string
		Posted, Failed                    bool
	}
}

func reportOf(t *testing.T, r result) shownReport {
	t.Helper()
	var report shownReport
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("exit code %d: %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	return report
}

func TestWhatHasBecomeOfACommit(t *testing.T) {
	noHub(t)
	commits := threeCommits(t, statusRemote)
	first, second, third := commits[0], commits[1], commits[2]
	ready, failed, unknown := metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	drifted := syncOf(statusRemote, second, second, ready, v1alpha1.ReasonReconciliationSucceeded, "")
	drifted.Status.Drift = []v1alpha1.DriftEntry{{Name: "gpu"}}
	suspended := syncOf(statusRemote, first, first, ready, v1alpha1.ReasonSuspended, "")
	suspended.Spec.Suspend = true
	elsewhere := syncOf("https://git.example.com/platform/other.git", second, second, ready, "", "")
	bySSH := syncOf("ssh://git@git.example.com/platform/fleet", second, second, ready, "", "")
	for name, c := range map[string]struct {
		syncs       []v1alpha1.PoolSync
		state, text string
		code        int
	}{
		"applied":           {[]v1alpha1.PoolSync{syncOf(statusRemote, second, second, ready, "", "")}, "success", "applied", 0},
		"applied over ssh":  {[]v1alpha1.PoolSync{bySSH}, "success", "applied", 0},
		"with a later one":  {[]v1alpha1.PoolSync{syncOf(statusRemote, third, third, ready, "", "")}, "success", "applied with " + third[:12] + ", which follows it", 0},
		"not seen":          {[]v1alpha1.PoolSync{syncOf(statusRemote, first, first, ready, "", "")}, "pending", "not seen yet: " + first[:12] + " is applied", 0},
		"the first of all":  {[]v1alpha1.PoolSync{syncOf(statusRemote, "", "", unknown, "", "")}, "pending", "not seen yet: nothing was applied so far", 0},
		"on its way":        {[]v1alpha1.PoolSync{syncOf(statusRemote, second, first, unknown, v1alpha1.ReasonProgressing, "")}, "pending", "it is being applied", 0},
		"not ready":         {[]v1alpha1.PoolSync{syncOf(statusRemote, second, second, unknown, v1alpha1.ReasonProgressing, "")}, "pending", "applied, not ready yet", 0},
		"refused":           {[]v1alpha1.PoolSync{syncOf(statusRemote, second, first, failed, v1alpha1.ReasonBuildFailed, "no base")}, "failure", "not applied: BuildFailed: no base", 1},
		"a later one fails": {[]v1alpha1.PoolSync{syncOf(statusRemote, third, first, failed, v1alpha1.ReasonBuildFailed, "no base")}, "failure", "not applied, nor is " + third[:12] + ", which follows it: BuildFailed: no base", 1},
		"half applied":      {[]v1alpha1.PoolSync{syncOf(statusRemote, second, second, failed, v1alpha1.ReasonPruneFailed, "forbidden")}, "failure", "applied, and then: PruneFailed: forbidden", 1},
		"Git is away":       {[]v1alpha1.PoolSync{syncOf(statusRemote, first, first, failed, v1alpha1.ReasonSourceUnavailable, "no route")}, "error", "not seen yet: SourceUnavailable: no route", 2},
		"Git is away later": {[]v1alpha1.PoolSync{syncOf(statusRemote, second, second, failed, v1alpha1.ReasonSourceUnavailable, "no route")}, "success", "applied", 0},
		"drift":             {[]v1alpha1.PoolSync{drifted}, "failure", "applied, but 1 field differs from it now", 1},
		"suspended":         {[]v1alpha1.PoolSync{suspended}, "pending", "not applied: the sync is suspended", 0},
		"of another":        {[]v1alpha1.PoolSync{elsewhere}, "error", "no sync follows this repository there", 2},
		"two, one behind": {[]v1alpha1.PoolSync{syncOf(statusRemote, second, second, ready, "", ""), syncOf(statusRemote, first, first, ready, "", ""), elsewhere},
			"pending", "cloop-fleet/fleet: not seen yet: " + first[:12] + " is applied", 0},
		"two": {[]v1alpha1.PoolSync{bySSH, syncOf(statusRemote, second, second, ready, "", "")}, "success", "2 syncs have applied it", 0},
	} {
		t.Run(name, func(t *testing.T) {
			(&stubCluster{syncs: c.syncs}).serve(t)
			got := cloop(t, "fleet", "status-check", "--revision", second, "--forge", "gitea", "--dry-run", "-o", "json")
			report := reportOf(t, got)
			if len(report.Statuses) != 1 {
				t.Fatalf("the report is %+v", report)
			}
			s := report.Statuses[0]
			if s.Context != "cloop/eu" || s.State != c.state || s.Description != c.text || got.code != c.code || s.Posted {
				t.Errorf("exit code %d, %+v; want %d, %s, %q: %s", got.code, s, c.code, c.state, c.text, got.stderr)
			}
			if !strings.HasPrefix(s.Link, "https://git.example.com/platform/fleet/src/commit/"+second) {
				t.Errorf("the link is %s", s.Link)
			}
		})
	}
}

func TestStatusesArePostedToEachForge(t *testing.T) {
	for _, kind := range []forge.Kind{forge.GitHub, forge.GitLab, forge.Gitea} {
		t.Run(string(kind), func(t *testing.T) {
			f := forgetest.Serve(t, kind)
			commits := threeCommits(t, f.Remote())
			sync := hubSync(hubv1.SyncReady)
			sync.Repository, sync.LastAppliedRevision, sync.LastAttemptedRevision = f.Remote(), commits[2], commits[2]
			stubHub(t, map[string]any{"GET /api/v1/syncs": hubv1.SyncList{Items: []hubv1.Sync{sync}}})
			cluster := &stubCluster{syncs: []v1alpha1.PoolSync{syncOf(f.Remote(), commits[2], commits[1], metav1.ConditionFalse, v1alpha1.ReasonBuildFailed, strings.Repeat("too long ", 60))}}
			cluster.serve(t)
			t.Setenv("CI_JOB_URL", "https://ci.example.com/7")
			args := []string{
				"fleet", "status-check", "--cluster", "eu", "--forge", string(kind), "-o", "json", "--timeout", "10s",
				"--forge-ca-file", writeFile(t, string(f.CABundle())), "--forge-token-file", writeFile(t, forgetest.Token+"\n"),
			}
			got := cloop(t, args...)
			if got.code != 1 || len(f.Posted()) != 2 || len(f.Malformed()) > 0 {
				t.Fatalf("exit code %d, posted %+v, malformed %v: %s%s", got.code, f.Posted(), f.Malformed(), got.stdout, got.stderr)
			}
			for i, want := range []string{"cloop/hub success", "cloop/eu fail"} {
				p := f.Posted()[i]
				if !strings.HasPrefix(p.Context+" "+p.State, want) || p.Revision != commits[2] || p.Link != "https://ci.example.com/7" {
					t.Errorf("posted %+v, want %s", p, want)
				}
			}
			// Now the token comes on standard input.
			again := reportOf(t, cloopReading(t, forgetest.Token, append(args[:len(args)-1], "-")...))
			if len(f.Posted()) != 2 || again.Statuses[0].Posted || again.Statuses[1].Posted {
				t.Errorf("posted again: %+v", again)
			}
			if strings.Contains(got.stdout+got.stderr, forgetest.Token) {
				t.Error("the token is shown")
			}
		})
	}
}

func TestWaitingForACommit(t *testing.T) {
	t.Cleanup(cli.SetPollEvery(time.Millisecond))
	f := forgetest.Serve(t, forge.GitHub)
	commits := threeCommits(t, f.Remote())
	sync := hubSync(hubv1.SyncReady)
	sync.Repository, sync.LastAppliedRevision = f.Remote(), commits[1]
	var looked atomic.Int32
	stubHub(t, map[string]any{"GET /api/v1/syncs": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := sync
		if looked.Add(1) > 2 {
			now.LastAppliedRevision = commits[2]
		}
		send(w, hubv1.SyncList{Items: []hubv1.Sync{now}})
	})})
	t.Setenv("KUBECONFIG", writeFile(t, ""))
	args := []string{"fleet", "status-check", "--wait", "--forge", "github",
		"--forge-ca-file", writeFile(t, string(f.CABundle())), "--forge-token-file", writeFile(t, forgetest.Token)}
	got := cloop(t, args...)
	if got.code != 0 || !strings.Contains(got.stdout, "cloop/hub   success   yes      applied") {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if p := f.Posted(); len(p) != 2 || p[0].State != "pending" || p[1].State != "success" {
		t.Errorf("posted %+v", p)
	}

	sync.LastAppliedRevision = commits[0]
	looked.Store(-1 << 30)
	for timeout := 50 * time.Millisecond; ; timeout *= 10 {
		got := cloop(t, append(args, "--timeout", timeout.String())...)
		if got.code == 1 && strings.Contains(got.stdout, "pending") {
			break
		}
		if timeout >= enoughToLook {
			t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
		}
	}
}

// The time is the whole time, whoever does not answer; the table is shown, and why
// is said once.
func TestAForgeThatDoesNotAnswerInTime(t *testing.T) {
	f := forgetest.Serve(t, forge.GitHub)
	commits := threeCommits(t, f.Remote())
	noHub(t)
	(&stubCluster{syncs: []v1alpha1.PoolSync{syncOf(f.Remote(), commits[2], commits[2], metav1.ConditionTrue, "", "")}}).serve(t)
	ca, token := writeFile(t, string(f.CABundle())), writeFile(t, forgetest.Token)
	for timeout := 300 * time.Millisecond; ; timeout *= 10 {
		f.Answer(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		begun := time.Now()
		got := cloop(t, "fleet", "status-check", "--forge", "github", "--timeout", timeout.String(), "--forge-ca-file", ca, "--forge-token-file", token)
		if took := time.Since(begun); took > timeout+graceOfTests {
			t.Errorf("it took %s", took)
		}
		if got.code == 2 && strings.Contains(got.stdout, "cloop/eu   success   failed") && strings.Count(got.stderr, "not all have answered within "+timeout.String()) == 1 {
			return
		}
		if timeout >= enoughToLook {
			t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
		}
	}
}

// enoughToLook is long enough for whatever answers, also on a slow machine: what is
// asked with less time, so that the test is quick, is asked again with more.
const enoughToLook = time.Second

// graceOfTests is what a slow machine may take beyond the timeout.
const graceOfTests = 30 * time.Second

func TestAStatusCheckThatCannotBeMade(t *testing.T) {
	f := forgetest.Serve(t, forge.GitHub)
	commits := threeCommits(t, f.Remote())
	noHub(t)
	(&stubCluster{syncs: []v1alpha1.PoolSync{syncOf(f.Remote(), commits[2], commits[2], metav1.ConditionTrue, "", "")}}).serve(t)
	ca := writeFile(t, string(f.CABundle()))
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no token":             {[]string{"--forge", "github"}, "name a file with --forge-token-file"},
		"an empty token":       {[]string{"--forge", "github", "--forge-token-file", writeFile(t, "\n")}, "is empty"},
		"a token of two lines": {[]string{"--forge", "github", "--forge-token-file", writeFile(t, "of-another\nof-another\n")}, "has several lines: leave only the one with the token"},
		"a token with a NUL":   {[]string{"--forge", "github", "--forge-token-file", writeFile(t, "of-another\x00of-another")}, "has a control character in it"},
		"an unknown forge":     {[]string{"--dry-run"}, "name it, one of github, gitlab and gitea with --forge"},
		"no such forge":        {[]string{"--dry-run", "--forge", "svn"}, `there is no forge "svn"`},
		"no such revision":     {[]string{"--dry-run", "--forge", "github", "--revision", "nowhere"}, "name one that is there with --revision"},
		"no such API":          {[]string{"--dry-run", "--forge", "github", "--forge-api", "http://api.example.com"}, "https URL"},
		"no repository":        {[]string{"--dry-run", "--forge", "github", "--remote", "/srv/fleet.git"}, "no https or ssh URL"},
		"another's token": {[]string{"--forge", "github", "--forge-ca-file", ca, "--forge-token-file", writeFile(t, "of-another"), "--wait"},
			"put a live one into its file"},
	} {
		got := cloop(t, append([]string{"fleet", "status-check"}, c.args...)...)
		if got.code != 2 || !strings.Contains(got.stderr, c.says) || strings.Contains(got.stdout+got.stderr, "of-another") {
			t.Errorf("%s: exit code %d: %s%s", name, got.code, got.stdout, got.stderr)
		}
	}
	if len(f.Posted()) > 0 {
		t.Errorf("posted %+v", f.Posted())
	}
	// Of a forge that did not answer nobody knows what it shows.
	unasked := []string{"fleet", "status-check", "--forge", "github", "--forge-ca-file", ca, "--forge-token-file", writeFile(t, "of-another")}
	if got := cloop(t, unasked...); got.code != 2 || !strings.Contains(got.stdout, " failed ") || strings.Contains(got.stdout, "no change") {
		t.Errorf("exit code %d: %s", got.code, got.stdout)
	}
	if got := reportOf(t, cloop(t, append(unasked, "-o", "json")...)); len(got.Statuses) != 1 || got.Statuses[0].Posted || !got.Statuses[0].Failed {
		t.Errorf("report %+v", got)
	}

	// A cluster that cannot be read gets an error, whose reason stays in the job.
	t.Setenv("KUBECONFIG", writeFile(t, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: eu, context: {cluster: c}}]
`))
	got := cloop(t, "fleet", "status-check", "--cluster", "eu", "--forge", "github", "--forge-ca-file", ca, "--forge-token-file", writeFile(t, forgetest.Token))
	if p := f.Posted(); got.code != 2 || len(p) != 1 || p[0].State != "error" || strings.Contains(p[0].Description, "127.0.0.1") || !strings.Contains(got.stderr, "127.0.0.1:1") {
		t.Errorf("exit code %d, posted %+v: %s", got.code, p, got.stderr)
	}

	// What is wrong with the token is said once, however many clusters there are.
	t.Setenv("KUBECONFIG", writeFile(t, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: eu, context: {cluster: c}}, {name: us, context: {cluster: c}}]
`))
	got = cloop(t, "fleet", "status-check", "--cluster", "eu", "--cluster", "us", "--forge", "github", "--forge-ca-file", ca, "--forge-token-file", writeFile(t, "of-another"))
	if got.code != 2 || strings.Count(got.stderr, "put a live one into its file") != 1 || strings.Count(got.stdout, "failed") != 2 {
		t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
}
