package ledger_test

import (
	"math"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

func TestGrowthIsTheMeanOfAWeekOrOfWhatThereIs(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	x := newTable(t)
	rows := func(since ...time.Duration) ledger.Ages {
		var a ledger.Ages
		for _, ago := range since {
			r := x.row(ledger.Done, 0)
			r.Since = noon.Add(-ago)
			a.Add(r, noon)
		}
		return a
	}
	bounded := x.row(ledger.Done, 0)
	bounded.Lifetime = fencepost.BoundedUntil(noon)
	bounded.Since = noon
	var alsoBounded ledger.Ages
	alsoBounded.Add(bounded, noon)
	for _, tt := range []struct {
		name string
		ages ledger.Ages
		want float64
	}{
		{"nothing", ledger.Ages{}, 0},
		{"a first hour counts as a day", rows(0, time.Hour, time.Minute), 3},
		{"three days", rows(0, day, 2*day, 3*day), 4.0 / 3},
		{"a week of years", rows(0, day, 7*day, 400*day, 500*day), 3.0 / 7},
		{"nothing lately", rows(400*day, 401*day), 0},
		{"bounded rows go again", alsoBounded, 0},
	} {
		if got := tt.ages.PerDay(noon); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v a day, want %v", tt.name, got, tt.want)
		}
	}
	if a := rows(day, 3*day, 2*day); !a.Oldest.Equal(noon.Add(-3 * day)) {
		t.Errorf("oldest = %v", a.Oldest)
	}
}

func TestWhenALedgerIsNearFull(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		rows, capacity int
		perDay         float64
		near, told     bool
		days           float64
	}{
		{"empty", 0, 1000, 0, false, false, 0},
		{"below the share", 899, 1000, 0, false, false, 0},
		{"at the share", 900, 1000, 0, true, false, 0},
		{"full", 1000, 1000, 0, true, true, 0},
		{"over", 1001, 1000, 5, true, true, 0},
		{"within a month", 100, 1000, 30, true, true, 30},
		{"after a month", 100, 1000, 29, false, true, 900.0 / 29},
		{"in a hundred years and more", 0, 10_000_000, 1, false, false, 0},
	} {
		left, told := ledger.FullIn(tt.rows, tt.capacity, tt.perDay)
		if got := ledger.NearFull(tt.rows, tt.capacity, tt.perDay, ledger.NearFullIn); got != tt.near || told != tt.told || math.Abs(left.Hours()/24-tt.days) > 1e-6 {
			t.Errorf("%s: near %v, full in %v (%v); want %v, %v days (%v)", tt.name, got, left, told, tt.near, tt.days, tt.told)
		}
	}
}
