package notebook_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/internal/gate/notetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	notetest.Run(t, func(t *testing.T, bounds notetest.Bounds) notetest.Harness {
		dir := t.TempDir()
		var mu sync.Mutex
		now := epoch
		return notetest.Harness{
			Open: func(t testing.TB) notetest.Book {
				n, err := notebook.Open(durable.OS(dir), notebook.Limits(bounds), func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					return now
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := n.Close(); err != nil {
						t.Error(err)
					}
				})
				return n
			},
			Elapse: func() {
				mu.Lock()
				defer mu.Unlock()
				now = now.Add(time.Second)
			},
			Damage: func(t testing.TB) {
				name := filepath.Join(dir, "notes", "01")
				data, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				data[len(data)-5] ^= 1
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
