package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
)

// A checkedSource is what `check` says of a source.
type checkedSource struct {
	Source     string           `json:"source"`
	ID         string           `json:"id"`
	Provider   string           `json:"provider"`
	Repository string           `json:"repository"`
	Ref        string           `json:"ref"`
	Sink       string           `json:"sink"`
	Hook       string           `json:"hook"`
	Trust      string           `json:"trust"`
	Enabled    bool             `json:"enabled"`
	Policy     string           `json:"policy"`
	Freshness  checkedFreshness `json:"freshness"`
}

// A checkedFreshness is both sums against the target.
type checkedFreshness struct {
	Target   string     `json:"target"`
	Complete checkedSum `json:"complete"`
	Alert    checkedSum `json:"alert"`
}

// A checkedSum is one worst case.
type checkedSum struct {
	Terms []checkedTerm `json:"terms"`
	Total string        `json:"total"`
	// Kept says whether the total is within the target.
	Kept bool `json:"kept"`
}

// A checkedTerm is one summand.
type checkedTerm struct {
	Name  string `json:"name"`
	Times int    `json:"times"`
	Each  string `json:"each"`
}

func checkedSources(c *config.Config) []checkedSource {
	all := make([]checkedSource, 0, len(c.Sources))
	for _, s := range c.Sources {
		sums := s.Timings.Sums()
		all = append(all, checkedSource{
			Source: string(s.Route), ID: s.ID.String(), Provider: string(s.Provider), Repository: s.Repository.FullName(),
			Ref: s.Ref, Sink: string(s.Sink.Kind), Hook: "/hooks/" + string(s.Route), Trust: string(s.Trust), Enabled: s.Enabled,
			Policy: "sha256:" + s.Digest.String(),
			Freshness: checkedFreshness{
				Target:   s.Timings.Target.String(),
				Complete: checkSum(sums.Complete, s.Timings.Target), Alert: checkSum(sums.Alert, s.Timings.Target),
			},
		})
	}
	return all
}

func checkSum(terms []fencepost.Term, target time.Duration) checkedSum {
	total := fencepost.Total(terms)
	sum := checkedSum{Total: total.String(), Kept: total <= target}
	for _, t := range terms {
		sum.Terms = append(sum.Terms, checkedTerm{Name: t.Name, Times: t.Times, Each: t.Each.String()})
	}
	return sum
}

// printSources prints the sources and then their sums, once for all those
// whose sums are alike.
func (m Main) printSources(all []checkedSource) error {
	if len(all) == 0 {
		return nil
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		state := "enabled"
		if !s.Enabled {
			state = "off"
		}
		rows[i] = []string{s.Source, s.Provider, s.Repository, s.Ref, s.Sink, s.Hook, state, s.Policy}
	}
	if err := printTable(m.Out, []string{"SOURCE", "PROVIDER", "REPOSITORY", "REF", "SINK", "HOOK", "STATE", "POLICY"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(m.Out)
	for len(all) > 0 {
		var alike, rest []checkedSource
		for _, s := range all {
			if sameSums(s.Freshness, all[0].Freshness) {
				alike = append(alike, s)
			} else {
				rest = append(rest, s)
			}
		}
		if err := m.printFreshness(alike); err != nil {
			return err
		}
		all = rest
	}
	return nil
}

func sameSums(a, b checkedFreshness) bool {
	return a.Target == b.Target && slices.Equal(a.Complete.Terms, b.Complete.Terms) && slices.Equal(a.Alert.Terms, b.Alert.Terms)
}

// namedSources is how many sources are named above their sums.
const namedSources = 8

func (m Main) printFreshness(alike []checkedSource) error {
	names := make([]string, 0, namedSources)
	for _, s := range alike[:min(len(alike), namedSources)] {
		names = append(names, s.Source)
	}
	if more := len(alike) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	f := alike[0].Freshness
	fmt.Fprintf(m.Out, "freshness of %s, at worst:\n", strings.Join(names, ", "))
	var rows [][]string
	for _, sum := range []struct {
		path string
		checkedSum
	}{{"to complete", f.Complete}, {"to the alert", f.Alert}} {
		for _, t := range sum.Terms {
			rows = append(rows, []string{sum.path, t.Name, timesEach(t), ""})
		}
		verdict := "over " + f.Target
		if sum.Kept {
			verdict = "within " + f.Target
		}
		rows = append(rows, []string{sum.path, "= total", sum.Total, verdict})
	}
	if err := printTable(m.Out, []string{"PATH", "TERM", "TIME", "TARGET"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(m.Out)
	return nil
}

func timesEach(t checkedTerm) string {
	if t.Times == 1 {
		return t.Each
	}
	return fmt.Sprintf("%d × %s", t.Times, t.Each)
}
