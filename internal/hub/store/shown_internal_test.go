package store

import (
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// No database is asked, so this is about both databases.
func TestWhatIsReportedOfAPodHasNoLineEnd(t *testing.T) {
	code := int32(137)
	request := hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: &code, Message: "first\nlast\n"}
	if got := goneText(request); got != `the runner's Pod ended: OOMKilled (exit code 137): first\nlast` {
		t.Errorf("it is %q", got)
	}
	if got := shown(" x\n\n", 10); got != "x" {
		t.Errorf("it is %q", got)
	}
}
