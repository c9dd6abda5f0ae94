package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/artifact/sqlartifact"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/gate/sqlnotebook"
	"github.com/fencepost/fencepost/internal/gate/sqlshelf"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/inbox/sqlinbox"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

// A fencing is the ledger as the controller uses it.
type fencing interface {
	fencepost.Ledger
	gate.Abandoner
	repeater
	Health() ledger.Health
	Retired(ctx context.Context) ([]ledger.TrustMark, error)
}

// An inbound is the inbox as the controller uses it.
type inbound interface {
	Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (inbox.Outcome, error)
	Next(ctx context.Context) (inbox.Item, error)
	Read(ctx context.Context, id inbox.ItemID) (inbox.Recorded, error)
	Done(ctx context.Context, id inbox.ItemID) error
	Stats() inbox.Stats
	Health() error
	Run(ctx context.Context) error
}

// Artifacts are the evidence store as the controller uses it.
type artifacts interface {
	Put(ctx context.Context, data []byte) (artifact.Ref, error)
	Get(ctx context.Context, ref artifact.Ref) ([]byte, error)
	Expire(ctx context.Context) error
	Usage(ctx context.Context) (count, bytes int64, err error)
}

// A memory is the notebook as the controller uses it.
type memory interface {
	gate.Notes
	gate.Standings
}

// results are what jobs fetch, as the controller uses it.
type results interface {
	Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error
	End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error
	Get(ctx context.Context, d fencepost.DeliveryID) (shelf.Entry, bool, error)
	PollKey(ctx context.Context) (fencepost.Secret, error)
	Expire(ctx context.Context) error
}

// A spine is what gates rest on: in the data directory, or in a database that
// several machines share (DESIGN §12).
type spine struct {
	ledger    fencing
	inbox     inbound
	artifacts artifacts
	notebook  memory
	results   results
	// rows counts those of the ledger, and says whether it is full.
	rows func(context.Context) (rows int, full bool, err error)
	// ages says how old its rows are; it reads all of them.
	ages func(ctx context.Context, now time.Time) (ledger.Ages, error)
	// rate is how fast it fills, which [App.project] keeps.
	rate rate
	// clean cleans the ledger up until its context ends; nil where the ledger
	// does so by itself.
	clean func(context.Context) error
	// ahead is how many deliveries may be taken out of the inbox before a
	// worker is free for them; 0 for any number.
	ahead int
}

// openDatabase opens the database that several machines share, where one is
// configured.
func (a *App) openDatabase(ctx context.Context) error {
	if !a.Config.Database.IsPostgres() {
		return nil
	}
	o, err := StateOptions(a.Config, a.LookupEnv, a.Now)
	if err != nil {
		return err
	}
	o.Before = sqlledger.Before(a.sharedLedger())
	if a.db, err = store.Open(ctx, o); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	a.opened(a.db.Close)
	return nil
}

// openSpine opens ledger, inbox, notebook, artifacts and results.
func (a *App) openSpine(ctx context.Context) error {
	steps := []func(context.Context) error{a.openLedger, a.openInbox, a.openNotebook, a.openArtifacts, a.openResults}
	if a.db != nil {
		steps = []func(context.Context) error{a.leftBehind, a.openSharedLedger, a.openSharedInbox, a.openSharedRest}
	}
	for _, open := range steps {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return a.noneRetired(ctx)
}

// ErrRetired: a gate names a trust set whose rows were retired.
var ErrRetired = errors.New("the trust set was retired in this ledger")

// noneRetired refuses gates whose trust set was retired: each of their
// deliveries would end as expired, without a word.
func (a *App) noneRetired(ctx context.Context) error {
	marks, err := a.spine.ledger.Retired(ctx)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	var errs []error
	for _, g := range a.Config.Gates {
		if slices.Contains(marks, ledger.MarkOf(g.Trust)) {
			errs = append(errs, fmt.Errorf("gate %s: %w: %s; nothing that it authenticates is new again, so give its keys a set of another name", g.Route, ErrRetired, g.Trust))
		}
	}
	return errors.Join(errs...)
}

func (a *App) openLedger(ctx context.Context) error {
	l, err := fileledger.Open(ctx, LedgerConfig(a.Config, a.Now))
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	a.opened(l.Close)
	a.spine.ledger = l
	a.spine.ages = func(ctx context.Context, now time.Time) (ledger.Ages, error) {
		return ledger.CountAges(l.Rows(ctx), now)
	}
	a.spine.rows = func(ctx context.Context) (int, bool, error) {
		st, err := l.Stat(ctx)
		return st.Rows(), st.Full > 0, err
	}
	return nil
}

// A fileInbox is an inbox in files as the controller uses it.
type fileInbox struct{ *inbox.Inbox }

// Done implements [inbound].
func (f fileInbox) Done(_ context.Context, id inbox.ItemID) error {
	return f.Inbox.Done(id, fencepost.ReasonNone)
}

func (a *App) fileInboxConfig() inbox.Config {
	c := a.Config.Inbox
	return inbox.Config{
		MaxEntries: c.MaxEntries, MaxBytes: int64(c.MaxBytes), SegmentBytes: int64(c.Segment),
		MaxBody: int(a.Config.Ingress.MaxBody), RetryAfter: a.Config.Ingress.RetryAfter, MinFree: int64(c.MinFree),
		OnDamage: a.inboxDamaged,
	}
}

func (a *App) openInbox(ctx context.Context) error {
	// The inbox makes a root of its own, so that its failed sync stops it and
	// no reading beside it.
	in, err := inbox.Open(ctx, durable.OS(filepath.Join(a.Config.DataDir, "inbox")), a.fileInboxConfig())
	if err != nil {
		return fmt.Errorf("open inbox: %w", err)
	}
	a.opened(in.Close)
	a.spine.inbox = fileInbox{in}
	return nil
}

func (a *App) openNotebook(context.Context) error {
	n, err := notebook.Open(a.sub("notebook"), notebook.Limits{}, a.Now)
	if err != nil {
		return err
	}
	a.opened(n.Close)
	a.spine.notebook = n
	return nil
}

func (a *App) artifactLimits() artifact.Limits {
	c := a.Config.Artifacts
	return artifact.Limits{
		ArtifactBytes: int64(c.MaxSize), Count: int64(c.MaxCount), TotalBytes: int64(c.MaxTotal), TTL: c.Keep,
	}
}

func (a *App) openArtifacts(ctx context.Context) error {
	s, err := artifact.Open(ctx, a.sub("artifacts"), a.artifactLimits(), a.Now)
	if err != nil {
		return err
	}
	a.opened(s.Close)
	a.spine.artifacts = s
	return nil
}

func (a *App) openResults(ctx context.Context) error {
	s, err := shelf.Open(ctx, a.sub("results"), a.resultLimits(), a.Now)
	if err != nil {
		return err
	}
	a.opened(s.Close)
	a.spine.results = s
	return nil
}

// sharedLedger is what the ledger in the database is opened with.
func (a *App) sharedLedger() sqlledger.Config {
	c := a.Config
	return sqlledger.Config{Lease: c.Ledger.Lease, Capacity: int(c.Ledger.Capacity), Window: c.Replay, Now: a.Now}
}

func (a *App) openSharedLedger(ctx context.Context) error {
	l, err := sqlledger.OpenOn(ctx, a.db, a.sharedLedger())
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	a.opened(l.Close)
	a.spine.ledger, a.spine.clean, a.spine.ages = l, l.Run, l.Ages
	a.spine.rows = func(ctx context.Context) (int, bool, error) {
		st, err := l.Stat(ctx)
		return st.Rows(), st.Full > 0, err
	}
	return nil
}

// takeAhead is how many deliveries per worker are taken out of a shared inbox
// before they can be worked on: a worker that has ended goes on at once, and
// the rest is there for other processes.
const takeAhead = 1

// maxSilence is how long a process may be silent before others are handed its
// deliveries; no longer than a lease, for before its end they could only wait.
const maxSilence = 10 * time.Second

func (a *App) openSharedInbox(ctx context.Context) error {
	c := a.Config.Inbox
	in, err := sqlinbox.Open(ctx, a.db, sqlinbox.Config{
		MaxEntries: c.MaxEntries, MaxBytes: int64(c.MaxBytes),
		MaxBody: int(a.Config.Ingress.MaxBody), RetryAfter: a.Config.Ingress.RetryAfter,
		Lease:    min(a.Config.Ledger.Lease, maxSilence),
		OnRepeat: func(d fencepost.DeliveryKey) { a.pool.Wake(d) },
	})
	if err != nil {
		return err
	}
	a.opened(func() error { return in.Close(context.WithoutCancel(ctx)) })
	a.spine.inbox, a.spine.ahead = in, takeAhead*a.Config.Work.Workers
	return nil
}

func (a *App) openSharedRest(ctx context.Context) error {
	notes, err := sqlnotebook.Open(ctx, a.db, sqlnotebook.Limits{})
	if err != nil {
		return err
	}
	evidence, err := sqlartifact.Open(ctx, a.db, a.artifactLimits())
	if err != nil {
		return err
	}
	shelved, err := sqlshelf.Open(ctx, a.db, a.resultLimits())
	if err != nil {
		return err
	}
	a.spine.notebook, a.spine.artifacts, a.spine.results = notes, evidence, shelved
	return nil
}

// corrupt reports whether something of the spine is damaged, counted being the
// error of having counted the ledger's rows.
func (a *App) corrupt(counted error) bool {
	if errors.Is(a.spine.inbox.Health(), inbox.ErrCorrupt) || !a.spine.ledger.Health().OK() {
		return true
	}
	// A database that can't be asked is no damage; files that can't be read
	// are.
	return counted != nil && (a.db == nil || fencepost.ReasonOf(counted) == fencepost.ReasonCorrupt)
}
