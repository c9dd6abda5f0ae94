package sink_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source/sink"
)

// Several processes start at once over one file system: none may take what
// another one tries the place with for a leftover, nor fail for it.
func TestProbesOfOnePlaceAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := filepath.Join(t.TempDir(), "site")
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				d, err := sink.NewDirectory(sink.DirectoryOptions{Source: fencepost.SourceID{1}, Path: path, AllowVolatile: true, Now: time.Now})
				if err != nil {
					t.Error(err)
					return
				}
				if err := d.Probe(t.Context()); err != nil {
					t.Errorf("Probe = %v", err)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
