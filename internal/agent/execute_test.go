package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/process"
)

func code(n int32) *int32 { return &n }

func TestHowARunEnds(t *testing.T) {
	for name, test := range map[string]struct {
		argv   []string
		code   *int32
		signal string
		errors string
		log    string
	}{
		"success":                   {argv: []string{"sh", "-c", "echo hello; echo err >&2"}, code: code(0), log: "hello\nerr\n"},
		"failure":                   {argv: []string{"sh", "-c", "exit 3"}, code: code(3)},
		"signal":                    {argv: []string{"sh", "-c", "echo before; kill -9 $$"}, signal: "killed", log: "before\n"},
		"from the repository":       {argv: []string{"./hello"}, code: code(0), log: "from the repository\n"},
		"not found":                 {argv: []string{"no-such-command"}, code: code(127), errors: "no-such-command: command not found"},
		"no such path":              {argv: []string{"./missing"}, code: code(127), errors: "./missing: command not found"},
		"not executable":            {argv: []string{"./plain"}, code: code(126), errors: "permission denied"},
		"a directory":               {argv: []string{"./a"}, code: code(126), errors: "permission denied"},
		"without its interpreter":   {argv: []string{"./dangling"}, code: code(127), errors: "its interpreter does not exist"},
		"bytes that are not text":   {argv: []string{"printf", `\377\000\001`}, code: code(0), log: "\xff\x00\x01"},
		"an argument of any bytes":  {argv: []string{"printf", "%s", "\xff\"'\n"}, code: code(0), log: "\xff\"'\n"},
		"a grandchild is left":      {argv: []string{"sh", "-c", "sleep 60 >/dev/null 2>&1 & echo done"}, code: code(0), log: "done\n"},
		"the end of a pipe is late": {argv: []string{"sh", "-c", "(sleep 0.2; echo late) & echo early"}, code: code(0), log: "early\nlate\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFakeHub()
			l := begin(t, h)
			l.command(test.argv...)
			if err := l.end(); err != nil {
				t.Errorf("the runner failed although the run was reported: %v", err)
			}
			result := h.result
			switch {
			case result == nil:
				t.Fatal("there is no result")
			case (result.ExitCode == nil) != (test.code == nil) || test.code != nil && *result.ExitCode != *test.code:
				t.Errorf("exit code %v, want %v", result.ExitCode, test.code)
			case result.Signal != test.signal:
				t.Errorf("signal %q, want %q", result.Signal, test.signal)
			case test.errors == "" && result.Error != "" || !strings.Contains(result.Error, test.errors):
				t.Errorf("error %q, want %q", result.Error, test.errors)
			case result.Cancelled:
				t.Error("nobody cancelled the run")
			}
			if got := h.logText(); got != test.log {
				t.Errorf("log %q, want %q", got, test.log)
			}
			if started := h.started != nil; started != (test.errors == "") {
				t.Errorf("the hub was told of a start: %v", started)
			}
			if h.bye == "" || h.enrolled != 1 {
				t.Errorf("bye %q, enrolled %d times", h.bye, h.enrolled)
			}
			if got := l.terminationLog(); !strings.Contains(got, `"outcome":"reported"`) || strings.Count(got, "\n") != 1 || !strings.Contains(got, `"run":"run1"`) {
				t.Errorf("termination report %q", got)
			}
		})
	}
}

func TestAGrandchildThatHoldsTheOutputIsKilled(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h, func(o *Options) { o.DrainGrace = 50 * time.Millisecond })
	file := filepath.Join(t.TempDir(), "pid")
	l.run(`setsid sh -c 'trap "" INT TERM HUP; echo $$ >` + file + `; sleep 600' & while [ ! -s ` + file + ` ]; do sleep 0.01; done; echo over; exit 4`)
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	if h.result.ExitCode == nil || *h.result.ExitCode != 4 || h.logText() != "over\n" {
		t.Errorf("result %+v, log %q", h.result, h.logText())
	}
	if held := pidIn(t, file); held.Alive() {
		t.Error("the grandchild is still alive")
	}
}

func pidIn(t *testing.T, file string) process.Identity {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, digit := range strings.TrimSpace(string(data)) {
		pid = pid*10 + int(digit-'0')
	}
	identity, err := process.Identify(pid)
	if err != nil {
		return process.Identity{}
	}
	return identity
}

func TestWhatTheCommandSees(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h, func(o *Options) {
		o.Environ = append(o.Environ, "HOME=/somebody", "OLDPWD=/", "LANG=de_DE.UTF-8", "CLOOP_PROCESS_MARK=m", "CLOOP_OTHER=x", "broken")
	})
	l.run(`env | sort | grep -v -e ^_= -e ^SHLVL=; pwd; git rev-parse HEAD; git status --porcelain; git config remote.origin.url; cat /proc/$PPID/environ | tr '\0' '\n'`)
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	o, r := l.options, testRepository(t)
	dir := filepath.Join(o.Workspace, "src")
	want := strings.Join([]string{
		"CI=true", "CLOOP_COMMIT=" + r.main, "CLOOP_PROCESS_MARK=m", "CLOOP_PROJECT=demo", "CLOOP_RUN_ID=run1",
		"FROM_POD=yes", "HOME=" + o.Home, "LANG=de_DE.UTF-8", "PATH=" + os.Getenv("PATH"), "PWD=" + dir, "TMPDIR=" + o.Tmp,
		dir, r.main, r.url, "CLOOP_PROCESS_MARK=m", "",
	}, "\n")
	if got := h.logText(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Credentials are nowhere that a run, a person or Kubernetes can look.
func TestCredentialsAreNowhere(t *testing.T) {
	t.Parallel()
	h := newFakeHub()
	l := begin(t, h)
	// The script is an argument itself, so it must not hold what it looks for.
	l.run(`
		C=Can; C=${C}ary
		for p in /proc/[0-9]*; do
			{ tr '\0' '\n' < $p/cmdline; tr '\0' '\n' < $p/environ; } 2>/dev/null
		done > seen
		grep -a Session$C seen && echo FOUND in processes
		grep -ral Session$C "$HOME" "$TMPDIR" "$PWD" && echo FOUND in files
		printf 'say %s' cloop_ses1_Sess; sleep 0.1; printf "ion${C}987654321 and cloop_run1_Token${C}0123456789!\n"
		exit 9`)
	if err := l.end(); err != nil {
		t.Fatal(err)
	}
	if got := h.logText(); got != "say [redacted] and [redacted]!\n" {
		t.Errorf("log %q", got)
	}
	for place, text := range map[string]string{
		"termination report": l.terminationLog(), "agent's log": l.logged.String(), "goodbye": h.bye, "result": h.result.Error,
	} {
		if strings.Contains(text, "Canary") {
			t.Errorf("a credential is in the %s: %s", place, text)
		}
	}
}
