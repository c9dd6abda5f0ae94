package ledger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// compactAndRenew has large results go through a ledger until every shard was
// compacted by itself, and says how long renewals of leases took meanwhile,
// one after the other in each shard.
func compactAndRenew(tb testing.TB, cfg fileledger.Config, rows int) error {
	l, err := fileledger.Open(tb.Context(), cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	before, err := snapshotNames(cfg.Dir)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	stop := make(chan struct{})
	waits, errs := make([][]int64, fileledger.DefaultShards), make(chan error, fileledger.DefaultShards)
	start := time.Now()
	for n := range waits {
		d := inShard(tb, n)
		c, err := l.Claim(tb.Context(), d)
		a, ok := c.(fencepost.Acquired)
		if err != nil || !ok {
			return fmt.Errorf("claim: %T, %w", c, cmp.Or(err, errLost))
		}
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				start := time.Now()
				if r, err := l.Renew(tb.Context(), d, a.Lease); err != nil {
					errs <- fmt.Errorf("renew: %T, %w", r, err)
					return
				}
				waits[n] = append(waits[n], time.Since(start).Microseconds())
			}
		})
	}
	err = grow(tb, cfg, l, before)
	took := time.Since(start)
	close(stop)
	wait.Wait()
	close(errs)
	if err := cmp.Or(err, <-errs); err != nil {
		return err
	}
	all := slices.Concat(waits...)
	fmt.Println(took.Microseconds())
	var asked string
	if _, err := fmt.Scan(&asked); err != nil {
		return err
	}
	fmt.Println(len(all))
	for _, w := range all {
		fmt.Println(w)
	}
	return nil
}

// grow takes deliveries with large results to done, until every snapshot is
// another one than before.
func grow(tb testing.TB, cfg fileledger.Config, l *fileledger.Ledger, before []string) error {
	const workers = 8
	large := make([]byte, fencepost.MaxPublicationBytes)
	errs := make(chan error, workers)
	stop := make(chan struct{})
	s := &ledgerStore{tb: tb, Ledger: l}
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Cycle(tb.Context(), keyOf(fmt.Sprint("grow", w, i)), large); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	defer wait.Wait()
	defer close(stop)
	for {
		select {
		case err := <-errs:
			return err
		case <-time.After(5 * time.Millisecond):
		}
		now, err := snapshotNames(cfg.Dir)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) }) {
			return nil
		}
	}
}

// inShard is a delivery whose row belongs to shard n: see the file ledger's
// owner of a key.
func inShard(tb testing.TB, n int) fencepost.AcceptedDelivery {
	for i := 0; ; i++ {
		d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint("renewed", i), Body: "x"})
		key := d.Key()
		if int(binary.LittleEndian.Uint32(key[len(key)-4:])%fileledger.DefaultShards) == n {
			return d
		}
	}
}

func snapshotNames(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, "shard-*", "*.snap"))
}
