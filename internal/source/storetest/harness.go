package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// A Harness is one fresh, empty store and the levers that a case needs over
// it.
type Harness struct {
	// Open opens the store as one more process does. The test closes it.
	Open func(t testing.TB) source.Store
	// Elapse moves the store's clock, also back.
	Elapse func(t testing.TB, d time.Duration)
	// Queue is the queue of all of them.
	Queue *Queue
	// Taken is what an error matches about a fence that stands already;
	// Illegal, one about a change that no row allows.
	Taken, Illegal error
}

// A Queue is a queue in the store's database: a table of its own, written in
// the caller's transaction.
type Queue struct {
	mu   sync.Mutex
	fail error
}

// QueueTable makes the table of a [Queue]; for the harness.
const QueueTable = `create table test_queue (handler text, key text, source text, run text, revision text)`

// ErrQueue is how a [Queue] fails that was told to.
var ErrQueue = errors.New("the queue fails")

// Enqueue inserts a row.
func (q *Queue) Enqueue(ctx context.Context, tx *sql.Tx, j source.JobRow) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := j.Payload
	row := []string{j.Handler, j.Key, p.Source.String(), p.Run.String(), p.Revision.String()}
	if strings.Contains(strings.Join(row, ""), "'") {
		return errors.New("a quote in a job")
	}
	// The row is written before the failure: it has to go, too.
	if _, err := tx.ExecContext(ctx, "insert into test_queue values ('"+strings.Join(row, "', '")+"')"); err != nil {
		return err
	}
	return q.fail
}

// Fail lets every further job fail, or with nil none.
func (q *Queue) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fail = err
}

// The ids of a test are numbers.

// ID is the nth source.
func ID(n int) fencepost.SourceID {
	id := fencepost.SourceID{0: 0x5a, 6: 0x40, 8: 0x80}
	binary.BigEndian.PutUint32(id[12:], uint32(n))
	return id
}

// Key is its key.
func Key(n int) fencepost.RouteName { return fencepost.RouteName(fmt.Sprintf("source-%d", n)) }

// Revision is the nth revision of a policy.
func Revision(n int) fencepost.SourceRevision {
	return fencepost.SourceRevision(sha256.Sum256(fmt.Append(nil, "revision ", n)))
}

// Commit is the nth commit.
func Commit(n int) fencepost.CommitID {
	sum := sha256.Sum256(fmt.Append(nil, "commit ", n))
	return fencepost.CommitID{ObjectID: fencepost.ObjectID(sum[:20])}
}

// Tree is the nth tree.
func Tree(n int) fencepost.TreeID { return fencepost.TreeID{ObjectID: Commit(-n).ObjectID} }

// RunID is the nth run.
func RunID(n int) fencepost.RunID {
	id := fencepost.RunID{0: 0xfe}
	binary.BigEndian.PutUint32(id[12:], uint32(n))
	return id
}

// Token is the nth token.
func Token(n int) source.Token { return source.Token(RunID(n)) }

// Digest is the nth digest.
func Digest(n int) source.Digest { return sha256.Sum256(fmt.Append(nil, "digest ", n)) }

// Policy is that of the nth source, at its first revision.
func Policy(n int) source.Policy {
	return source.Policy{
		ID: ID(n), Key: Key(n), Revision: Revision(1), Contracts: Digest(1), Enabled: true, AcceptUnannounced: true,
		Lineage: Digest(2), Timings: fencepost.DefaultTimings,
	}
}

// Registration is how its policy is registered.
func Registration(n int) source.Registration {
	return source.Registration{ID: ID(n), Key: Key(n), Revision: Revision(1), Enabled: true}
}

// Delivery is the nth delivery, to a source, naming a commit.
func Delivery(n, to int, commit fencepost.CommitID) source.DeliveryRow {
	return source.DeliveryRow{
		Namespace: Key(to), ID: Digest(1000 + n), Body: Digest(2000 + n), Delivery: fencepost.DeliveryKey(Digest(3000 + n)),
		Source: ID(to), Commit: commit,
	}
}

// Log is the nth run of a source, queued now.
func Log(n, of int, now time.Time) *source.RunRow {
	return &source.RunRow{
		ID: RunID(n), Source: ID(of), Revision: Revision(1), Trigger: source.Trigger{Kind: source.ByRequest, ID: fmt.Sprintf("request/%d", n)},
		Commit: Commit(n), Fence: Digest(4000 + n), Version: 1, Status: source.Queued, QueuedAt: now, NotBefore: now,
	}
}

// Job is a run's.
func Job(r *source.RunRow) *source.JobRow {
	return &source.JobRow{
		Handler: source.HandlerRun, Key: r.ID.String(), NotBefore: r.NotBefore,
		Payload: source.JobPayload{Source: r.Source, Run: r.ID, Revision: r.Revision},
	}
}

// A world is a harness with a store open and some sources registered.
type world struct {
	Harness
	store source.Store
}

// enter opens a store with n sources, which are enabled and have their first
// policy in force, without a run.
func enter(t *testing.T, fresh func(testing.TB) Harness, n int) *world {
	t.Helper()
	h := fresh(t)
	w := &world{Harness: h, store: h.Open(t)}
	all := make([]source.Registration, n)
	for i := range all {
		all[i] = Registration(i + 1)
	}
	changed, err := w.store.Register(t.Context(), all)
	if err != nil || len(changed) != n {
		t.Fatalf("register: %d changed, %v; want %d", len(changed), err, n)
	}
	for i := range n {
		w.change(t, i+1, func(s source.Snapshot) (c source.Change) {
			row := s.Source
			row.Revision, row.Enabled, row.Lineage = Revision(1), true, Digest(2)
			return source.Change{Source: &row}
		})
	}
	return w
}

// change makes a change that must succeed.
func (w *world) change(t *testing.T, n int, decide func(source.Snapshot) source.Change) {
	t.Helper()
	if err := w.try(t, n, decide); err != nil {
		t.Fatalf("change source %d: %v", n, err)
	}
}

func (w *world) try(t *testing.T, n int, decide func(source.Snapshot) source.Change) error {
	t.Helper()
	return w.store.Change(t.Context(), ID(n), source.Lookup{}, func(s source.Snapshot) (source.Change, error) { return decide(s), nil })
}

// see reads the rows of a source.
func (w *world) see(t *testing.T, n int, l source.Lookup) source.Snapshot {
	t.Helper()
	var seen source.Snapshot
	if err := w.store.Change(t.Context(), ID(n), l, func(s source.Snapshot) (source.Change, error) {
		seen = s
		return source.Change{}, nil
	}); err != nil {
		t.Fatalf("read source %d: %v", n, err)
	}
	return seen
}

// begin begins an attempt of a new run, and returns its hold.
func (w *world) begin(t *testing.T, n, run int, lease time.Duration) source.Hold {
	t.Helper()
	w.change(t, n, func(s source.Snapshot) source.Change {
		r := Log(run, n, s.Now)
		return source.Change{Insert: r, Job: Job(r)}
	})
	var h source.Hold
	w.change(t, n, func(s source.Snapshot) source.Change {
		row, log := s.Source, *s.Open
		row.LastFence++
		log.Status, log.Token, log.Attempts, log.StartedAt = source.Running, Token(run), log.Attempts+1, s.Now
		lock := source.LockRow{
			Owner: source.Owner(Token(9)), Token: Token(run), Fence: row.LastFence, Run: log.ID,
			Acquired: s.Now, Renewed: s.Now, Expires: s.Now.Add(lease),
		}
		h = source.Hold{Source: ID(n), Run: log.ID, Token: lock.Token, Fence: lock.Fence, Expires: lock.Expires}
		return source.Change{Source: &row, Lock: &lock, Update: &log}
	})
	return h
}

// finish ends the open run and frees its lock.
func (w *world) finish(t *testing.T, n int) {
	t.Helper()
	w.change(t, n, func(s source.Snapshot) source.Change {
		log := *s.Open
		log.Status, log.Token, log.EndedAt = source.Complete, source.Token{}, s.Now
		log.Head, log.Tree = Commit(1), Tree(1)
		return source.Change{Lock: &source.LockRow{Fence: s.Lock.Fence}, Update: &log}
	})
}

// numbers are which sources ids are.
func numbers(ids []fencepost.SourceID) []int {
	all := make([]int, len(ids))
	for i, id := range ids {
		all[i] = int(binary.BigEndian.Uint32(id[12:]))
	}
	return all
}
