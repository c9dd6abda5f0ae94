package gitfetch_test

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// packed is a scene with the tree of one file, in a pack to which more is
// added by hand before it is closed.
func packed(more func(f *forge), change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		var f forge
		commit := f.commit(f.tree(file("README", f.blob(fox))))
		more(&f)
		return sending(commit, f.b.Bytes(), change...)(t)
	}
}

// sending is a scene with those bytes as the pack.
func sending(commit fencepost.ObjectID, pack []byte, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		h := &host{advertisement: advertisement(), result: answerWith(commit, pack)}
		s := scene{url: h.start(t), commit: commit}
		if len(change) > 0 {
			s.change = change[0]
		}
		return []scene{s}
	}
}

// altered is a scene with a good pack that was changed.
func altered(change func(pack []byte) []byte) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		commit, pack := good()
		return sending(commit, change(pack))(t)
	}
}

// fox is the blob that handwritten deltas are on.
const fox = "the quick brown fox jumps over the lazy dog"

func foxID() fencepost.ObjectID { return packtest.ID(object.Blob, []byte(fox)) }

// raw adds an entry of those bytes.
func raw(parts ...[]byte) func(f *forge) {
	return func(f *forge) { f.b.Raw(parts...) }
}

// resealed gives a pack another header and its right trailer.
func resealed(p []byte, version, count uint32) []byte {
	q := slices.Clone(p[:len(p)-20])
	binary.BigEndian.PutUint32(q[4:], version)
	binary.BigEndian.PutUint32(q[8:], count)
	return packtest.Seal(q)
}

func countOf(p []byte) uint32 { return binary.BigEndian.Uint32(p[8:]) }

// budgets changes the budgets of a fetch.
func budgets(set func(b *gitfetch.Budgets)) func(*gitfetch.Request) {
	return func(r *gitfetch.Request) { set(&r.Budgets) }
}

func packAttacks() []attack {
	const form = "gitformat-pack"
	blob := []byte(fox + "!")
	n := int64(len(blob))
	zip := packtest.Deflate
	last := func(p []byte) []byte {
		p = slices.Clone(p)
		p[len(p)-1] ^= 1
		return p
	}
	preset := zip(blob)
	preset[1] = preset[1]&^0x1f | 0x20
	preset[1] += byte(31 - (uint(preset[0])<<8|uint(preset[1]))%31)
	return []attack{
		{"a pack of another name", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return packtest.Seal(append([]byte("PACX"), p[4:len(p)-20]...)) })},
		{"a bundle in place of a pack", "CVE-2025-48385", fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return append([]byte("# v2 git bundle\n\n"), p...) })},
		{"pack version 0", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 0, countOf(p)) })},
		{"pack version 3", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 3, countOf(p)) })},
		{"pack version 2 the other way round", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 2<<24, countOf(p)) })},
		{"a pack of no objects", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 2, 0) })},
		{"an empty pack", "closure", fails(gitfetch.ErrMissingObject), altered(func(p []byte) []byte { return resealed(p[:32], 2, 0) })},
		{"one entry more than there is", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 2, countOf(p)+1) })},
		{"one entry less than there is", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 2, countOf(p)-1) })},
		{"four thousand million entries", "preallocation", over(gitfetch.BudgetObjects), altered(func(p []byte) []byte { return resealed(p, 2, 0xffffffff) })},
		{"as many entries as the budget has", "preallocation", fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return resealed(p, 2, 200_000) })},
		{"a wrong trailer", form, fails(gitfetch.ErrPack), altered(last)},
		{"a trailer of zeros", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return append(slices.Clone(p[:len(p)-20]), make([]byte, 20)...) })},
		{"no trailer", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return p[:len(p)-20] })},
		{"a byte after the trailer", form, fails(gitfetch.ErrPack), altered(func(p []byte) []byte { return append(slices.Clone(p), 0) })},
		{"entry type 0", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(0, n), zip(blob)))},
		{"entry type 5", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(5, n), zip(blob)))},
		{"a size that never ends", form, fails(gitfetch.ErrPack), packed(raw(bytes.Repeat([]byte{0xbf}, 80)))},
		{"a size of 2^63", form, fails(gitfetch.ErrPack), packed(raw([]byte{0xb0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10}, zip(blob)))},
		{"a size of 2^62", "preallocation", over(gitfetch.BudgetFile), packed(raw(packtest.Header(3, 1<<62), zip(blob)))},
		{"a size with a group of zeros at its end", form, fails(gitfetch.ErrPack), packed(raw([]byte{0xb0 | byte(n&15), 0x80 | byte(n>>4), 0}, zip(blob)))},
		{"a size that is too small", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n-1), zip(blob)))},
		{"a size that is too large", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n+1), zip(blob)))},
		{"a size of zero for something", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, 0), zip(blob)))},
		{"a size for nothing", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), zip(nil)))},
		{"bytes that are not zlib", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), blob))},
		{"gzip in place of zlib", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x00"), zip(blob)[2:]))},
		{"a preset dictionary", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), preset))},
		{"a wrong Adler-32", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), last(zip(blob))))},
		{"no Adler-32", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), zip(blob)[:len(zip(blob))-4]))},
		{"a reserved kind of block", "RFC 1951", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), []byte{0x78, 0x9c, 0x07}, blob))},
		{"a stored block that contradicts itself", "RFC 1951", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), []byte{0x78, 0x9c, 0x01, byte(n), 0, 0, 0}, blob))},
		{"a copy from before the stream's start", "RFC 1951", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, n), []byte{0x78, 0x9c, 0x03 | 0x02<<1, 0x02, 0xff, 0xff, 0xff}))},
		{"two streams in one entry", "RFC 1950", fails(gitfetch.ErrPack), packed(raw(packtest.Header(3, 2*n), zip(blob), zip(blob)))},
		{"the same blob twice", "t/t5308", fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Object(object.Blob, []byte(fox)) })},
		{"the same tree twice", "t/t5308", fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Object(object.Tree, packtest.Tree(file("README", foxID()))) })},
		{"the same blob whole and as a delta", "t/t5308", fails(gitfetch.ErrPack), packed(func(f *forge) {
			n := int64(len(fox))
			f.b.Ref(foxID(), packtest.Delta(n, n, packtest.Copy(0, n)))
		})},
	}
}

func deltaAttacks() []attack {
	const form = "gitformat-pack"
	n := int64(len(fox))
	// on is a delta by id on the fox, with that text.
	on := func(text []byte, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
		return packed(func(f *forge) { f.b.Ref(foxID(), text) }, change...)
	}
	delta := packtest.Delta
	copies := packtest.Copy
	insert := packtest.Insert
	overflow := bytes.Repeat([]byte{0xff}, 10)
	return []attack{
		{"a delta on itself, by offset", "t/t5309", fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Entry(packtest.OfsDelta, 4, packtest.Distance(0), []byte("xxxx")) })},
		{"a delta on itself, by id", "t/t5309", fails(gitfetch.ErrPack), packed(func(f *forge) {
			id := packtest.ID(object.Blob, []byte("self"))
			f.b.Ref(id, delta(4, 4, copies(0, 4)))
		})},
		{"two deltas on each other", "t/t5309", fails(gitfetch.ErrPack), packed(func(f *forge) {
			f.b.Ref(packtest.ID(object.Blob, []byte("chicken")), delta(7, 3, insert("egg")))
			f.b.Ref(packtest.ID(object.Blob, []byte("egg")), delta(3, 7, insert("chicken")))
		})},
		{"a ring of a thousand deltas", "t/t5309", fails(gitfetch.ErrPack), packed(func(f *forge) {
			for i := range 1000 {
				f.b.Ref(packtest.ID(object.Blob, []byte{byte(i), byte(i >> 8)}), delta(2, 2, insert(string([]byte{byte((i + 1) % 1000), byte((i + 1) % 1000 >> 8)}))))
			}
		})},
		{"a base before the first entry", form, fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Ofs(4, delta(n, 1, copies(0, 1))) })},
		{"a base before the pack", form, fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Ofs(-5, delta(n, 1, copies(0, 1))) })},
		{"a base within an entry", form, fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Ofs(13, delta(n, 1, copies(0, 1))) })},
		{"a distance that overflows", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(6, 4), bytes.Repeat([]byte{0xff}, 12), packtest.Deflate([]byte("xxxx"))))},
		{"a distance that never ends", form, fails(gitfetch.ErrPack), packed(raw(packtest.Header(6, 4), bytes.Repeat([]byte{0x80}, 200)))},
		{"a base that is not in the pack", form, fails(gitfetch.ErrPack), packed(func(f *forge) { f.b.Ref(fencepost.ObjectID{1}, delta(n, 1, copies(0, 1))) })},
		{"a delta on one whose base is not in the pack", form, fails(gitfetch.ErrPack), packed(func(f *forge) {
			at := f.b.Offset()
			f.b.Ref(fencepost.ObjectID{1}, delta(n, 1, copies(0, 1)))
			f.b.Ofs(at, delta(1, 1, copies(0, 1)))
		})},
		{"twenty thousand deltas that wait for nothing", "memory", fails(gitfetch.ErrPack), roomy(40<<20, packed(func(f *forge) {
			text := delta(n, 1, copies(0, 1))
			entry := slices.Concat(packtest.Header(packtest.RefDelta, int64(len(text))), make([]byte, 20), packtest.Deflate(text))
			for range 20_000 {
				f.b.Raw(entry)
			}
		}))},
		{"a base of another size", form, fails(gitfetch.ErrPack), on(delta(n+1, 1, copies(0, 1)))},
		{"a result that is not filled", form, fails(gitfetch.ErrPack), on(delta(n, 9, insert("four")))},
		{"an insertion beyond the result", form, fails(gitfetch.ErrPack), on(delta(n, 3, insert("four")))},
		{"a copy beyond the result", form, fails(gitfetch.ErrPack), on(delta(n, 3, copies(0, 4)))},
		{"a copy beyond the base", form, fails(gitfetch.ErrPack), on(delta(n, 2, copies(n-1, 2)))},
		{"a copy from beyond the base", form, fails(gitfetch.ErrPack), on(delta(n, 1, copies(0xffffffff, 1)))},
		{"a copy of 64 KiB by its short form", form, fails(gitfetch.ErrPack), on(delta(n, 0x10000, copies(0, 0x10000)))},
		{"more after the result is full", form, fails(gitfetch.ErrPack), on(delta(n, 4, insert("four"), insert("x")))},
		{"the reserved instruction", form, fails(gitfetch.ErrPack), on(delta(n, 1, []byte{0}, insert("x")))},
		{"an insertion cut short", form, fails(gitfetch.ErrPack), on(delta(n, 9, []byte{9, 'x'}))},
		{"a copy cut short", form, fails(gitfetch.ErrPack), on(delta(n, 9, []byte{0xff, 1}))},
		{"a delta of nothing", form, fails(gitfetch.ErrPack), on(nil)},
		{"a delta of three bytes", form, fails(gitfetch.ErrPack), on([]byte{byte(n), 1, 1})},
		{"a delta without instructions", form, fails(gitfetch.ErrPack), on(delta(n, 4, nil))},
		{"a base size that overflows", form, fails(gitfetch.ErrPack), on(append(slices.Clone(overflow), delta(n, 1, insert("x"))...))},
		{"a result size that overflows", form, fails(gitfetch.ErrPack), on(slices.Concat(packtest.Size(n), overflow, insert("x")))},
		{"a base size with a group of zeros at its end", form, fails(gitfetch.ErrPack), on(slices.Concat([]byte{byte(n) | 0x80, 0}, packtest.Size(1), insert("x")))},
		{"a delta that announces a pebibyte", "delta bomb", over(gitfetch.BudgetFile), on(delta(n, 1<<50, copies(0, n)))},
		{"a delta that makes a hundred and one MiB", "delta bomb", over(gitfetch.BudgetFile), roomy(16<<20, packed(func(f *forge) {
			base := f.blob(strings.Repeat("x", 0x10000))
			f.b.Ref(base, delta(0x10000, 101<<20, bytes.Repeat([]byte{0x80}, 101<<4)))
		}))},
		{"a thousand deltas that make a MiB each", "delta bomb", over(gitfetch.BudgetInflated), packed(func(f *forge) {
			base := f.blob(strings.Repeat("x", 0x10000))
			for i := range 1000 {
				f.b.Ref(base, delta(0x10000, 1<<20+2, bytes.Repeat([]byte{0x80}, 16), insert(string([]byte{byte(i), byte(i >> 8)}))))
			}
		}, budgets(func(b *gitfetch.Budgets) { b.InflatedBytes = 32 << 20 }))},
		{"each delta as large as all before it", "delta bomb", over(gitfetch.BudgetInflated), packed(func(f *forge) {
			id, size := foxID(), n
			for range 30 {
				text := delta(size, 2*size, copies(0, min(size, 0xffffff)), copies(0, min(size, 0xffffff)))
				f.b.Ref(id, text)
				size *= 2
				id = packtest.ID(object.Blob, bytes.Repeat([]byte(fox), int(size/n)))
				if size > 4<<20 {
					return
				}
			}
		}, budgets(func(b *gitfetch.Budgets) { b.InflatedBytes = 4 << 20 }))},
		{"a chain of three hundred deltas", "delta chain", over(gitfetch.BudgetDeltaDepth), packed(chain(300))},
		{"a chain of three hundred deltas, the last first", "delta chain", over(gitfetch.BudgetDeltaDepth), packed(backwards(300))},
		{"copies of one byte, in millions", "time", over(gitfetch.BudgetTotal), roomy(16<<20, packed(func(f *forge) {
			// The base comes after it and is too large to be in memory.
			const copied, size = 4 << 20, 1<<20 + 1
			base := bytes.Repeat([]byte("x"), size)
			f.b.Ref(packtest.ID(object.Blob, base), delta(size, copied, bytes.Repeat([]byte{0x90, 1}, copied)))
			f.b.Object(object.Blob, base)
		}, within(time.Minute, 100*time.Millisecond)))},
	}
}

// roomy lets a scene's fetch allocate more.
func roomy(most uint64, scenes func(*testing.T) []scene) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		s := scenes(t)
		for i := range s {
			s[i].most = most
		}
		return s
	}
}

// chain adds blobs that are each a delta on the one before.
func chain(n int) func(f *forge) {
	return func(f *forge) {
		id := foxID()
		for i := range n {
			size := int64(len(fox) + i)
			f.b.Ref(id, packtest.Delta(size, size+1, packtest.Copy(0, size), packtest.Insert("!")))
			id = packtest.ID(object.Blob, []byte(fox+strings.Repeat("!", i+1)))
		}
	}
}

// backwards is chain with each delta before its base.
func backwards(n int) func(f *forge) {
	return func(f *forge) {
		for i := n - 1; i >= 0; i-- {
			size := int64(len(fox) + i)
			f.b.Ref(packtest.ID(object.Blob, []byte(fox+strings.Repeat("!", i))), packtest.Delta(size, size+1, packtest.Copy(0, size), packtest.Insert("!")))
		}
	}
}

// Everything that happens to the bytes of one small answer or pack.
func damageAttacks() []attack {
	// many are scenes on one server, whose second answer is another each time.
	many := func(t *testing.T, commit fencepost.ObjectID, bodies [][]byte) []scene {
		var now atomic.Pointer[[]byte]
		h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(*now.Load()) }}
		url := h.start(t)
		var s []scene
		for _, body := range bodies {
			s = append(s, scene{url: url, commit: commit, before: func() { now.Store(&body) }})
		}
		return s
	}
	each := func(change func(commit fencepost.ObjectID, pack []byte, try func([]byte))) func(*testing.T) []scene {
		return func(t *testing.T) []scene {
			var f forge
			commit := goodTree(&f)
			var bodies [][]byte
			for _, pack := range [][]byte{f.b.Bytes(), f.inGitOrder(commit)} {
				change(commit, pack, func(body []byte) { bodies = append(bodies, body) })
			}
			return many(t, commit, bodies)
		}
	}
	return []attack{
		{"a pack cut short at each byte", "every prefix", fails(gitfetch.ErrPack), each(func(c fencepost.ObjectID, p []byte, try func([]byte)) {
			for i := range p {
				try(answerWith(c, p[:i]))
			}
		})},
		{"an answer cut short at each byte", "every prefix", anyError(), each(func(c fencepost.ObjectID, p []byte, try func([]byte)) {
			whole := answerWith(c, p)
			for i := range whole {
				try(whole[:i])
			}
		})},
		{"a pack with one bit wrong in each byte", "every byte", anyError(), each(func(c fencepost.ObjectID, p []byte, try func([]byte)) {
			for i := range p {
				q := slices.Clone(p)
				q[i] ^= 1 << (i % 8)
				try(answerWith(c, q))
			}
		})},
		{"a pack with each byte turned round, and its trailer put right", "every byte", anyError(), each(func(c fencepost.ObjectID, p []byte, try func([]byte)) {
			for i := range len(p) - 20 {
				q := slices.Clone(p[:len(p)-20])
				q[i] ^= 0xff
				try(answerWith(c, packtest.Seal(q)))
			}
		})},
		{"a pack with a byte missing, and its trailer put right", "every byte", anyError(), each(func(c fencepost.ObjectID, p []byte, try func([]byte)) {
			for i := range len(p) - 20 {
				try(answerWith(c, packtest.Seal(slices.Delete(slices.Clone(p[:len(p)-20]), i, i+1))))
			}
		})},
	}
}

// zeroStream is the zlib stream of that many MiB of zeros, which takes about a
// thousandth of it.
func zeroStream(mib int) []byte {
	one := make([]byte, 1<<20)
	units := packtest.Flushed(one, one)
	p := slices.Clone(units[0])
	for range mib - 1 {
		p = append(p, units[1]...)
	}
	p = append(p, 0x03, 0x00)
	// Adler-32 of zeros: one sum stays 1, the other counts them.
	return binary.BigEndian.AppendUint32(p, uint32(mib<<20%65521)<<16|1)
}
