package doctor

import (
	"fmt"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// Access is who can do everything at the hub.
type Access struct {
	// First are the live tokens that nobody asked the hub's API for: of the first
	// start, and of resets at the hub's machine.
	First []hubv1.Token
	// Others are the users with role:admin for the whole hub and a token of their
	// own to do everything with, that does not end within Lasting, by name.
	Others []string
}

// Lasting is how long a token has to be good for, so that its user can do without
// another: who goes by the finding is not to be locked out soon after.
const Lasting = 7 * 24 * time.Hour

// othersNamed bounds how many others a finding names.
const othersNamed = 3

func access(a Access) []hubv1.Finding {
	var wrong []hubv1.Finding
	for _, t := range a.First {
		var others []string
		for _, name := range a.Others {
			if name != t.User {
				others = append(others, "user:"+name)
			}
		}
		if len(others) == 0 {
			continue
		}
		if n := len(others) - othersNamed; n > 0 {
			others = append(others[:othersNamed], fmt.Sprintf("%d more", n))
		}
		used := "was never used"
		if t.LastUsedAt != nil {
			used = "was last used at " + t.LastUsedAt.UTC().Format(time.RFC3339)
		}
		wrong = append(wrong, finding(hubv1.FindingAccessBootstrap, hubv1.SeverityWarn, t.ID,
			fmt.Sprintf("the token of user:%s, made at %s, is live and %s, and %s may do everything too",
				t.User, t.CreatedAt.UTC().Format(time.RFC3339), used, strings.Join(others, ", "))))
	}
	if len(a.First) > 0 {
		return orPass(wrong, hubv1.FindingAccess, "",
			"nobody else could do without the token that is left from the first start or a reset: that takes role:admin and a token of one's own that lasts")
	}
	return orPass(wrong, hubv1.FindingAccess, "", "no token is left from the first start that somebody else could do without")
}
