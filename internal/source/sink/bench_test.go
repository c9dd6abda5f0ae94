package sink

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
)

// BenchmarkDirectorySwitch is what an application takes from the checkout to
// the end: 20,000 files of 4 KiB in 1,000 directories, 50 of them changed. The
// metric visible-ms is until readers see it.
func BenchmarkDirectorySwitch(b *testing.B) {
	const count, changed, size = 20_000, 50, 4 << 10
	r := newRepo(b)
	tree := files{}
	for i := range count {
		tree[fmt.Sprintf("d%d/e%d/f%d", i%20, i%1000, i)] = strings.Repeat(fmt.Sprintf("%08d", i), size/8)
	}
	paths := make([]string, 0, count)
	for p := range maps.Keys(tree) {
		paths = append(paths, p)
	}
	o := options(filepath.Join(b.TempDir(), "served"), newClock())
	o.Now, o.Grace = time.Now, -1
	d, err := NewDirectory(o)
	must(b, err)
	defer func() { must(b, d.Close()) }()
	var visible, fetched time.Duration
	for n := uint64(1); b.Loop(); n++ {
		b.StopTimer()
		for i := range changed {
			tree[paths[(int(n)*changed+i)%count]] = fmt.Sprint(n)
		}
		commit := r.commit(b, tree)
		place, err := d.Place(b.Context())
		must(b, err)
		begun := time.Now()
		c, err := fetch(b.Context(), r.url, commit, place)
		must(b, err)
		fetched += time.Since(begun)
		b.StartTimer()
		begun = time.Now()
		a := source.Application{Hold: source.Hold{Fence: n}, Revision: testRevision(), Checkout: c, Guard: granted}
		a.Guard = func(context.Context) error { visible += time.Since(begun); return nil }
		applied, err := d.Apply(b.Context(), a)
		must(b, err)
		must(b, applied.Leftover)
	}
	b.ReportMetric(float64(visible.Milliseconds())/float64(b.N), "visible-ms/op")
	b.ReportMetric(float64(fetched.Milliseconds())/float64(b.N), "fetch-ms/op")
}
