package gate

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// verdict is the program's own conclusion, for the gate that both refreshes
// agree on.
func (e *evaluation) verdict() Verdict {
	c, ok := e.run.Outcome.(runner.Concluded)
	if !ok {
		return e.failure(fencepost.ReasonMismatch)
	}
	v := e.blank()
	v.Title, v.Summary = oneLine(c.Result.Title), markdown(c.Result.Summary)
	if c.Result.Conclusion == check.ConclusionPass {
		v.Conclusion = Pass
	}
	if v.Title == "" {
		v.Title = string(e.gate.Name)
	}
	if unmet := e.assess().unmet(); v.Conclusion == Pass && e.gate.Plan.ExternalVerification && unmet != "" {
		return e.failure(fencepost.ReasonGateUnproven)
	}
	return v
}

// failure is the verdict where the program gave none.
func (e *evaluation) failure(r fencepost.Reason) Verdict {
	v := e.blank()
	v.Reason = r
	v.Title, v.Summary = explain(r)
	if r == fencepost.ReasonGateUnproven {
		v.Summary += unmet(e.seen().Facts)
	}
	if e.note.Failures > 0 {
		v.Summary += fmt.Sprintf(" It was tried %d times.", e.note.Failures)
	}
	return v
}

// maxUnmet is how many facts a summary names.
const maxUnmet = 32

// unmet names the facts that are not as they must be, with their mends, and none
// of what was seen instead: that is in the evidence, for operators.
func unmet(facts []Fact) string {
	var names []string
	for _, f := range facts {
		if f.Met() || len(names) == maxUnmet {
			continue
		}
		name := "`" + f.Name + "`"
		if f.Mend != "" {
			name += " (" + f.Mend + ")"
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return " Not as it must be: " + strings.Join(names, ", ") + "."
}

// seen is the last reading of the gate that has a revision, or the first one.
func (e *evaluation) seen() Snapshot {
	if e.second.Revision.IsZero() {
		return e.first
	}
	return e.second
}

// blank is a failure of this evaluation without words.
func (e *evaluation) blank() Verdict {
	s := e.seen()
	return Verdict{
		Gate: e.gate.Name, Delivery: e.delivery.ID(), Evaluation: e.tenure.current().Evaluation(),
		Subject: e.subject, Conclusion: Fail, Revision: s.Revision,
		Received: e.delivery.Received(), Started: e.started, Completed: e.pool.Now(),
	}
}

// oneLine makes one line of a program's title, line breaks and controls out, cut
// to [MaxTitle] characters, with no blank at its end.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.Map(printable, strings.ToValidUTF8(s, "?"))), " ")
	for utf8.RuneCountInString(s) > MaxTitle {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimRight(s, " ")
}

// markdown makes clean Markdown of a program's summary: no controls but line ends
// and tabs, no blanks at its end, cut to [MaxSummary] bytes. Providers would
// otherwise do as much, and what they show would not be what was staged.
func markdown(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\r\n", "\n")
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, s)
	for len(s) > MaxSummary {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return strings.TrimRightFunc(s, unicode.IsSpace)
}

// printable replaces controls by blanks.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// explain says in words what a reason means to whoever opened the request.
func explain(r fencepost.Reason) (title, summary string) {
	switch r {
	case fencepost.ReasonTimeout:
		return "The check took too long", "The program did not end within its time and was stopped."
	case fencepost.ReasonMissingOutput:
		return "The check left no result", "The program ended without writing a result."
	case fencepost.ReasonOversizedOutput:
		return "The check's output is too large", "Report or result are over their limit."
	case fencepost.ReasonMalformedOutput:
		return "The check's output is malformed", "Report or result are not what the run contract asks for."
	case fencepost.ReasonMismatch:
		return "The check contradicts itself", "Exit status, ids, digests and conclusion do not agree."
	case fencepost.ReasonRuntimeTampered:
		return "The run was tampered with", "The program was altered, or the names of its outputs were replaced."
	case fencepost.ReasonProgramDigest:
		return "The check is not the pinned one", "The program in the action repository does not have the digest that the plan pins."
	case fencepost.ReasonContent:
		return "The content breaks a rule", "The tree holds something that the gate's content policy refuses."
	case fencepost.ReasonNotMergeable:
		return "The request can't be merged", "It has conflicts with the base branch, or must contain its present tip and does not. Bring it up to date and push."
	case fencepost.ReasonGateUnproven:
		return "The gate is not proven", "The rule of the base branch does not require this check in the way that the gate needs, or lets somebody past it, or the request is one that the gate can't judge. The evidence names each setting."
	case fencepost.ReasonForeignStatus:
		return "Another result bears this name", "A result of the same name that this gate did not make stands on what would be merged."
	case fencepost.ReasonGateChanged:
		return "The gate keeps changing", "The rule or the authorization changed while the check ran, each time."
	case fencepost.ReasonAcquisition:
		return "The content could not be fetched", "Fetching the exact commits failed."
	case fencepost.ReasonProvider:
		return "The provider failed", "The provider did not answer, or not as it should."
	case fencepost.ReasonEvidence:
		return "The evidence could not be stored", "Without stored evidence nothing passes."
	case fencepost.ReasonUnavailable:
		return "The check could not run", "Something that the run needs was not available."
	}
	return "The check gave no result", "The evaluation ended without a conclusion."
}
