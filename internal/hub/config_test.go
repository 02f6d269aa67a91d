package hub_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/store"
)

const wholeConfig = `names: [hub.example.com]
sync:
- name: fleet
  url: https://git.example.com/fleet.git
  ref: {branch: main}
  path: ./hub
  interval: 30s
  caFile: ca.pem
  username: bot
  passwordFile: /etc/hub/password
  allow: {names: ["team-*"], maxRunners: 10}
  pruneLimit: {percent: 0}
- name: ssh
  url: ssh://git@git.example.com:2222/fleet.git
  identityFile: key
  passphraseFile: /etc/hub/passphrase
  knownHostsFile: hosts
  ref: {semver: ">=1.0.0 <2.0.0"}
  verify: {mode: TagAndHEAD, signersFile: signers}
retention: {logs: 36h, runs: 10d, runsPerProject: 0, tokens: 48h, audit: forever}
projects: {caFile: git.pem, hosts: ["*.example.com"]}
limits: {watches: 7, answers: {perUser: 2, all: 9}, waiting: {perUser: 5, perPool: 50}}
`

func TestTheConfiguration(t *testing.T) {
	config, err := hub.ParseConfig("/etc/hub/config.yaml", []byte(wholeConfig))
	check(t, err)
	got := config.Syncs[0]
	if got.Path != "hub" || got.Interval != 30*time.Second || got.CAFile != "/etc/hub/ca.pem" || got.PasswordFile != "/etc/hub/password" ||
		got.Ref.Branch != "main" || got.Allow.MaxRunners != 10 || config.Names[0] != "hub.example.com" {
		t.Fatalf("parsed %+v", got)
	}
	if limit := *got.PruneLimit; limit != (prunelimit.Limit{Count: 5}) || *config.Syncs[1].PruneLimit != prunelimit.Default {
		t.Fatalf("the limits are %+v and %+v", limit, config.Syncs[1].PruneLimit)
	}
	if ssh := config.Syncs[1]; ssh.IdentityFile != "/etc/hub/key" || ssh.PassphraseFile != "/etc/hub/passphrase" || ssh.KnownHostsFile != "/etc/hub/hosts" ||
		ssh.Ref.Semver != ">=1.0.0 <2.0.0" || ssh.Verify.SignersFile != "/etc/hub/signers" {
		t.Fatalf("parsed %+v", ssh)
	}
	want := store.Retention{Logs: 36 * time.Hour, Runs: 10 * 24 * time.Hour, RunsPerProject: -1, Tokens: 48 * time.Hour, Audit: -1}
	if config.Retention != want {
		t.Fatalf("parsed %+v, want %+v", config.Retention, want)
	}
	if want := (store.Waiting{PerUser: 5, PerPool: 50}); config.Waiting != want || config.Rates.Watches != 7 || config.Rates.Answers != (api.Answers{PerUser: 2, All: 9}) {
		t.Fatalf("parsed %+v, want %+v, and %d watches and %+v", config.Waiting, want, config.Rates.Watches, config.Rates.Answers)
	}
	if got := config.Projects; got.CAFile != "/etc/hub/git.pem" || len(got.Hosts) != 1 || got.Hosts[0] != "*.example.com" {
		t.Fatalf("parsed %+v", got)
	}
	if empty, err := hub.ParseConfig("x", nil); err != nil || len(empty.Syncs) != 0 {
		t.Fatalf("an empty file: %+v, %v", empty, err)
	}
}

func TestEveryProblemOfAConfigurationIsNamed(t *testing.T) {
	_, err := hub.ParseConfig("hub.yaml", []byte(`sync:
- name: Not Legal
  url: http://git.example.com/x
  interval: soon
- name: a
  url: https://user:pass@git.example.com/x
  ref: {commit: abc}
  interval: 1ms
  username: bot
  allow: {names: ["["], maxRunners: -1}
- name: a
  url: https://git.example.com/x
- {name: b, url: "ssh://git:pass@git.example.com/x"}
- {name: c, url: "ssh://git@git.example.com/x", passphraseFile: x}
- {name: d, url: "https://git.example.com/x", identityFile: x, bearerFile: x, passwordFile: x, ref: {semver: newest}, verify: {mode: tag}}
- {name: e, url: "https://git.example.com/x", verify: {mode: Tag, signersFile: x}, pruneLimit: {count: -1, percent: 101}}
retention: {logs: soon, runs: 99999d, runners: 3h, tokens: 1h, audit: -5d, runsPerProject: -1}
projects: {hosts: ["git["]}
`))
	for _, want := range []string{"lowercase", "https", `"soon"`, "40 hexadecimal", "at least 1s", "passwordFile", "no pattern", "negative", "carries a password", "an ssh url needs identityFile and knownHostsFile", "passphraseFile needs identityFile", "are for an ssh url", "keep one", "\"newest\" is no range", "verify.mode must be", "verify needs signersFile", "verify.mode Tag needs ref.tag or ref.semver", "another sync", "hub.yaml", "pruneLimit must have",
		`retention.logs: "soon"`, `retention.runs: "99999d"`, "retention.runners: 3h is less", "retention.tokens: 1h", "retention.audit", "retention.runsPerProject", `projects.hosts: "git[" is no pattern`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "pass@") {
		t.Error("the problem quotes a password")
	}
	for _, bad := range []string{"sync: [{nam: x}]", "sync: {", "a: 1\n---\nb: 2"} {
		if _, err := hub.ParseConfig("hub.yaml", []byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(wholeConfig))
	f.Add([]byte("sync: [{name: a, url: \"https://x\", interval: 0s}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := hub.ParseConfig("hub.yaml", data)
		if err != nil {
			return
		}
		for _, sync := range config.Syncs {
			url := strings.ToLower(sync.URL)
			if !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "ssh://") || sync.Interval < time.Second || sync.Path == "" {
				t.Errorf("accepted %+v", sync)
			}
		}
	})
}
