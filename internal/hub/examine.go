package hub

import (
	"context"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/store"
)

// examine reads all that the doctor judges.
func (p *parts) examine(ctx context.Context) (doctor.Snapshot, error) {
	s := doctor.Snapshot{Now: p.store.Now(), Certificate: p.certs.state(), Disk: p.Room(p.DataDir)}
	if err := p.store.Ping(ctx); err != nil {
		s.Database.Trouble = "the database does not answer"
		if trouble := store.Trouble(err); trouble != nil {
			s.Database.Trouble = trouble.Detail
		}
	}
	s.Ahead = p.Clock.Now().Sub(s.Now)
	hubs, err := p.store.ListMembers(ctx)
	if err != nil {
		return s, err
	}
	for _, m := range hubs {
		s.Members = append(s.Members, doctor.Member{Build: m.Build, Address: m.Address, Features: m.Features})
	}
	if s.Pools, err = p.store.Patients(ctx, ""); err != nil {
		return s, err
	}
	if s.Access, err = p.store.Access(ctx); err != nil {
		return s, err
	}
	records, err := p.store.ListSyncs(ctx)
	if err != nil {
		return s, err
	}
	for _, record := range records {
		sync := doctor.Sync{Sync: record, Since: p.began}
		if f := p.syncs.followers[record.Name]; f != nil {
			sync.Interval = f.config.Interval
			sync.StatusError, sync.WebhookError = f.poster.trouble(), f.hook.trouble()
		}
		s.Syncs = append(s.Syncs, sync)
	}
	return s, nil
}

// diskOf is what the disk of a directory has; none where it cannot be asked.
func diskOf(dir string) doctor.Disk {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return doctor.Disk{}
	}
	// Of the blocks that only root may take the hub may have none.
	return doctor.Disk{Free: int64(s.Bavail) * s.Bsize, Total: int64(s.Blocks) * s.Bsize}
}
