package powercut_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// writerEnv makes the test binary a writer: it holds its orders.
const writerEnv = "FENCEPOST_POWERCUT_WRITER"

// Orders are what a writer is told.
type orders struct {
	// Dir is the volume; the ledger and the inbox are in it.
	Dir string
	// Seed is of its chances, and names the mails that it records.
	Seed uint64
	// First and Count are the deliveries that it takes on, like all others.
	First, Count int
	// Boot is the machine's start.
	Boot uint64
	// Deaf leaves every sync out, and says that it succeeded.
	Deaf bool
}

const (
	ledgerDir, inboxDir = "ledger", "inbox"
	goroutines          = 16 // a writer's, half of them at the inbox
)

// ledgerConfig is of a machine that was started once more after each cut.
func ledgerConfig(start uint64) (fileledger.Config, error) {
	up, err := clock.SystemBoot()
	if err != nil {
		return fileledger.Config{}, err
	}
	var boot ledger.BootID
	binary.LittleEndian.PutUint64(boot[:], start)
	return fileledger.Config{
		Dir: ledgerDir, Lease: fileledger.MinLease, Shards: 2,
		SegmentBytes: fileledger.MinSegment, Maintain: 50 * time.Millisecond,
		Instant: func() ledger.Instant { return ledger.Instant{Boot: boot, At: up.Now().Up} },
	}, nil
}

var inboxConfig = inbox.Config{SegmentBytes: 256 << 10, MaxBytes: 128 << 20, MinFree: -1}

// deaf is a file system whose syncs do nothing.
type deaf struct{ durable.FS }

func (d deaf) SyncDir(string) error { return nil }

func (d deaf) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return deafFile{f}, nil
}

type deafFile struct{ durable.File }

func (deafFile) Sync() error { return nil }

// An ack is one line of a writer's output: what it was answered.
type ack struct {
	Op string `json:"o"`
	// N is a delivery of the ledger's.
	N          int    `json:"n,omitempty"`
	Evaluation string `json:"e,omitempty"`
	Fence      uint64 `json:"f,omitempty"`
	// Value is the digest of what is staged.
	Value string `json:"v,omitempty"`
	// Mail is one of the inbox's.
	Mail string `json:"m,omitempty"`
}

// What a writer tells. Beginning to forget a mail is told before it is asked
// for, all others after they were answered.
const (
	readyOp     = "ready"
	acquiredOp  = "acquired"
	renewedOp   = "renewed"
	stagedOp    = "staged"
	publishOp   = "publish"
	completedOp = "completed"
	recordedOp  = "recorded"
	doingOp     = "doing"
	fullOp      = "full"
	noRoomOp    = "noroom" // for what was known already
	failedOp    = "failed"
)

// fullPause is how long a sender waits that was told to come again.
const fullPause = 5 * time.Millisecond

// A writer is one process.
type writer struct {
	orders
	ledger *fileledger.Ledger
	inbox  *inbox.Inbox
}

// tell is one write: lines of several goroutines never mix.
func tell(a ack) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.Write(append(line, '\n')) // the parent may be gone
}

// runWriter is the main of a writer; its result is the exit status.
func runWriter(text string) int {
	ctx := context.Background()
	var w writer
	err := json.Unmarshal([]byte(text), &w.orders)
	if err == nil {
		err = w.open(ctx)
	}
	if err == nil {
		tell(ack{Op: readyOp})
		err = w.work(ctx)
	}
	if err != nil {
		// After the cut every call fails: the parent knows which it is.
		tell(ack{Op: failedOp, Value: err.Error()})
		return 1
	}
	return 0
}

func (w *writer) open(ctx context.Context) (err error) {
	w.ledger, w.inbox, err = openStores(ctx, w.Dir, w.Boot, w.Deaf)
	return err
}

func openStores(ctx context.Context, dir string, start uint64, noSync bool) (*fileledger.Ledger, *inbox.Inbox, error) {
	cfg, err := ledgerConfig(start)
	if err != nil {
		return nil, nil, err
	}
	volume := durable.OS(dir)
	if noSync {
		volume = deaf{volume}
	}
	if err := durable.MkdirAll(volume, inboxDir); err != nil {
		return nil, nil, err
	}
	l, err := fileledger.OpenOn(ctx, volume, cfg)
	if err != nil {
		return nil, nil, err
	}
	b, err := inbox.Open(ctx, durable.Sub(volume, inboxDir), inboxConfig)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return l, b, nil
}

// work returns the first error of any goroutine.
func (w *writer) work(ctx context.Context) error {
	errs := make(chan error, goroutines+1)
	var all sync.WaitGroup
	all.Go(func() { errs <- w.inbox.Run(ctx) })
	for g := range uint64(goroutines) {
		random := rand.New(rand.NewPCG(w.Seed, g))
		step := w.delivery
		if g%2 == 0 {
			step = w.mail
		}
		all.Go(func() {
			for i := 0; ; i++ {
				err := step(ctx, random, fmt.Sprint(w.Seed, "-", g, "-", i))
				if errors.Is(err, durable.ErrNoSpace) {
					tell(ack{Op: noRoomOp, Value: err.Error()})
					time.Sleep(fullPause)
					continue
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	return <-errs // the process ends with it
}

func deliveryOf(n int) fencepost.AcceptedDelivery {
	return ledgertest.Deliver(quiet{}, ledgertest.Spec{ID: fmt.Sprint("k", n)})
}

// delivery takes one delivery some way on.
func (w *writer) delivery(ctx context.Context, random *rand.Rand, name string) error {
	n := w.First + random.IntN(w.Count)
	d := deliveryOf(n)
	c, err := w.ledger.Claim(ctx, d)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	var staged fencepost.StagedPublication
	switch c := c.(type) {
	case fencepost.Acquired:
		tell(leaseAck(acquiredOp, n, c.Lease))
		if staged, err = w.stage(ctx, random, n, c.Lease, name); err != nil || !staged.Valid() {
			return err
		}
	case fencepost.Publish:
		a := leaseAck(publishOp, n, c.Lease)
		a.Value = valueOf(c.Staged.Publication())
		tell(a)
		staged = c.Staged
	case fencepost.Full:
		tell(ack{Op: fullOp, N: n})
		time.Sleep(fullPause)
		return nil
	default:
		return nil
	}
	if random.IntN(4) == 0 {
		return nil // a worker that dies here
	}
	done, err := w.ledger.Complete(ctx, d, staged)
	if err != nil {
		return fmt.Errorf("complete: %w", err)
	}
	if _, ok := done.(fencepost.Completed); !ok {
		return fmt.Errorf("complete answered %T", done)
	}
	tell(ack{Op: completedOp, N: n, Evaluation: staged.Evaluation().String(), Value: valueOf(staged.Publication())})
	return nil
}

// stage returns nothing for a delivery that is left leased.
func (w *writer) stage(ctx context.Context, random *rand.Rand, n int, lease fencepost.Lease, name string) (none fencepost.StagedPublication, err error) {
	d := deliveryOf(n)
	switch random.IntN(6) {
	case 0:
		return none, nil
	case 1:
		renewal, err := w.ledger.Renew(ctx, d, lease)
		if err != nil {
			return none, fmt.Errorf("renew: %w", err)
		}
		r, ok := renewal.(fencepost.Renewed)
		if !ok {
			return none, nil // it took too long
		}
		tell(leaseAck(renewedOp, n, r.Lease))
		lease = r.Lease
	}
	p, err := fencepost.NewPublication([]byte(name + strings.Repeat(".", random.IntN(8000))))
	if err != nil {
		return none, err
	}
	outcome, err := w.ledger.Stage(ctx, d, lease, p)
	if err != nil {
		return none, fmt.Errorf("stage: %w", err)
	}
	s, ok := outcome.(fencepost.Staged)
	if !ok {
		return none, nil
	}
	a := leaseAck(stagedOp, n, lease)
	a.Value = valueOf(p)
	tell(a)
	return s.Staged, nil
}

func leaseAck(op string, n int, l fencepost.Lease) ack {
	return ack{Op: op, N: n, Evaluation: l.Evaluation().String(), Fence: l.Fence().Uint64()}
}

func valueOf(p fencepost.Publication) string {
	d := p.Digest()
	return fmt.Sprintf("%x", d[:8])
}

// mail records one mail, and works off another half of the time.
func (w *writer) mail(ctx context.Context, random *rand.Rand, name string) error {
	body := bodyOf(name)
	d := ledgertest.Deliver(quiet{}, ledgertest.Spec{ID: name, Body: string(body)})
	outcome, err := w.inbox.Record(ctx, d, headersOf(name), body)
	if errors.Is(err, inbox.ErrFull) {
		tell(ack{Op: fullOp, Mail: name})
		time.Sleep(fullPause)
		if st := w.inbox.Stats(); st.Entries == st.Leased {
			return nil
		}
		return w.forget(ctx)
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if outcome != inbox.Accepted {
		return fmt.Errorf("record answered %v", outcome)
	}
	tell(ack{Op: recordedOp, Mail: name})
	if random.IntN(5) < 2 {
		return nil
	}
	return w.forget(ctx)
}

func (w *writer) forget(ctx context.Context) error {
	item, err := w.inbox.Next(ctx)
	if err != nil {
		return fmt.Errorf("next: %w", err)
	}
	r, err := w.inbox.Read(ctx, item.ID)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	tell(ack{Op: doingOp, Mail: nameOf(r)})
	return w.inbox.Done(item.ID, "")
}

const nameHeader = "X-Mail"

func headersOf(name string) fencepost.Headers {
	return fencepost.NewHeaders([]fencepost.Header{{Name: nameHeader, Value: name}})
}

func nameOf(r inbox.Recorded) string { return r.Headers.All()[0].Value }

// bodyOf is of a length that its name decides.
func bodyOf(name string) []byte {
	sum := crc32.ChecksumIEEE([]byte(name))
	return bytes.Repeat([]byte(name+"."), 1+int(sum%500))
}

// quiet is as much of a testing.TB as making a delivery needs.
type quiet struct{ testing.TB }

func (quiet) Helper()                      {}
func (quiet) Fatalf(text string, a ...any) { panic(fmt.Sprintf(text, a...)) }
