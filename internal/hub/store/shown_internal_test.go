package store

import (
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

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
