package sourcedb

import (
	"fmt"
	"math"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

func illegal(rule string) error { return fmt.Errorf("change source: %s: %w", rule, ErrIllegal) }

// legal holds a change against the rules that tell a bug from a lost race. The
// database has the same ones, and more; here they have a name.
func legal(s source.Snapshot, c source.Change) error {
	if row := c.Source; row != nil {
		switch {
		case row.ID != s.Source.ID || row.Version != s.Source.Version:
			return illegal("another source row than was read")
		case row.LastFence < s.Source.LastFence || row.LastFence > math.MaxInt64:
			return illegal("a fence that does not grow")
		}
	}
	if l := c.Lock; l != nil && (l.Fence < s.Lock.Fence || l.Fence > math.MaxInt64) {
		return illegal("a lock's fence that went back")
	}
	if err := legalRuns(s, c); err != nil {
		return err
	}
	id := s.Source.ID
	switch {
	case c.Job != nil && c.Job.Payload.Source != id,
		c.Delivery != nil && c.Delivery.Source != id,
		c.Request != nil && c.Request.Source != id:
		return illegal("a fence of another source")
	}
	return nil
}

func legalRuns(s source.Snapshot, c source.Change) error {
	if c.Update != nil {
		if s.Open == nil || identity(c.Update) != identity(s.Open) {
			return illegal("an update of another log than the open one")
		}
	}
	if c.Insert == nil {
		return nil
	}
	open := s.Open != nil && (c.Update == nil || !c.Update.Status.Ended())
	switch {
	case c.Insert.Source != s.Source.ID:
		return illegal("a log of another source")
	case open && !c.Insert.Status.Ended():
		return illegal("a second open log")
	}
	return nil
}

// runIdentity is what of a log never changes.
type runIdentity struct {
	id, recovers fencepost.RunID
	source       fencepost.SourceID
	revision     fencepost.SourceRevision
	trigger      source.Trigger
	commit       fencepost.CommitID
	fence        source.Digest
	version      int64
	queued       int64
}

func identity(r *source.RunRow) runIdentity {
	return runIdentity{
		id: r.ID, recovers: r.Recovers, source: r.Source, revision: r.Revision, trigger: r.Trigger,
		commit: r.Commit, fence: r.Fence, version: r.Version, queued: r.QueuedAt.UnixMicro(),
	}
}

// nothing reports whether a change stores nothing.
func nothing(c source.Change) bool {
	return c.Source == nil && c.Lock == nil && c.Update == nil && c.Insert == nil && c.Job == nil &&
		c.Delivery == nil && c.Request == nil && len(c.Raise) == 0 && len(c.Resolve) == 0
}
