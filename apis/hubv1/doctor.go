package hubv1

import "time"

// FindingID is the stable name of something that the hub's doctor looks at.
type FindingID string

// Findings of the doctor. Package doctor says what each means and what to do.
const (
	FindingPools          FindingID = "executors.pools"
	FindingPoolsContact   FindingID = "executors.pools.contact"
	FindingPoolsCapacity  FindingID = "executors.pools.capacity"
	FindingPoolsStorage   FindingID = "executors.pools.storage"
	FindingPoolsDuplicate FindingID = "executors.pools.duplicate"
	FindingPoolsOverride  FindingID = "executors.pools.override"
	FindingPoolsProtocol  FindingID = "executors.pools.protocol"

	FindingStorage         FindingID = "storage"
	FindingStorageDatabase FindingID = "storage.database"
	FindingStorageDisk     FindingID = "storage.disk"

	FindingMembers       FindingID = "members"
	FindingMembersBuilds FindingID = "members.builds"
	FindingMembersClock  FindingID = "members.clock"

	FindingAccess          FindingID = "access"
	FindingAccessBootstrap FindingID = "access.bootstrap"

	FindingTLS       FindingID = "tls"
	FindingTLSExpiry FindingID = "tls.expiry"
	FindingTLSReload FindingID = "tls.reload"

	FindingSyncs         FindingID = "syncs"
	FindingSyncsFailed   FindingID = "syncs.failed"
	FindingSyncsPrune    FindingID = "syncs.prune"
	FindingSyncsStale    FindingID = "syncs.stale"
	FindingSyncsStatuses FindingID = "syncs.statuses"
	FindingSyncsWebhooks FindingID = "syncs.webhooks"
)

// Severity is how bad a finding is.
type Severity string

// Severities, from good to bad.
const (
	// SeverityPass found nothing wrong.
	SeverityPass Severity = "pass"
	// SeverityWarn will become trouble, or is trouble for some.
	SeverityWarn Severity = "warn"
	// SeverityFail is trouble now.
	SeverityFail Severity = "fail"
)

// Rank orders severities: the higher, the worse.
func (s Severity) Rank() int {
	switch s {
	case SeverityFail:
		return 2
	case SeverityWarn:
		return 1
	}
	return 0
}

// Finding is one thing that the doctor found.
type Finding struct {
	ID       FindingID `json:"id" doc:"Which check it is of."`
	Severity Severity  `json:"severity" enum:"pass,warn,fail" doc:"pass, warn or fail."`
	// About names the pool, the sync, the token or the file that it is about; empty where
	// there is only one.
	About string `json:"about,omitempty"`
	// Found says in a sentence what was found.
	Found string `json:"found"`
	// Meaning says what findings of this id mean.
	Meaning string `json:"meaning"`
	// Remedy says what to do; empty where there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
	// Command is the command line that fixes it or shows more.
	Command string `json:"command,omitempty"`
}

// Diagnosis is what the doctor found, the worst first.
type Diagnosis struct {
	// Severity is that of the worst finding.
	Severity  Severity  `json:"severity" enum:"pass,warn,fail"`
	CheckedAt time.Time `json:"checkedAt" doc:"When the hub looked."`
	Findings  []Finding `json:"findings" doc:"What was found, the worst first."`
}
