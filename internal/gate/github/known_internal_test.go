package github

import (
	"encoding/binary"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

func numbered(n int) (gate.Commit, []fencepost.CommitID) {
	var c gate.Commit
	binary.BigEndian.PutUint64(c.ID.ObjectID[:], uint64(n)+1)
	binary.BigEndian.PutUint64(c.Tree.ObjectID[:], uint64(n)+1)
	return c, []fencepost.CommitID{c.ID}
}

func TestWhatIsRememberedOfCommitsIsBounded(t *testing.T) {
	t.Parallel()
	var c commits
	always, _ := numbered(0)
	for n := range 10 * maxKnown {
		commit, parents := numbered(n)
		c.put(commit, parents)
		if got, of, ok := c.get(commit.ID); !ok || got != commit || len(of) != 1 || of[0] != commit.ID {
			t.Fatalf("commit %d came back as %v of %v, %v", n, got, of, ok)
		}
		if held := len(c.recent) + len(c.older); held > maxKnown {
			t.Fatalf("%d commits are held, at most %d may be", held, maxKnown)
		}
		// What is asked for again and again stays.
		if _, _, ok := c.get(always.ID); !ok {
			t.Fatalf("the commit that is in use was forgotten after %d others", n)
		}
	}
	if _, _, ok := c.get(fencepost.CommitID{ObjectID: fencepost.ObjectID{0: 0xff}}); ok {
		t.Error("a commit is known that was never seen")
	}
	octopus, _ := numbered(-2)
	c.put(octopus, make([]fencepost.CommitID, maxKnownParents+1))
	if _, _, ok := c.get(octopus.ID); ok {
		t.Error("a commit of too many parents is held")
	}
}
