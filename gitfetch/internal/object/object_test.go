package object_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/google/go-cmp/cmp"
)

func id(t testing.TB, s string) fencepost.ObjectID {
	t.Helper()
	parsed, err := fencepost.ParseObjectID(s)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// The ids are those that git hash-object prints.
func TestIDs(t *testing.T) {
	t.Parallel()
	h, again := object.NewHasher(), object.NewRehasher()
	for _, tt := range []struct {
		kind    object.Kind
		content string
		want    string
	}{
		{object.Blob, "", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"},
		{object.Tree, "", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"},
		{object.Blob, "hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"},
	} {
		got, err := h.ID(tt.kind, []byte(tt.content))
		if err != nil || got != id(t, tt.want) {
			t.Errorf("%s %q: %s, %v; want %s", tt.kind, tt.content, got, err, tt.want)
		}
		if got, err := again.ID(tt.kind, []byte(tt.content)); err != nil || got != id(t, tt.want) {
			t.Errorf("again %s %q: %s, %v; want %s", tt.kind, tt.content, got, err, tt.want)
		}
	}
}

const (
	hexA = "1111111111111111111111111111111111111111"
	hexB = "2222222222222222222222222222222222222222"
	hexC = "3333333333333333333333333333333333333333"
	who  = "author A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n"
)

func TestParseCommit(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		content string
		parents []string // nil for a refusal
	}{
		{"a root commit", "tree " + hexA + "\n" + who + "\nmessage", []string{}},
		{"a merge", "tree " + hexA + "\nparent " + hexB + "\nparent " + hexC + "\n" + who + "\nm", []string{hexB, hexC}},
		{"no message", "tree " + hexA + "\n" + who, []string{}},
		{"an odd identity", "tree " + hexA + "\nauthor \xff no time\n\nm", []string{}},
		{"a signature", "tree " + hexA + "\n" + who + "gpgsig -----BEGIN\n parent in a continuation\n tree too\n\nm", []string{}},
		{"a NUL in the message", "tree " + hexA + "\n" + who + "\nm\x00m", []string{}},
		{"a parent in the message", "tree " + hexA + "\n" + who + "\nparent " + hexB + "\n", []string{}},
		{"nothing", "", nil},
		{"no tree", who + "\nm", nil},
		{"a tree further down", who + "tree " + hexA + "\n\nm", nil},
		{"two trees", "tree " + hexA + "\ntree " + hexB + "\n" + who + "\nm", nil},
		{"a late parent", "tree " + hexA + "\n" + who + "parent " + hexB + "\n\nm", nil},
		{"a short tree", "tree " + hexA[1:] + "\n" + who + "\nm", nil},
		{"a long tree", "tree " + hexA + "1\n" + who + "\nm", nil},
		{"upper case", "tree " + strings.Repeat("A", 40) + "\n" + who + "\nm", nil},
		{"the null tree", "tree " + strings.Repeat("0", 40) + "\n" + who + "\nm", nil},
		{"a carriage return", "tree " + hexA + "\r\n" + who + "\nm", nil},
		{"two spaces", "tree  " + hexA + "\n" + who + "\nm", nil},
		{"a short parent", "tree " + hexA + "\nparent " + hexB[1:] + "\n" + who + "\nm", nil},
		{"a NUL in the header", "tree " + hexA + "\nauthor \x00\n\nm", nil},
		{"a header without an end", "tree " + hexA + "\nauthor A", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := object.ParseCommit([]byte(tt.content))
			if tt.parents == nil {
				if !errors.Is(err, object.ErrMalformed) {
					t.Errorf("got %+v, %v; want %v", got, err, object.ErrMalformed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			parents := []string{}
			for _, p := range got.Parents {
				parents = append(parents, p.String())
			}
			if diff := cmp.Diff(tt.parents, parents); diff != "" || got.Tree.String() != hexA {
				t.Errorf("tree %s, parents (-want +got):\n%s", got.Tree, diff)
			}
		})
	}
}

// readTree returns "mode name" of each entry.
func readTree(content []byte) ([]string, error) {
	var got []string
	r := object.NewTreeReader(content)
	for {
		e, ok, err := r.Next()
		if err != nil || !ok {
			return got, err
		}
		got = append(got, fmt.Sprintf("%s %s", e.Mode, e.Name))
	}
}

func TestTreeReader(t *testing.T) {
	t.Parallel()
	a := id(t, hexA)
	entry := func(mode, name string) packtest.Entry { return packtest.Entry{Mode: mode, Name: name, ID: a} }
	whole := packtest.Tree(entry("100644", "f"))
	tests := []struct {
		name    string
		content []byte
		want    []string // nil for a refusal
	}{
		{"an empty tree", nil, []string{}},
		{"all five modes in Git's order", packtest.Tree(
			entry("100644", "a"), entry("40000", "a-"), entry("100755", "a.b"), entry("40000", "a.c"), entry("120000", "a0"), entry("160000", "b")),
			[]string{"100644 a", "40000 a-", "100755 a.b", "40000 a.c", "120000 a0", "160000 b"}},
		{"a directory sorts as though it ended in a slash", packtest.Tree(entry("100644", "foo-bar"), entry("100644", "foo.c"), entry("40000", "foo"), entry("100644", "foo0")),
			[]string{"100644 foo-bar", "100644 foo.c", "40000 foo", "100644 foo0"}},
		{"a directory in the place of a file", packtest.Tree(entry("40000", "foo"), entry("100644", "foo.c")), nil},
		{"a file in the place of a directory", packtest.Tree(entry("100644", "foo.c"), entry("100644", "foo")), nil},
		{"the same name twice", packtest.Tree(entry("100644", "f"), entry("100644", "f")), nil},
		{"a step back", packtest.Tree(entry("100644", "g"), entry("100644", "f")), nil},
		{"mode 100664", packtest.Tree(entry("100664", "f")), nil},
		{"mode 040000", packtest.Tree(entry("040000", "f")), nil},
		{"mode 100600", packtest.Tree(entry("100600", "f")), nil},
		{"mode 104755", packtest.Tree(entry("104755", "f")), nil},
		{"mode 60000", packtest.Tree(entry("60000", "f")), nil},
		{"mode 0", packtest.Tree(entry("0", "f")), nil},
		{"a mode over 16 bits", packtest.Tree(entry("1000000040000", "f")), nil},
		{"no mode", packtest.Tree(entry("", "f")), nil},
		{"no name", packtest.Tree(entry("100644", "")), nil},
		{"the null id", packtest.Tree(packtest.Entry{Mode: "100644", Name: "f"}), nil},
		{"half an id", whole[:len(whole)-1], nil},
		{"no id", whole[:len(whole)-20], nil},
		{"no NUL", whole[:len(whole)-21], nil},
		{"no space", []byte("100644"), nil},
		{"more after the last entry", append(slices.Clone(whole), 'x'), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := readTree(tt.content)
			if tt.want == nil {
				if !errors.Is(err, object.ErrMalformed) {
					t.Errorf("got %q, %v; want %v", got, err, object.ErrMalformed)
				}
				return
			}
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// FuzzTree: a tree that is read writes back to the same bytes, in strictly
// rising order.
func FuzzTree(f *testing.F) {
	a := id(f, hexA)
	for _, seed := range [][]byte{
		nil, packtest.Tree(packtest.Entry{Mode: "100644", Name: "f", ID: a}),
		packtest.Tree(packtest.Entry{Mode: "100644", Name: "foo.c", ID: a}, packtest.Entry{Mode: "40000", Name: "foo", ID: a}, packtest.Entry{Mode: "160000", Name: "g", ID: a}),
		packtest.Tree(packtest.Entry{Mode: "40000", Name: "foo", ID: a}, packtest.Entry{Mode: "100644", Name: "foo.c", ID: a}),
		packtest.Tree(packtest.Entry{Mode: "040000", Name: "foo", ID: a}), []byte("100644 f\x00short"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var out []byte
		var last string
		r := object.NewTreeReader(content)
		for {
			e, ok, err := r.Next()
			if err != nil {
				if !errors.Is(err, object.ErrMalformed) {
					t.Fatalf("error of no known kind: %v", err)
				}
				return
			}
			if !ok {
				break
			}
			key := string(e.Name)
			if e.Mode == object.Dir {
				key += "/"
			}
			if key <= last {
				t.Fatalf("%q after %q", key, last)
			}
			last = key
			out = object.AppendEntry(out, e.Mode, string(e.Name), e.ID)
		}
		if string(out) != string(content) {
			t.Fatalf("%q writes %q", content, out)
		}
	})
}

// FuzzCommit: what is read of a commit is its first lines and nothing else.
func FuzzCommit(f *testing.F) {
	for _, seed := range []string{
		"", "tree " + hexA + "\n" + who + "\nm", "tree " + hexA + "\nparent " + hexB + "\nparent " + hexC + "\n" + who + "\nm",
		"tree " + hexA + "\n" + who + "parent " + hexB + "\n\nm", "tree " + hexA + "\nauthor \x00\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		facts, err := object.ParseCommit(content)
		if err != nil {
			if !errors.Is(err, object.ErrMalformed) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		head := fmt.Sprintf("tree %s\n", facts.Tree)
		for _, p := range facts.Parents {
			head += fmt.Sprintf("parent %s\n", p)
		}
		if !strings.HasPrefix(string(content), head) || strings.HasPrefix(string(content[len(head):]), "parent ") {
			t.Fatalf("%q was read as %q", content, head)
		}
	})
}
