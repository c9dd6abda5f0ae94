package sourcedb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
)

// BenchmarkChecks is what observing without news costs in the store: claimed
// and stored in batches of 64. An iteration is one batch; of 10,000 sources
// every 2 minutes there are 1.3 a second.
func BenchmarkChecks(b *testing.B) {
	for _, k := range kinds {
		for _, sources := range []int{100, 10000} {
			b.Run(fmt.Sprintf("%s/sources=%d", k.name, sources), func(b *testing.B) {
				w := k.make(b)
				s, _ := w.open(b, sourcedb.Hooks{})
				all := make([]source.Registration, sources)
				for i := range all {
					all[i] = storetest.Registration(i + 1)
				}
				if _, err := s.Register(b.Context(), all); err != nil {
					b.Fatal(err)
				}
				for _, r := range all {
					if err := s.Change(b.Context(), r.ID, source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
						row := snap.Source
						row.Revision, row.Enabled = r.Revision, true
						return source.Change{Source: &row}, nil
					}); err != nil {
						b.Fatal(err)
					}
				}
				const batch = 64
				b.ResetTimer()
				for b.Loop() {
					rows, err := s.Due(b.Context(), batch, time.Minute)
					if err != nil || len(rows) != batch {
						b.Fatalf("%d due, %v", len(rows), err)
					}
					checks := make([]source.Check, len(rows))
					for i, r := range rows {
						checks[i] = source.Check{Source: r, Observed: storetest.Commit(1), Next: 0}
					}
					if err := s.Checked(b.Context(), checks); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChange is one push recorded: snapshot, decision, delivery, run,
// job, and the sync.
func BenchmarkChange(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			w := k.make(b)
			s, _ := w.open(b, sourcedb.Hooks{})
			if _, err := s.Register(b.Context(), []source.Registration{storetest.Registration(1)}); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				n++
				if err := s.Change(b.Context(), storetest.ID(1), source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
					row := snap.Source
					row.Announcements++
					d := storetest.Delivery(n, 1, storetest.Commit(n))
					d.Run, d.Received = storetest.RunID(n), snap.Now
					run := storetest.Log(n, 1, snap.Now)
					run.Status, run.EndedAt = source.Failed, snap.Now
					return source.Change{Source: &row, Delivery: &d, Insert: run, Job: storetest.Job(run)}, nil
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWatch is one listing of the watchdog over sources that are well.
func BenchmarkWatch(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name+"/sources=10000", func(b *testing.B) {
			w := k.make(b)
			s, _ := w.open(b, sourcedb.Hooks{})
			all := make([]source.Registration, 10000)
			for i := range all {
				all[i] = storetest.Registration(i + 1)
			}
			if _, err := s.Register(b.Context(), all); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if ids, err := s.Unfresh(b.Context(), 13*time.Minute, 256); err != nil || len(ids) != 0 {
					b.Fatalf("%d, %v", len(ids), err)
				}
				if ids, err := s.Stale(b.Context(), 30*time.Second, 256); err != nil || len(ids) != 0 {
					b.Fatalf("%d, %v", len(ids), err)
				}
			}
		})
	}
}
