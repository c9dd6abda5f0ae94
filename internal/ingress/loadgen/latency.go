package loadgen

import (
	"math/bits"
	"time"
)

// subBuckets is how many buckets each doubling has: a quantile is exact to
// one part in 16.
const (
	subBits    = 4
	subBuckets = 1 << subBits
)

// A Latency counts durations in buckets that grow with them.
type Latency struct {
	counts [(64 - subBits) * subBuckets]int64
	n      int64
}

// Record counts d; a negative one as 0.
func (l *Latency) Record(d time.Duration) {
	l.counts[bucket(uint64(max(d, 0)))]++
	l.n++
}

// Add counts all that other has.
func (l *Latency) Add(other *Latency) {
	for i, n := range other.counts {
		l.counts[i] += n
	}
	l.n += other.n
}

// Quantile is the upper end of the bucket that the q-th part of all durations
// lies in or below; 0 without any. q is from 0 to 1.
func (l *Latency) Quantile(q float64) time.Duration {
	rest := int64(q * float64(l.n))
	for i, n := range l.counts {
		if rest -= n; n > 0 && rest <= 0 {
			return time.Duration(upper(i))
		}
	}
	return 0
}

// bucket is the place of n: below 16 each number has its own, and above each
// doubling has 16.
func bucket(n uint64) int {
	if n < subBuckets {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - subBits
	return shift*subBuckets + int(n>>shift)
}

// upper is the largest number in the bucket.
func upper(i int) uint64 {
	if i < 2*subBuckets {
		return uint64(i)
	}
	shift := i/subBuckets - 1
	return uint64(i%subBuckets+subBuckets+1)<<shift - 1
}
