package lanetest

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// A Suite is the suite for one lane.
type Suite struct {
	// Lane names the lane as the column of the table in docs/lanes.md does.
	Lane string
	// New makes a world for one scenario. Its clock is now, and every call of
	// its lanes goes through the wire; it cleans up after itself.
	New func(t testing.TB, now func() time.Time, wire *Wire) World
	// Writes reports whether a call shows a result, or a part of one: "POST
	// /path", or a name that [Wire.Do] was given.
	Writes func(op string) bool
	// Fetched is set where results are kept on our own side until somebody
	// fetches them: no provider can tell to wait with them.
	Fetched bool
	// Twin is set for a second product of the same lane, whose client is tried at
	// the first: of its calls, every other one is answered by a server error.
	Twin bool
	// Absent says why the lane can't have a scenario, by the scenario's name.
	Absent map[string]string
	// Docs is the path of docs/lanes.md, Calls that of the page whose table
	// says how many calls the lane makes at most.
	Docs, Calls string
}

// A Scenario is one thing that can happen to an evaluation.
type Scenario struct {
	// Name is what [Suite.Absent] and docs/lanes.md call it.
	Name string
	// Invariants are those of DESIGN §2 that it is about.
	Invariants []int
	run        func(*rig)
}

// Scenarios lists all of them.
func Scenarios() []Scenario {
	return []Scenario{
		{"pass", []int{7, 9}, passes},
		{"block", []int{7, 9}, blocks},
		{"head moves in the run", []int{9}, superseded},
		{"head moves once staged", []int{6, 9}, supersededOnceStaged},
		{"head moves while it is published", []int{7, 9}, supersededAsPublished},
		{"closed in the run", []int{9}, closed},
		{"made ready, event lost", []int{9}, madeReady},
		{"reopened in the run, event lost", []int{9}, reopened},
		{"base moves in the run", []int{9}, movedBase},
		{"answer of a write lost", []int{7, 8}, lostAnswer},
		{"write lost", []int{7, 8}, lostWrite},
		{"duplicate delivery", []int{4, 6}, duplicate},
		{"server error at each call", []int{7, 8, 17}, stumbles},
		{"rate limit", []int{8, 17}, limited},
		{"repository renamed", []int{2, 9}, renamed},
		{"fork deleted", []int{2, 11}, deletedFork},
		{"authorization revoked in the run", []int{9}, revoked},
		{"rule weakened in the run", []int{9}, weakened},
		{"foreign result of our name", []int{9}, foreign},
		{"other result under our id", []int{7}, impersonated},
		{"crash between write and completion", []int{6, 7}, crashed},
		{"stale worker", []int{5, 7}, stale},
	}
}

// Run runs every scenario that the lane has, each in a world of its own, counts
// the lane's calls, and holds the documentation against both.
func Run(t *testing.T, s Suite) {
	names := map[string]bool{}
	for _, sc := range Scenarios() {
		names[sc.Name] = true
		if s.Absent[sc.Name] != "" {
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, s)
			sc.run(r)
			r.wantClean()
		})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Absent)) {
		if !names[name] || s.Absent[name] == "" {
			t.Errorf("%q is declared absent for %q: want a scenario's name, and a reason", name, s.Absent[name])
		}
	}
	t.Run("calls", func(t *testing.T) {
		t.Parallel()
		counted(newRig(t, s))
	})
	t.Run("documentation", func(t *testing.T) {
		t.Parallel()
		documented(t, s)
	})
}
