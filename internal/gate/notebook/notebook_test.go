package notebook_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, fsys durable.FS, limits notebook.Limits) *notebook.Notebook {
	t.Helper()
	n, err := notebook.Open(fsys, limits, func() time.Time { return epoch })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func key(b ...byte) (k fencepost.DeliveryKey) {
	copy(k[:], b)
	return k
}

func subject(number int64, pair string) gate.Subject {
	id, err := fencepost.ParseCommitID(strings.Repeat(pair, 20))
	if err != nil {
		panic(err)
	}
	return gate.Subject{Number: number, Head: id, BaseRef: "refs/heads/main"}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestANoteIsKeptUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	n := open(t, disk.Process(), notebook.Limits{})
	want := gate.Note{
		Starts: 3, Failures: 2, Reason: fencepost.ReasonProvider, Sent: epoch.Add(time.Nanosecond), Written: "41000000001",
		Entered: subject(7, "11"),
	}
	got := must[gate.Note](t)(n.Change(t.Context(), key(1), func(n *gate.Note) { *n = want }))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	must[gate.Note](t)(n.Change(t.Context(), key(1, 1), func(n *gate.Note) { n.Starts++ }))
	again := open(t, disk.Process(), notebook.Limits{})
	if diff := cmp.Diff(want, must[gate.Note](t)(again.Change(t.Context(), key(1), func(*gate.Note) {}))); diff != "" {
		t.Errorf("opened again (-want +got):\n%s", diff)
	}
	if err := again.Forget(t.Context(), key(1)); err != nil {
		t.Fatal(err)
	}
	if got := must[gate.Note](t)(n.Change(t.Context(), key(1), func(*gate.Note) {})); got != (gate.Note{}) {
		t.Errorf("forgotten, but %+v", got)
	}
	if got := must[gate.Note](t)(n.Change(t.Context(), key(1, 1), func(*gate.Note) {})); got.Starts != 1 {
		t.Errorf("the neighbour is %+v", got)
	}
	for _, n := range []*notebook.Notebook{n, again} {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLookingWritesNothing(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	n := open(t, disk.Process(), notebook.Limits{})
	must[gate.Standing](t)(n.Enter(t.Context(), "docs", subject(7, "11")))
	must[gate.Note](t)(n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts = 1 }))
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op.Changes() && c.Op != crashfs.OpOpen {
			t.Errorf("call %v changes the disk", c)
		}
		return crashfs.Fault{}
	})
	must[gate.Note](t)(n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts = 1 }))
	must[gate.Note](t)(n.Change(t.Context(), key(2), func(*gate.Note) {}))
	must[gate.Standing](t)(n.Enter(t.Context(), "docs", subject(7, "11")))
	if err := n.Forget(t.Context(), key(3)); err != nil {
		t.Error(err)
	}
}

func TestANoteThatFindsNoRoomIsRefused(t *testing.T) {
	t.Parallel()
	n := open(t, crashfs.New(crashfs.Options{}).Process(), notebook.Limits{Notes: 2})
	change := func(k fencepost.DeliveryKey) error {
		_, err := n.Change(t.Context(), k, func(n *gate.Note) { n.Starts++ })
		return err
	}
	for i := range byte(2) {
		if err := change(key(1, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := change(key(1, 9)); fencepost.ReasonOf(err) != fencepost.ReasonFull {
		t.Errorf("error %v, want full", err)
	}
	if err := errors.Join(change(key(1, 0)), change(key(2, 0))); err != nil {
		t.Errorf("what is there, or has room, is refused: %v", err)
	}
	if err := n.Forget(t.Context(), key(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := change(key(1, 9)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestTheNewestStandingStands(t *testing.T) {
	t.Parallel()
	n := open(t, crashfs.New(crashfs.Options{}).Process(), notebook.Limits{})
	s := subject(7, "11")
	at := func(seconds int, k byte) gate.Standing {
		return gate.Standing{Received: epoch.Add(time.Duration(seconds) * time.Second), Delivery: key(k)}
	}
	advance := func(s gate.Subject, st gate.Standing) gate.Standing {
		return must[gate.Standing](t)(n.Advance(t.Context(), "docs", s, st))
	}
	if got := must[gate.Standing](t)(n.Enter(t.Context(), "docs", s)); got != (gate.Standing{}) {
		t.Errorf("entered: %+v", got)
	}
	for _, step := range []struct{ try, want gate.Standing }{
		{at(5, 1), at(5, 1)},
		{at(3, 2), at(5, 1)}, // older
		{at(5, 1), at(5, 1)}, // itself
		{at(5, 3), at(5, 3)}, // same second, later key
		{at(5, 2), at(5, 3)},
		{at(9, 1), at(9, 1)},
	} {
		if got := advance(s, step.try); got != step.want {
			t.Errorf("advance %+v: %+v, want %+v", step.try, got, step.want)
		}
		if got := must[gate.Standing](t)(n.Newest(t.Context(), "docs", s)); got != step.want {
			t.Errorf("newest after %+v: %+v, want %+v", step.try, got, step.want)
		}
	}
	if got := must[gate.Standing](t)(n.Enter(t.Context(), "docs", s)); got != at(9, 1) {
		t.Errorf("entered: %+v", got)
	}
	// Another request with the same head shares it; another head or gate does not.
	if got := must[gate.Standing](t)(n.Enter(t.Context(), "docs", subject(8, "11"))); got != at(9, 1) {
		t.Errorf("same head, another request: %+v", got)
	}
	if got := advance(subject(7, "22"), at(1, 1)); got != at(1, 1) {
		t.Errorf("another head: %+v", got)
	}
	if got := must[gate.Standing](t)(n.Newest(t.Context(), "other", s)); got != (gate.Standing{}) {
		t.Errorf("newest of another gate: %+v", got)
	}
	if must[bool](t)(n.Known(t.Context(), "other", s)) {
		t.Error("to look at a standing entered its subject")
	}
	if got := must[gate.Standing](t)(n.Enter(t.Context(), "other", s)); got != (gate.Standing{}) {
		t.Errorf("another gate: %+v", got)
	}
}

func TestKnownIsWhatWasEntered(t *testing.T) {
	t.Parallel()
	n := open(t, crashfs.New(crashfs.Options{}).Process(), notebook.Limits{})
	known := func(s gate.Subject) bool { return must[bool](t)(n.Known(t.Context(), "docs", s)) }
	if known(subject(7, "11")) {
		t.Error("known before")
	}
	for number := range int64(40) {
		must[gate.Standing](t)(n.Enter(t.Context(), "docs", subject(number, "11")))
		if !known(subject(number, "11")) {
			t.Errorf("request %d is not known", number)
		}
	}
	if known(subject(0, "11")) || !known(subject(39, "11")) || known(subject(39, "22")) {
		t.Error("not the newest requests of the head are known")
	}
}

func TestHeadsThatWereLookedAtLongestAgoMakeRoom(t *testing.T) {
	t.Parallel()
	now := epoch
	n := must[*notebook.Notebook](t)(notebook.Open(crashfs.New(crashfs.Options{}).Process(), notebook.Limits{Heads: 2}, func() time.Time { return now }))
	const many = 500
	for i := range int64(many) {
		now = now.Add(time.Second)
		must[gate.Standing](t)(n.Enter(t.Context(), gate.Name(fmt.Sprint(i)), subject(7, "11")))
	}
	left := 0
	for i := range int64(many) {
		if must[bool](t)(n.Known(t.Context(), gate.Name(fmt.Sprint(i)), subject(7, "11"))) {
			left++
		} else if i == many-1 {
			t.Error("the newest went")
		}
	}
	if left > 128 || left < 100 {
		t.Errorf("%d of %d left, want about 2 in each of 64 files", left, many)
	}
}

func TestProcessesDoNotLoseEachOthersChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const processes, workers, times = 3, 4, 5
	var wg sync.WaitGroup
	for range processes {
		n := open(t, durable.OS(dir), notebook.Limits{})
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		for range workers {
			wg.Go(func() {
				for range times {
					if _, err := n.Change(context.WithoutCancel(t.Context()), key(1), func(n *gate.Note) { n.Starts++ }); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	n := open(t, durable.OS(dir), notebook.Limits{})
	if got := must[gate.Note](t)(n.Change(t.Context(), key(1), func(*gate.Note) {})); got.Starts != processes*workers*times {
		t.Errorf("%d of %d changes", got.Starts, processes*workers*times)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// TestACrashLosesNothingThatReturned crashes at every call of the disk and
// looks at what is left under several policies.
func TestACrashLosesNothingThatReturned(t *testing.T) {
	t.Parallel()
	type state struct {
		starts   int
		standing gate.Standing
	}
	work := func(n *notebook.Notebook, took func(state)) error {
		var s state
		for i := range 3 {
			note, err := n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts++ })
			if err != nil {
				return err
			}
			s.starts = note.Starts
			took(s)
			st, err := n.Advance(t.Context(), "docs", subject(7, "11"), gate.Standing{Received: epoch.Add(time.Duration(i)), Delivery: key(byte(i + 1))})
			if err != nil {
				return err
			}
			s.standing = st
			took(s)
		}
		return nil
	}
	dry := crashfs.New(crashfs.Options{})
	if err := work(open(t, dry.Process(), notebook.Limits{}), func(state) {}); err != nil {
		t.Fatal(err)
	}
	total := dry.Calls()
	for n := 1; n <= total; n++ {
		for _, when := range []crashfs.When{crashfs.Before, crashfs.After} {
			disk := crashfs.New(crashfs.Options{})
			disk.Plan(crashfs.CrashAt(n, when, 0))
			var took state
			if book, err := notebook.Open(disk.Process(), notebook.Limits{}, func() time.Time { return epoch }); err == nil {
				if err := work(book, func(s state) { took = s }); err == nil && n < total {
					t.Fatalf("call %d: no crash", n)
				}
			}
			for name, policy := range map[string]crashfs.Policy{
				"lose all": crashfs.LoseAll, "keep all": crashfs.KeepAll, "random": crashfs.Random(uint64(n)),
			} {
				after := open(t, disk.After(policy).Process(), notebook.Limits{})
				note := must[gate.Note](t)(after.Change(t.Context(), key(1), func(*gate.Note) {}))
				st := must[gate.Standing](t)(after.Enter(t.Context(), "docs", subject(7, "11")))
				if note.Starts < took.starts || note.Starts > took.starts+1 || st.Before(took.standing) {
					t.Errorf("crash at %d, %s: %d starts and %+v after %+v", n, name, note.Starts, st, took)
				}
			}
		}
	}
}

func TestAnErrorOfTheDiskHasItsReason(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	root := must[*durable.Root](t)(durable.OpenRoot(disk.Process()))
	n := open(t, root, notebook.Limits{})
	disk.SetCapacity(disk.Used())
	_, err := n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts++ })
	if fencepost.ReasonOf(err) != fencepost.ReasonUnavailable || !errors.Is(err, durable.ErrNoSpace) {
		t.Errorf("full disk: %v", err)
	}
	disk.SetCapacity(0)
	must[gate.Note](t)(n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts++ }))
	disk.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSync {
			return crashfs.Fault{Err: syscall.EIO}
		}
		return crashfs.Fault{}
	})
	_, err = n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts++ })
	if fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Errorf("failed sync: %v", err)
	}
	disk.Plan(nil)
	if _, err = n.Advance(t.Context(), "docs", subject(7, "11"), gate.Standing{Received: epoch, Delivery: key(1)}); fencepost.ReasonOf(err) != fencepost.ReasonPoisoned {
		t.Errorf("after a failed sync: %v", err)
	}
}

func TestDamageIsSaidAndStaysInItsFile(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	fsys := disk.Process()
	n := open(t, fsys, notebook.Limits{})
	must[gate.Note](t)(n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts = 1 }))
	must[gate.Note](t)(n.Change(t.Context(), key(2), func(n *gate.Note) { n.Starts = 2 }))
	f, err := fsys.OpenFile("notes/01", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("9"), 120); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = n.Change(t.Context(), key(1), func(n *gate.Note) { n.Starts = 5 })
	if fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
		t.Errorf("error %v, want corrupt", err)
	}
	if got := must[gate.Note](t)(n.Change(t.Context(), key(2), func(*gate.Note) {})); got.Starts != 2 {
		t.Errorf("the other file holds %+v", got)
	}
}

func TestASubjectThatLeftIsUnknownAndItsHeadKeepsItsStanding(t *testing.T) {
	t.Parallel()
	n := must[*notebook.Notebook](t)(notebook.Open(durable.OS(t.TempDir()), notebook.Limits{}, time.Now))
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	s, other := subject(7, "11"), subject(8, "11")
	st := gate.Standing{Received: time.Unix(100, 0).UTC(), Delivery: fencepost.DeliveryKey{1}}
	for _, in := range []gate.Subject{s, other} {
		must[gate.Standing](t)(n.Enter(t.Context(), "docs", in))
	}
	must[gate.Standing](t)(n.Advance(t.Context(), "docs", s, st))
	for range 2 {
		if err := n.Leave(t.Context(), "docs", s); err != nil {
			t.Fatal(err)
		}
	}
	if must[bool](t)(n.Known(t.Context(), "docs", s)) || !must[bool](t)(n.Known(t.Context(), "docs", other)) {
		t.Error("the one that left must be unknown, the other of the same head known")
	}
	if got := must[gate.Standing](t)(n.Enter(t.Context(), "docs", s)); got != st {
		t.Errorf("standing %+v, want %+v", got, st)
	}
	note := must[gate.Note](t)(n.Change(t.Context(), fencepost.DeliveryKey{2}, func(n *gate.Note) { n.Entered = s }))
	if again := must[gate.Note](t)(n.Change(t.Context(), fencepost.DeliveryKey{2}, func(*gate.Note) {})); again != note || again.Entered != s {
		t.Errorf("note %+v, want %+v", again, note)
	}
}
