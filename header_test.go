package fencepost_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
)

func TestHeadersHaveOneOrder(t *testing.T) {
	t.Parallel()
	want := []fencepost.Header{
		{Name: "a", Value: "2"}, {Name: "b", Value: "3"}, {Name: "b", Value: "1"}, {Name: "b-", Value: ""},
	}
	fromPairs := fencepost.NewHeaders([]fencepost.Header{
		{Name: "B", Value: "3"}, {Name: "b-", Value: ""}, {Name: "b", Value: "1"}, {Name: "A", Value: "2"},
	})
	fromMap := fencepost.HeadersFromMap(http.Header{"B": {"3", "1"}, "A": {"2"}, "B-": {""}})
	for name, h := range map[string]fencepost.Headers{"pairs": fromPairs, "map": fromMap} {
		if diff := cmp.Diff(want, h.All()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if h.Len() != len(want) || h.Size() != 8 {
			t.Errorf("%s: Len = %d, Size = %d; want %d, 8", name, h.Len(), h.Size(), len(want))
		}
	}
	if fromPairs.Digest() != fromMap.Digest() {
		t.Error("one sequence has two digests")
	}
}

func TestHeadersFromMapHaveOneOrderWhateverTheMapSays(t *testing.T) {
	t.Parallel()
	want := []fencepost.Header{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}, {Name: "a", Value: "3"}}
	for range 50 {
		got := fencepost.HeadersFromMap(map[string][]string{"a": {"3"}, "A": {"1", "2"}, "b": nil})
		if diff := cmp.Diff(want, got.All()); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

// Names are ASCII: what only Unicode takes for a letter is none.
func TestNamesAreLoweredAsASCII(t *testing.T) {
	t.Parallel()
	h := fencepost.NewHeaders([]fencepost.Header{{Name: "\u212a", Value: "kelvin"}, {Name: "K", Value: "k"}, {Name: "\u00c9-AZ@[", Value: "e"}})
	want := []fencepost.Header{{Name: "k", Value: "k"}, {Name: "\u00c9-az@[", Value: "e"}, {Name: "\u212a", Value: "kelvin"}}
	if diff := cmp.Diff(want, h.All()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if value, ok := h.Only("K"); !ok || value != "k" {
		t.Errorf("Only(K) = %q, %v", value, ok)
	}
}

func TestHeadersKeepNoReference(t *testing.T) {
	t.Parallel()
	pairs := []fencepost.Header{{Name: "a", Value: "1"}}
	h := fencepost.NewHeaders(pairs)
	before := h.Digest()
	pairs[0].Value = "2"
	h.All()[0].Value = "3"
	if h.Digest() != before {
		t.Error("a caller's slice changed the headers")
	}
}

func TestOnlyRefusesMoreThanOneValue(t *testing.T) {
	t.Parallel()
	h := fencepost.NewHeaders([]fencepost.Header{
		{Name: "once", Value: "1"}, {Name: "empty", Value: ""},
		{Name: "twice", Value: "1"}, {Name: "TWICE", Value: "1"},
		{Name: "thrice", Value: ""}, {Name: "thrice", Value: ""}, {Name: "thrice", Value: "1"},
	})
	tests := map[string]struct {
		value string
		ok    bool
	}{
		"once": {"1", true}, "Once": {"1", true}, "empty": {"", true},
		"twice": {"", false}, "thrice": {"", false}, "never": {"", false},
	}
	for name, want := range tests {
		if value, ok := h.Only(name); value != want.value || ok != want.ok {
			t.Errorf("Only(%q) = %q, %v; want %q, %v", name, value, ok, want.value, want.ok)
		}
	}
	if diff := cmp.Diff([]string{"", "", "1"}, h.Values("Thrice")); diff != "" {
		t.Errorf("Values (-want +got):\n%s", diff)
	}
}

func TestSelectKeepsOrderAndRepeats(t *testing.T) {
	t.Parallel()
	h := fencepost.NewHeaders([]fencepost.Header{
		{Name: "C", Value: "1"}, {Name: "A", Value: "2"}, {Name: "A", Value: "1"}, {Name: "B", Value: "3"},
	})
	want := fencepost.NewHeaders([]fencepost.Header{{Name: "a", Value: "2"}, {Name: "a", Value: "1"}, {Name: "c", Value: "1"}})
	got := h.Select("c", "A", "absent")
	if diff := cmp.Diff(want.All(), got.All()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Digest() != want.Digest() {
		t.Error("the selection has another digest than the same sequence made anew")
	}
}
