package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
)

// Member is a hub that uses the database.
type Member struct {
	Build, Address string
	// Features are what it does for controllers.
	Features []string
}

// tolerated is by how much clocks may differ that a time service keeps.
const tolerated = 2 * time.Second

// members says how the hubs of a database agree. One alone agrees with itself.
func members(all []Member, ahead time.Duration) []hubv1.Finding {
	if len(all) == 0 {
		return nil
	}
	var features []string
	for _, m := range all {
		features = append(features, m.Features...)
	}
	slices.Sort(features)
	features = slices.Compact(features)
	var wrong []hubv1.Finding
	for _, m := range all {
		lacks := slices.DeleteFunc(slices.Clone(features), func(f string) bool { return slices.Contains(m.Features, f) })
		if len(lacks) > 0 {
			wrong = append(wrong, finding(hubv1.FindingMembersBuilds, hubv1.SeverityWarn, m.Address,
				fmt.Sprintf("the hub of build %s cannot do %s, so no hub does", orNone(m.Build), strings.Join(lacks, ", "))))
		}
	}
	if ahead.Abs() > tolerated {
		wrong = append(wrong, finding(hubv1.FindingMembersClock, hubv1.SeverityWarn, "",
			fmt.Sprintf("the hub's clock is %s %s that of the database", ahead.Abs().Round(time.Second), aheadOrBehind(ahead))))
	}
	return orPass(wrong, hubv1.FindingMembers, "", count.Of(len(all), "hub")+" on the database")
}

func aheadOrBehind(ahead time.Duration) string {
	if ahead > 0 {
		return "ahead of"
	}
	return "behind"
}
