package inbox

import "time"

// A commit costs much the same whatever is in it: a write, a sync, and waking
// up those who wait. When many requests come at once and the processors are
// busy with them, small commits take from the processors what the requests
// need, and the more commits there are, the smaller each one is. So a leader
// that finds several requests in its batch waits a moment for more. One that
// finds fewer than gatherFrom does not: a lone sender never waits.
const (
	// gatherFrom is how many requests show that more are likely.
	gatherFrom = 4
	// gatherMost is how many a leader waits for at most: more would save
	// little.
	gatherMost = 32
	// gatherPause is for how many commits nothing larger is tried after a
	// wait that was in vain.
	gatherPause = 64
)

// A gathering learns how many requests are worth waiting for: one more after
// each wait that they all came in, no more than came after one that ran out.
// It is guarded by its journal's qmu.
type gathering struct {
	goal  int
	pause int // commits until goal may grow
}

// want is how many requests a batch of n waits for; at most n means no wait.
func (g *gathering) want(n int) int {
	if n < gatherFrom {
		return n
	}
	return max(g.goal, gatherFrom+1)
}

// learn takes note of how many came of those that were wanted.
func (g *gathering) learn(want, came int) {
	switch {
	case came < want:
		g.goal, g.pause = came, gatherPause
	case g.pause > 0:
		g.pause--
	case came >= gatherFrom:
		g.goal = min(want+1, gatherMost)
	}
}

// gather waits until the batch has the company that is worth waiting for, for
// no longer than the configured time. The caller leads the batch.
func (j *journal) gather(b *batch) {
	wait := j.box.cfg.Gather
	if wait < 0 {
		return
	}
	j.qmu.Lock()
	want := j.gathering.want(len(b.requests))
	b.want = want
	enough := len(b.requests) >= want
	j.qmu.Unlock()
	if !enough {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-b.full:
		case <-timer.C:
		}
	}
	j.qmu.Lock()
	defer j.qmu.Unlock()
	j.gathering.learn(want, len(b.requests))
}
