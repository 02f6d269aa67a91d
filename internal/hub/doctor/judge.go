package doctor

import (
	"cmp"
	"slices"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// Snapshot is all that the doctor knows, read at one time.
type Snapshot struct {
	Now      time.Time
	Pools    []Pool
	Database Database
	Disk     Disk
	// Members are the hubs that share the database, this one included.
	Members []Member
	// Ahead is by how much this hub's clock is before that of the database.
	Ahead       time.Duration
	Access      Access
	Certificate Certificate
	Syncs       []Sync
}

// Judge says how the hub is: the worst first, and else in the order of Kinds.
func Judge(s Snapshot) hubv1.Diagnosis {
	var found []hubv1.Finding
	for _, pool := range s.Pools {
		found = append(found, Examine(s.Now, pool)...)
	}
	found = append(found, storage(s.Database, s.Disk)...)
	found = append(found, members(s.Members, s.Ahead)...)
	found = append(found, access(s.Access)...)
	found = append(found, certificate(s.Now, s.Certificate)...)
	for _, sync := range s.Syncs {
		found = append(found, examineSync(s.Now, sync)...)
	}
	place := map[hubv1.FindingID]int{}
	for i, kind := range kinds {
		place[kind.ID] = i
	}
	slices.SortStableFunc(found, func(a, b hubv1.Finding) int {
		return cmp.Or(b.Severity.Rank()-a.Severity.Rank(), place[a.ID]-place[b.ID], cmp.Compare(a.About, b.About))
	})
	out := hubv1.Diagnosis{Severity: hubv1.SeverityPass, CheckedAt: s.Now.UTC(), Findings: found}
	if len(found) > 0 {
		out.Severity = found[0].Severity
	}
	return out
}

// orPass gives what passes where nothing is wrong.
func orPass(wrong []hubv1.Finding, id hubv1.FindingID, name, found string) []hubv1.Finding {
	if len(wrong) > 0 {
		return wrong
	}
	return []hubv1.Finding{finding(id, hubv1.SeverityPass, name, found)}
}
