package agent

import (
	"slices"
	"strings"
)

// defaultPath is the command's PATH where the Pod has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// processMark is set by a node that runs Pods as plain processes, which finds
// by it what a Pod left behind. It is the only CLOOP_ variable of the Pod that a
// command sees.
const processMark = "CLOOP_PROCESS_MARK"

// environment is what the command sees: the Pod's own variables, without the
// runner's, and what describes the run.
func (j *job) environment(commit string) []string {
	set := [][2]string{
		{"HOME", j.options.Home},
		{"TMPDIR", j.options.Tmp},
		{"PWD", j.ready.dir},
		{"CI", "true"},
		{"CLOOP_RUN_ID", j.RunID},
		{"CLOOP_PROJECT", j.Project},
		{"CLOOP_COMMIT", commit},
	}
	for _, preset := range [][2]string{{"PATH", defaultPath}, {"LANG", "C.UTF-8"}} {
		if lookup(j.options.Environ, preset[0]) == "" {
			set = append(set, preset)
		}
	}
	var out []string
	for _, entry := range j.options.Environ {
		name, _, found := strings.Cut(entry, "=")
		ours := strings.HasPrefix(name, "CLOOP_") && name != processMark
		if !found || name == "" || ours || name == "OLDPWD" || slices.ContainsFunc(set, func(pair [2]string) bool { return pair[0] == name }) {
			continue
		}
		out = append(out, entry)
	}
	for _, pair := range set {
		out = append(out, pair[0]+"="+pair[1])
	}
	return out
}

// lookup is the value of a variable; of several the last counts.
func lookup(environment []string, name string) string {
	for _, entry := range slices.Backward(environment) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
