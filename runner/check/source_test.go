package check_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// sourceRequest is the request of a source's run.
func sourceRequest() check.Request {
	r := request()
	r.Delivery = ""
	r.Base.Commit, r.Base.Tree = commit("5"), tree("6")
	r.Head = check.Revision{Commit: commit("5"), Tree: tree("6")}
	r.Source = &check.Source{ID: "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11", Revision: check.DigestOf([]byte("policy")), Fence: "18446744073709551615"}
	return r
}

func TestARequestOfASourceNamesItAndItsFence(t *testing.T) {
	t.Parallel()
	req := sourceRequest()
	b, err := req.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Contains(s, "delivery") || !strings.Contains(s, `"source":{"fence":"18446744073709551615","id":"5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11","revision":"`) {
		t.Errorf("request = %s", s)
	}
	back, err := check.DecodeRequest(b)
	if err != nil || back.Source == nil || *back.Source != *req.Source {
		t.Errorf("decoded: %+v, %v", back.Source, err)
	}
}

func TestARequestOfASourceOutsideTheContractIsRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*check.Request){
		"with a delivery":   func(r *check.Request) { r.Delivery = "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa" },
		"neither":           func(r *check.Request) { r.Source = nil },
		"id":                func(r *check.Request) { r.Source.ID = "x" },
		"revision":          func(r *check.Request) { r.Source.Revision = check.Digest{} },
		"no fence":          func(r *check.Request) { r.Source.Fence = "0" },
		"fence with a sign": func(r *check.Request) { r.Source.Fence = "+1" },
		"fence padded":      func(r *check.Request) { r.Source.Fence = "01" },
		"another head":      func(r *check.Request) { r.Head.Commit = commit("7") },
		"another base":      func(r *check.Request) { r.Base.Commit = commit("7") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := sourceRequest()
			spoil(&req)
			if _, err := req.Encode(); !errors.Is(err, fencepost.ErrMalformed) {
				t.Errorf("Encode: %v, want ErrMalformed", err)
			}
		})
	}
}
