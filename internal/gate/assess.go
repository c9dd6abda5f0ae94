package gate

import (
	"slices"
	"strings"

	"github.com/fencepost/fencepost/runner"
)

// An assessed is one required fact with its verdict.
type assessed struct {
	Fact
	// Verdict is "met" or "unmet".
	Verdict string `json:"verdict"`
}

// An assessment is the external verification of a result: every fact that it
// rests on, what was expected, what was observed, and the verdict. DESIGN §8
type assessment []assessed

// assess lists what the provider showed at the second refresh, then what our
// own eyes saw: the fetched objects, the program, and that nothing changed
// between the refreshes.
func (e *evaluation) assess() assessment {
	second := e.second
	if second.Repository == "" {
		second = e.first
	}
	facts := append(slices.Clone(second.Facts),
		fact("candidate.tree", e.first.Candidate.Tree.String(), e.checked.candidateTree.String()),
		fact("candidate.parents", parentsText(e.first.Base.ID.String(), e.first.Head.ID.String()), e.parents()),
		fact("gate.revision", e.first.Revision.String(), second.Revision.String()),
		fact("plan.program", "sha256 "+e.gate.Plan.SHA256.String(), e.programSeen()),
	)
	a := make(assessment, len(facts))
	for i, f := range facts {
		a[i] = assessed{Fact: f, Verdict: "unmet"}
		if f.Met() {
			a[i].Verdict = "met"
		}
	}
	return a
}

// unmet names the first fact that is not met, or "".
func (a assessment) unmet() string {
	for _, f := range a {
		if f.Verdict != "met" {
			return f.Name
		}
	}
	return ""
}

func fact(name, expected, observed string) Fact {
	return Fact{Name: name, Expected: expected, Observed: observed}
}

// parents is the fetched candidate's, in a fixed order.
func (e *evaluation) parents() string {
	var ids []string
	for _, p := range e.checked.candidateParents {
		ids = append(ids, p.String())
	}
	return parentsText(ids...)
}

func parentsText(ids ...string) string {
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// programSeen is the digest that the runner found in the program that it ran:
// it runs no other.
func (e *evaluation) programSeen() string {
	if e.run == nil {
		return "not run"
	}
	if _, concluded := e.run.Outcome.(runner.Concluded); !concluded {
		return "no conclusion"
	}
	return "sha256 " + e.gate.Plan.SHA256.String()
}
