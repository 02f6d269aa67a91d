package agent

import "testing"

// ProjectForTest is a repository on a Git server: its URL, the file with the
// server's certificate, and the commit of its branch main.
func ProjectForTest(t testing.TB) (url, caFile, commit string) {
	r := testRepository(t)
	return r.url, r.caFile, r.main
}

// OptionsForTest are a runner's options in a directory of the test, with the
// token in the file that they name.
func OptionsForTest(t testing.TB) Options { return testOptions(t) }
