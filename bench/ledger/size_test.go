package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

const (
	sizeChild = "FENCEPOST_BENCH_SIZE"
	// claimRounds times claimsARound claims are asked of each size.
	claimRounds, claimsARound = 10, 200
)

// BenchmarkSize opens ledgers of ever more rows, done for ever, each in a
// process of its own, and tells what that takes. Then the processes, which are
// all there at once, are asked in turns for some claims each, so that what the
// disk does meanwhile strikes all sizes alike. BENCH_ROWS are the sizes;
// BENCH_CHART is where to draw them.
func BenchmarkSize(b *testing.B) {
	var all []*sized
	for _, n := range benchRows(b, "1000,10000,100000,1000000") {
		s := &sized{Rows: n}
		s.start(b, "fill")
		s.wait(b)
		s.start(b, "look")
		s.read(b, &s.Open, &s.Known, &s.Before, &s.Resident, &s.Disk)
		all = append(all, s)
	}
	for round := range claimRounds {
		for i := range all {
			s := all[(i+round)%len(all)]
			s.claims = append(s.claims, s.ask(b, "claims", claimsARound)...)
		}
	}
	for _, s := range all {
		s.wait(b)
		slices.Sort(s.claims)
		fmt.Printf("%8d rows: open and count %6.1f ms, filter full after %6.1f ms, resident %5.1f MB (%.1f before), %.1f bytes of snapshots a row; claim p50 %d us, p99 %d us, %.2f times that of the smallest\n",
			s.Rows, float64(s.Open)/1000, float64(s.Known)/1000, float64(s.Resident)/1e6, float64(s.Before)/1e6, float64(s.Disk)/float64(s.Rows),
			s.claim(0.5), s.claim(0.99), float64(s.claim(0.99))/float64(all[0].claim(0.99)))
	}
	if name := os.Getenv("BENCH_CHART"); name != "" {
		if err := os.WriteFile(name, drawSizes(all), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompaction has ledgers grow until every shard was compacted, and
// tells how long renewals of a lease in each shard wait meanwhile.
func BenchmarkCompaction(b *testing.B) {
	for _, n := range benchRows(b, "1000000") {
		s := &sized{Rows: n}
		s.start(b, "fill")
		s.wait(b)
		s.start(b, "compact")
		var took int64
		s.read(b, &took)
		waits := s.ask(b, "renewals", 0)
		s.wait(b)
		slices.Sort(waits)
		at := func(q float64) float64 { return float64(waits[int(q*float64(len(waits)-1))]) / 1000 }
		fmt.Printf("%8d rows: all shards compacted in %.1f s, %d renewals meanwhile, which waited p50 %.1f ms, p99 %.1f ms, at most %.1f ms\n",
			n, float64(took)/1e6, len(waits), at(0.5), at(0.99), at(1))
	}
}

func benchRows(b *testing.B, sizes string) (rows []int) {
	for size := range strings.SplitSeq(cmp.Or(os.Getenv("BENCH_ROWS"), sizes), ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			b.Fatal(err)
		}
		rows = append(rows, n)
	}
	return rows
}

// A sized is a ledger of some size, and what was measured of it: times in
// microseconds, sizes in bytes.
type sized struct {
	Rows                                int
	Open, Known, Before, Resident, Disk int64
	claims                              []int64 // sorted in the end

	dir string
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (s *sized) claim(q float64) int64 { return s.claims[int(q*float64(len(s.claims)-1))] }

// start starts a process that does one step of a benchmark.
func (s *sized) start(b *testing.B, step string) {
	if s.dir == "" {
		s.dir = b.TempDir()
	}
	s.cmd = exec.CommandContext(b.Context(), os.Args[0])
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d,%s", sizeChild, step, s.Rows, s.dir))
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		s.in, err = s.cmd.StdinPipe()
	}
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	s.out = bufio.NewReaderSize(out, 1<<20)
}

// wait has the process end.
func (s *sized) wait(b *testing.B) {
	if err := s.in.Close(); err != nil {
		b.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		b.Fatalf("%d rows: %v", s.Rows, err)
	}
}

func (s *sized) read(b *testing.B, to ...*int64) {
	for _, n := range to {
		if _, err := fmt.Fscan(s.out, n); err != nil {
			b.Fatalf("%d rows: %v", s.Rows, err)
		}
	}
}

// ask has the process do something that many times, and returns how long each
// took. With 0 the process says how many there are.
func (s *sized) ask(b *testing.B, what string, times int64) []int64 {
	if _, err := fmt.Fprintln(s.in, what); err != nil {
		b.Fatal(err)
	}
	if times == 0 {
		s.read(b, &times)
	}
	took := make([]int64, times)
	for i := range took {
		s.read(b, &took[i])
	}
	return took
}

// sizeMain is what such a process does.
func sizeMain(tb testing.TB, what string) error {
	parts := strings.SplitN(what, ",", 3)
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	cfg := fileledger.Config{Dir: filepath.Join(parts[2], "ledger"), Capacity: min(max(2*n, 20_000), fileledger.MaxCapacity), MaxBytes: 8 << 30}
	switch parts[0] {
	case "fill":
		return fill(tb, cfg, n)
	case "compact":
		return compactAndRenew(tb, cfg, n)
	default:
		return look(tb, cfg)
	}
}

// look opens the ledger, says what that took, and makes claims as it is asked.
func look(tb testing.TB, cfg fileledger.Config) error {
	before, start := resident(), time.Now()
	l, err := fileledger.Open(tb.Context(), cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := l.Stat(tb.Context()); err != nil {
		return err
	}
	opened := time.Since(start)
	for stranger := ledgertest.Deliver(tb, ledgertest.Spec{ID: "stranger"}).Key(); l.MayKnow(stranger); time.Sleep(time.Millisecond) {
		if _, err := l.Stat(tb.Context()); err != nil {
			return err
		}
	}
	known := time.Since(start)
	disk, err := snapshots(cfg.Dir)
	if err != nil {
		return err
	}
	fmt.Println(opened.Microseconds(), known.Microseconds(), before, resident(), disk)
	asked := bufio.NewScanner(os.Stdin)
	for i := 0; asked.Scan(); {
		var took bytes.Buffer
		for range claimsARound {
			d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint("new", i), Body: "x"})
			start := time.Now()
			c, err := l.Claim(tb.Context(), d)
			if _, ok := c.(fencepost.Acquired); err != nil || !ok {
				return fmt.Errorf("claim: %T, %w", c, cmp.Or(err, errLost))
			}
			fmt.Fprintln(&took, time.Since(start).Microseconds())
			i++
		}
		if _, err := took.WriteTo(os.Stdout); err != nil {
			return err
		}
	}
	return asked.Err()
}

// snapshots are the bytes of all snapshots.
func snapshots(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(e.Name(), ".snap") {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}

// resident is the process's resident size in bytes; 0 where it can't be read.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// fill makes a ledger of n rows that are done for ever, as one arrives from
// elsewhere, and spread evenly over the shards: ten million are all that there
// can be, and by chance one shard would have no room for its part.
func fill(tb testing.TB, cfg fileledger.Config, n int) error {
	keys := make([]fencepost.DeliveryKey, n)
	for i := range keys {
		keys[i] = sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		at := keys[i][len(keys[i])-4:]
		at[0] = at[0]&^(fileledger.DefaultShards-1) | byte(i%fileledger.DefaultShards)
	}
	slices.SortFunc(keys, func(a, b fencepost.DeliveryKey) int { return bytes.Compare(a[:], b[:]) })
	in, err := fileledger.Receive(tb.Context(), cfg)
	if err != nil {
		return err
	}
	defer in.Close()
	to, err := in.Begin(tb.Context(), ledger.Head{Fence: uint64(n), Window: fencepost.DefaultReplayWindow})
	if err != nil {
		return err
	}
	rows := make([]ledger.Row, 0, 1024)
	since := time.Now().UTC().Truncate(time.Second)
	for i, key := range keys {
		fence, err := fencepost.ParseFence(uint64(i + 1))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(key[:])
		rows = append(rows, ledger.Row{
			State: ledger.Done, Key: key, Binding: fencepost.Binding(sum), Evaluation: fencepost.EvaluationID(sum[:16]),
			Published: sha256.Sum256(sum[:]), Fence: fence, Since: since, Attempts: 1, Trust: ledger.MarkOf("test"),
		})
		if len(rows) < cap(rows) && i < n-1 {
			continue
		}
		if err := in.Put(tb.Context(), rows); err != nil {
			return err
		}
		rows = rows[:0]
	}
	move := ledger.Move{From: [16]byte{1}, To: to, Rows: n, Digest: [32]byte{1}}
	if err := in.Prepare(tb.Context(), move); err != nil {
		return err
	}
	return in.Arrive(tb.Context(), move)
}
