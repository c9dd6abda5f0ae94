package lanetest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The rows of the table that says how many calls a lane makes.
const (
	rowFirst  = "first reading of the gate"
	rowLater  = "each later reading"
	rowLookUp = "look-up of what is shown"
	rowPass   = "publishing a pass"
	rowBlock  = "publishing a block"
	rowWhole  = "one evaluation in all"
)

// tally is a number of calls, and of requests to the Git server.
type tally struct{ api, git int }

// counted counts the calls of two evaluations by lanes that know nothing yet,
// one that passes and one that blocks, and holds them against the table of the
// lane's page. Of what Git is asked after the run, it is not known by whom: there
// the two later readings, the look-up and the publication are held together.
func counted(r *rig) {
	got := map[string]tally{}
	more := func(row string, n int) { got[row] = tally{api: max(got[row].api, n)} }
	q := r.world.Open(r, false)
	from, first := r.world.Fetches(), -1
	r.fetcher.before = func() {
		if first < 0 {
			first = r.world.Fetches() - from
		}
	}
	ran := 0
	r.program.set(false, func(int, string) { ran = r.world.Fetches() })
	r.verdict(q)
	git := r.world.Fetches() - from
	afterRun := map[string]int{rowPass: r.world.Fetches() - ran}
	pass := outside(r.wire.since(0))
	r.wantReadOnce(pass)
	for name, n := range perSpan(pass) {
		switch method, _, _ := strings.Cut(name, " "); {
		case name == spanRefresh+" 1":
			more(rowFirst, n)
		case method == spanRefresh:
			more(rowLater, n)
		case method == spanFind:
			more(rowLookUp, n)
		case method == spanCreate:
			more(rowPass, n)
		}
	}
	got[rowFirst] = tally{api: got[rowFirst].api, git: first}
	got[rowWhole] = tally{api: len(pass), git: git}
	r.program.set(true, func(int, string) { ran = r.world.Fetches() })
	before := r.wire.len()
	r.verdict(q)
	afterRun[rowBlock] = r.world.Fetches() - ran
	for name, n := range perSpan(outside(r.wire.since(before))) {
		if strings.HasPrefix(name, spanCreate+" ") {
			more(rowBlock, n)
		}
	}
	want := readCalls(r.T, r.suite.Calls)
	for _, row := range []string{rowFirst, rowLater, rowLookUp, rowPass, rowBlock, rowWhole} {
		at, ok := want[row]
		if !ok {
			r.Errorf("%s has no row %q; %+v were counted", r.suite.Calls, row, got[row])
			continue
		}
		if got[row].api > at.api || got[row].git > at.git {
			r.Errorf("%s: %+v calls, and %s says %+v at most", row, got[row], r.suite.Calls, at)
		}
	}
	for publishing, n := range afterRun {
		if most := 2*want[rowLater].git + want[rowLookUp].git + want[publishing].git; n > most {
			r.Errorf("%s: Git was asked %d times after the run, and %s says %d at most", publishing, n, r.suite.Calls, most)
		}
	}
	if r.Failed() {
		r.Log(pass)
	}
}

// outside are the calls of a provider.
func outside(calls []Call) []Call {
	return slices.DeleteFunc(calls, func(c Call) bool { return c.Own })
}

// perSpan counts calls by who made them.
func perSpan(calls []Call) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		n[c.Span]++
	}
	return n
}

// wantReadOnce fails if one reading of the gate asked for the same twice.
func (r *rig) wantReadOnce(calls []Call) {
	r.Helper()
	readings := 0
	seen := map[string]bool{}
	for _, c := range calls {
		if !strings.HasPrefix(c.Span, spanRefresh+" ") || !c.read() {
			continue
		}
		readings++
		key := c.String() + "?" + c.Query
		if seen[key] {
			r.Errorf("%s was made twice", key)
		}
		seen[key] = true
	}
	if readings == 0 {
		r.Error("no reading of the gate was seen: a lane passes its context on to its calls")
	}
}

// readCalls reads the rows "| name | calls | of Git |" of a page.
func readCalls(t *testing.T, path string) map[string]tally {
	t.Helper()
	rows := map[string]tally{}
	for _, cells := range table(t, path, "calls, at most") {
		if len(cells) != 3 {
			t.Errorf("%s: row %q has %d cells, want 3", path, cells, len(cells))
			continue
		}
		api, err := strconv.Atoi(cells[1])
		git, gitErr := strconv.Atoi(cells[2])
		if err != nil || gitErr != nil {
			t.Errorf("%s: row %q holds no numbers", path, cells)
		}
		rows[cells[0]] = tally{api, git}
	}
	return rows
}

// table reads the rows of the table whose first heading is that, their cells
// without blanks around.
func table(t *testing.T, path, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		row, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok {
			inside = false
			continue
		}
		cells := strings.Split(strings.TrimSuffix(row, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == heading:
			inside, rows = true, append(rows, cells)
		case inside:
			rows = append(rows, cells)
		}
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table %q", path, heading)
	}
	return rows[2:] // behind the heading and its rule
}

// documented holds the table of docs/lanes.md against what the lane runs: for
// each scenario its invariants, and "yes" or why not in the lane's column.
func documented(t *testing.T, s Suite) {
	const heading = "scenario"
	column := -1
	text, err := os.ReadFile(s.Docs)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(strings.TrimSpace(line), "|"); len(cells) > 3 && strings.TrimSpace(cells[1]) == heading {
			column = slices.IndexFunc(cells, func(c string) bool { return strings.TrimSpace(c) == s.Lane }) - 1
		}
	}
	if column < 0 {
		t.Fatalf("the table of %s has no column %q", s.Docs, s.Lane)
	}
	told := map[string][]string{}
	for _, cells := range table(t, s.Docs, heading) {
		told[cells[0]] = cells
	}
	for _, sc := range Scenarios() {
		want := "yes"
		if why := s.Absent[sc.Name]; why != "" {
			want = "no: " + why
		}
		cells, about := told[sc.Name], strings.Trim(strings.ReplaceAll(fmt.Sprint(sc.Invariants), " ", ", "), "[]")
		if len(cells) <= column || cells[1] != about || cells[column] != want {
			t.Errorf("%s: the row of %q is %q, want invariants %s, and in column %q: %s", s.Docs, sc.Name, cells, about, s.Lane, want)
		}
		delete(told, sc.Name)
	}
	for name := range told {
		t.Errorf("%s lists %q, which is no scenario", s.Docs, name)
	}
}
