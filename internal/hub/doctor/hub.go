package doctor

import (
	"fmt"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// Database is how the hub's database is.
type Database struct {
	// Trouble says why it cannot be read or changed; empty while it can.
	Trouble string
}

// Disk is the room where the data directory is. A Total of 0 stands for a disk
// that could not be asked.
type Disk struct{ Free, Total int64 }

const (
	// lowShare of a disk is little, unless it is more than lowBytes; littleBytes
	// is little on any disk, and with noBytes the hub may stop at any time.
	lowShare    = 10
	lowBytes    = 10 << 30
	littleBytes = 256 << 20
	noBytes     = 64 << 20
)

func storage(database Database, disk Disk) []hubv1.Finding {
	var wrong []hubv1.Finding
	if database.Trouble != "" {
		wrong = append(wrong, finding(hubv1.FindingStorageDatabase, hubv1.SeverityFail, "", database.Trouble))
	}
	room := fmt.Sprintf("%s of %s are free where the data directory is", size(disk.Free), size(disk.Total))
	if disk.Total == 0 {
		room = "how much room there is could not be found out"
	}
	switch {
	case disk.Total == 0:
	case disk.Free < noBytes:
		wrong = append(wrong, finding(hubv1.FindingStorageDisk, hubv1.SeverityFail, "", room))
	case disk.Free < littleBytes, disk.Free < lowBytes && disk.Free < disk.Total/lowShare:
		wrong = append(wrong, finding(hubv1.FindingStorageDisk, hubv1.SeverityWarn, "", room))
	}
	return orPass(wrong, hubv1.FindingStorage, "", "changes are written; "+room)
}

func size(bytes int64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// Certificate is the one that the hub shows.
type Certificate struct {
	// File that it came from.
	File                string
	NotBefore, NotAfter time.Time
	// ReloadError says why newer files cannot be used; empty while there is
	// nothing newer.
	ReloadError string
}

// renewal is how long before its end a certificate ought to be renewed, unless
// that is more than a third of its life.
const renewal = 21 * 24 * time.Hour

func certificate(now time.Time, c Certificate) []hubv1.Finding {
	var wrong []hubv1.Finding
	end, left := c.NotAfter.UTC().Format(time.RFC3339), c.NotAfter.Sub(now)
	switch {
	case left <= 0:
		wrong = append(wrong, finding(hubv1.FindingTLSExpiry, hubv1.SeverityFail, c.File, "the certificate is over since "+end))
	case now.Before(c.NotBefore):
		wrong = append(wrong, finding(hubv1.FindingTLSExpiry, hubv1.SeverityFail, c.File, "the certificate is valid only from "+c.NotBefore.UTC().Format(time.RFC3339)))
	case left < min(renewal, c.NotAfter.Sub(c.NotBefore)/3):
		wrong = append(wrong, finding(hubv1.FindingTLSExpiry, hubv1.SeverityWarn, c.File, fmt.Sprintf("the certificate ends in %s, at %s", whole(left), end)))
	}
	if c.ReloadError != "" {
		wrong = append(wrong, finding(hubv1.FindingTLSReload, hubv1.SeverityWarn, c.File, c.ReloadError))
	}
	return orPass(wrong, hubv1.FindingTLS, c.File, fmt.Sprintf("the certificate is valid for %s, until %s", whole(left), end))
}

// Sync is how a Git sync is.
type Sync struct {
	hubv1.Sync
	Interval time.Duration
	// Since is when the hub began to follow it.
	Since time.Time
	// StatusError says why statuses cannot be posted, and WebhookError why the
	// last event was refused; empty where all is well.
	StatusError, WebhookError string
}

// slack is how long a sync may take beside its intervals.
const slack = 2 * time.Minute

func examineSync(now time.Time, s Sync) []hubv1.Finding {
	var wrong []hubv1.Finding
	say := func(id hubv1.FindingID, severity hubv1.Severity, found string) {
		wrong = append(wrong, finding(id, severity, s.Name, found))
	}
	switch {
	case s.State == hubv1.SyncFailed && s.PruneWaits != nil:
		say(hubv1.FindingSyncsPrune, hubv1.SeverityFail, s.Message)
	case s.State == hubv1.SyncFailed:
		say(hubv1.FindingSyncsFailed, hubv1.SeverityFail, s.Message)
	}
	// Before it has looked for the first time, the hub's start counts.
	last, looked := s.Since, "not looked since the hub started"
	if s.LastRun != nil && s.LastRun.After(last) {
		last, looked = *s.LastRun, "last looked at "+s.LastRun.UTC().Format(time.RFC3339)
	}
	if away := now.Sub(last); away > 3*s.Interval+slack {
		say(hubv1.FindingSyncsStale, hubv1.SeverityWarn, fmt.Sprintf("it has %s, %s ago, and is to look every %s", looked, whole(away), s.Interval))
	}
	if s.StatusError != "" {
		say(hubv1.FindingSyncsStatuses, hubv1.SeverityWarn, s.StatusError)
	}
	if s.WebhookError != "" {
		say(hubv1.FindingSyncsWebhooks, hubv1.SeverityWarn, s.WebhookError)
	}
	found := s.Message
	if found == "" {
		found = "it is " + string(s.State)
	}
	return orPass(wrong, hubv1.FindingSyncs, s.Name, found)
}
