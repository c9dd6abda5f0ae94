package gate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// reasons reads the closed list out of the root package.
func reasons(t *testing.T) map[string]fencepost.Reason {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../../reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]fencepost.Reason{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all[v.Names[0].Name] = fencepost.Reason(text)
		}
	}
	if len(all) < 40 {
		t.Fatalf("%d reasons read", len(all))
	}
	return all
}

func TestEveryReasonHasAFate(t *testing.T) {
	t.Parallel()
	for name, r := range reasons(t) {
		fate, ok := gate.FateOf(r)
		if r == fencepost.ReasonNone {
			if ok {
				t.Errorf("%s has the fate %d", name, fate)
			}
			continue
		}
		if !ok || fate < gate.FateFail || fate > gate.FateLost {
			t.Errorf("%s: what becomes of it is not said", name)
		}
	}
	if _, ok := gate.FateOf("made_up"); ok {
		t.Error("an unknown reason has a fate")
	}
}

func TestFatesOfDesign(t *testing.T) {
	t.Parallel()
	for want, rs := range map[gate.Fate][]fencepost.Reason{
		gate.FateFail: {
			fencepost.ReasonTimeout, fencepost.ReasonMissingOutput, fencepost.ReasonOversizedOutput,
			fencepost.ReasonMalformedOutput, fencepost.ReasonMismatch, fencepost.ReasonRuntimeTampered,
		},
		gate.FateRetry: {fencepost.ReasonUnavailable, fencepost.ReasonAcquisition, fencepost.ReasonProvider},
		gate.FateNone:  {fencepost.ReasonSuperseded},
		gate.FateLost:  {fencepost.ReasonLost},
		gate.FateDrop:  {fencepost.ReasonRevoked, fencepost.ReasonTampered, fencepost.ReasonExpired},
	} {
		for _, r := range rs {
			if got, _ := gate.FateOf(r); got != want {
				t.Errorf("%s: fate %d, want %d", r, got, want)
			}
		}
	}
}
