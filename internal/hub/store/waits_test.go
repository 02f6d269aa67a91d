package store_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// What a controller says keeps runners from starting is what a run that waits
// says, in its words and of its kind.
func TestARunQuotesWhatItsControllerSays(t *testing.T) { both(t, testARunQuotesWhatItsControllerSays) }

func testARunQuotesWhatItsControllerSays(t *testing.T) {
	w := newWorld(t, 2)
	w.arrive(t, "c-0")
	run := w.run(t)
	for _, test := range []struct {
		refusal hubv1.Refusal
		want    string
	}{
		{hubv1.Refusal{Message: "quota\nexceeded"}, `its controller cannot start runners: quota\nexceeded`},
		{hubv1.Refusal{Message: "storage class fast is not there", Kind: hubv1.RefusalStorage}, "its controller has no volume for a runner: storage class fast is not there"},
		{hubv1.Refusal{Message: "storage class fast is not there", Kind: hubv1.RefusalPlacement}, "that do not come up: storage class fast is not there"},
		{hubv1.Refusal{}, "and is to start one"},
	} {
		check(t, w.s.SetRefusal(background, w.credential, test.refusal))
		if got := w.get(t, run.ID).Reason; !strings.Contains(got, test.want) {
			t.Errorf("with %+v it waits because %q", test.refusal, got)
		}
	}
}
