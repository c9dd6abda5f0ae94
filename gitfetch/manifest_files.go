package gitfetch

import (
	"iter"

	"github.com/fencepost/fencepost"
)

// Files yields the files that were there, in the order of their paths' bytes,
// as [Checkout.Files] does.
func (m *Manifest) Files() iter.Seq[File] {
	return func(yield func(File) bool) {
		for i := range m.nodes {
			n := &m.nodes[i]
			if !isFile(n.mode) || n.out {
				continue
			}
			f := File{Path: pathOf(m.nodes, int32(i)), Mode: Mode(n.mode), Size: n.size, Blob: fencepost.BlobID{ObjectID: n.id}}
			if !yield(f) {
				return
			}
		}
	}
}
