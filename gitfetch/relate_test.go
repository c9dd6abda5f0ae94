package gitfetch_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// history adds n commits on top of from, each with another tree, and none
// older than one that was added to a branch before.
func history(t *testing.T, repo *gitserver.Repo, branch string, n int, from ...fencepost.CommitID) []fencepost.CommitID {
	t.Helper()
	var in strings.Builder
	since := 1_700_000_000 + 10_000*len(strings.Fields(repo.Git(t, "branch", "--format=%(refname)")))
	for i := range n {
		fmt.Fprintf(&in, "commit refs/heads/%s\ncommitter A <a@example.org> %d +0000\ndata %d\n%s\n", branch, since+i, len(branch), branch)
		if i == 0 && len(from) > 0 {
			fmt.Fprintf(&in, "from %s\n", from[0])
			for _, p := range from[1:] {
				fmt.Fprintf(&in, "merge %s\n", p)
			}
		}
		content := fmt.Sprint(branch, i)
		fmt.Fprintf(&in, "M 100644 inline f\ndata %d\n%s\n", len(content), content)
	}
	repo.Import(t, in.String())
	var ids []fencepost.CommitID
	for _, line := range strings.Fields(repo.Git(t, "rev-list", "--first-parent", "--reverse", fmt.Sprint("--max-count=", n), "refs/heads/"+branch)) {
		id, err := fencepost.ParseCommitID(line)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestRelations(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	for _, filter := range []bool{true, false} {
		repo := filtering(t, s, filter)
		main := history(t, repo, "main", 1500)
		side := history(t, repo, "side", 100, main[1400])
		merge := history(t, repo, "merge", 1, main[1450], side[99])
		orphan := history(t, repo, "orphan", 3)
		repo.Git(t, "repack", "-adq")
		tip := main[1499]
		tests := []struct {
			name        string
			head, other fencepost.CommitID
			want        gitfetch.Relation
			most        int64 // commits
		}{
			{"the same", tip, tip, gitfetch.RelationSame, 0},
			{"one ahead", tip, main[1498], gitfetch.RelationAhead, 1},
			{"sixty ahead", tip, main[1439], gitfetch.RelationAhead, 60},
			{"a thousand ahead", tip, main[499], gitfetch.RelationAhead, 64 + 1000 + 1},
			{"from the root", tip, main[0], gitfetch.RelationAhead, 64 + 1024 + 1500},
			{"one behind", main[1498], tip, gitfetch.RelationBehind, 1},
			{"a thousand behind", main[499], tip, gitfetch.RelationBehind, 64 + 1000},
			{"a branch apart", side[99], tip, gitfetch.RelationApart, 64 + 100 + 64 + 99 + 1},
			{"just apart", side[0], main[1401], gitfetch.RelationApart, 2},
			{"a merge contains its second parent", merge[0], side[99], gitfetch.RelationAhead, 64},
			{"a merge contains what is behind its second parent", merge[0], side[60], gitfetch.RelationAhead, 128},
			{"behind a merge", side[90], merge[0], gitfetch.RelationBehind, 96},
			{"without a common root", orphan[2], tip, gitfetch.RelationApart, 64 + 1024 + 1500 + 3},
			{"without a common root, the other way", tip, orphan[2], gitfetch.RelationApart, 64 + 1024 + 1500 + 3},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprint(tt.name, ", filter ", filter), func(t *testing.T) {
				t.Parallel()
				got, err := gitfetch.Relate(t.Context(), request(repo, tt.head), tt.head, tt.other)
				if err != nil || got.Relation != tt.want || got.Doubt != "" {
					t.Fatalf("%s, %+v, %v; want %s", got.Relation, got, err, tt.want)
				}
				if got.Commits > tt.most {
					t.Errorf("%d commits, want at most %d", got.Commits, tt.most)
				}
			})
		}
	}
}

func TestWhatCanNotBeToldIsUnknown(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := filtering(t, s, true)
	main := history(t, repo, "main", 300)
	gone := fencepost.CommitID{ObjectID: absentID()}
	tip := main[299]
	if got, err := gitfetch.Relate(t.Context(), request(repo, tip), tip, gone); err != nil || got.Relation != gitfetch.RelationUnknown || got.Doubt != gitfetch.DoubtGone {
		t.Errorf("other gone: %+v, %v", got, err)
	}
	if got, err := gitfetch.Relate(t.Context(), request(repo, tip), gone, tip); !errors.Is(err, gitfetch.ErrNotOurRef) {
		t.Errorf("head gone: %+v, %v", got, err)
	}
	for _, budgets := range []gitfetch.Budgets{{Objects: 50}, {WireBytes: 4096}, {InflatedBytes: 4096}, {MetadataBytes: 200}} {
		req := request(repo, tip)
		req.Budgets = budgets
		got, err := gitfetch.Relate(t.Context(), req, tip, main[0])
		if err != nil || got.Relation != gitfetch.RelationUnknown || got.Doubt != gitfetch.DoubtBudget {
			t.Errorf("%+v: %+v, %v", budgets, got, err)
		}
	}
	if _, err := gitfetch.Relate(t.Context(), request(repo, tip), tip, fencepost.CommitID{}); !errors.Is(err, gitfetch.ErrRequest) {
		t.Errorf("no other: %v", err)
	}
}

// TestAShallowServerIsNotTakenForTheWholeHistory has a server that was itself
// cloned with a depth.
func TestAShallowServerIsNotTakenForTheWholeHistory(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	main := history(t, repo, "main", 30)
	side := history(t, repo, "side", 5, main[10])
	shallow := s.Repo(t, "shallow.git")
	shallow.Git(t, "config", "uploadpack.allowFilter", "true")
	shallow.Git(t, "fetch", "-q", "--depth=3", "file://"+repo.Dir, "main:main", "side:side")
	got, err := gitfetch.Relate(t.Context(), request(shallow, main[29]), main[29], side[4])
	if err != nil || got.Relation != gitfetch.RelationUnknown || got.Doubt != gitfetch.DoubtBudget {
		t.Errorf("%s, %+v, %v", got.Relation, got, err)
	}
	if got, err = gitfetch.Relate(t.Context(), request(shallow, main[29]), main[29], main[28]); err != nil || got.Relation != gitfetch.RelationAhead {
		t.Errorf("%s, %+v, %v", got.Relation, got, err)
	}
}

// TestAFilterThatTheServerBansIsNotAskedForAgain uses another, or none.
func TestAFilterThatTheServerBansIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := filtering(t, s, true)
	repo.Git(t, "config", "uploadpackfilter.tree.allow", "false")
	main := history(t, repo, "main", 10)
	got, err := gitfetch.Relate(t.Context(), request(repo, main[9]), main[9], main[5])
	if err != nil || got.Relation != gitfetch.RelationAhead {
		t.Errorf("%s, %+v, %v", got.Relation, got, err)
	}
}

// TestAChainIsProvenByHashesAlone: a server can't say that a commit contains
// another without showing it.
func TestAChainIsProvenByHashesAlone(t *testing.T) {
	t.Parallel()
	tree := packtest.ID(object.Tree, nil)
	old := packtest.Commit(tree)
	oldID := packtest.ID(object.Commit, old)
	next := packtest.Commit(tree, oldID)
	forged := append(packtest.Commit(tree, oldID), "forged"...) // another commit with the right parent
	alone := append(packtest.Commit(tree), "alone"...)
	id := func(content []byte) fencepost.CommitID {
		return fencepost.CommitID{ObjectID: packtest.ID(object.Commit, content)}
	}
	tests := []struct {
		name    string
		commits [][]byte
		cut     []fencepost.CommitID
		want    gitfetch.Relation
		err     error
	}{
		{"the chain", [][]byte{next}, nil, gitfetch.RelationAhead, nil},
		{"cut at its end", [][]byte{next}, []fencepost.CommitID{id(next)}, gitfetch.RelationAhead, nil},
		{"nothing", nil, nil, 0, gitfetch.ErrProtocol},
		{"another commit", [][]byte{forged}, nil, 0, gitfetch.ErrProtocol},
		{"one of no parents", [][]byte{alone}, nil, 0, gitfetch.ErrProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := serveCommits(t, tt.cut, tt.commits...)
			got, err := gitfetch.Relate(t.Context(), gitfetch.Request{URL: url, AllowHTTP: true}, id(next), fencepost.CommitID{ObjectID: oldID})
			if !errors.Is(err, tt.err) || got.Relation != tt.want {
				t.Errorf("%s, %v; want %s, %v", got.Relation, err, tt.want, tt.err)
			}
		})
	}
}

// serveCommits starts a server whose every answer is these commits, cut off at
// some. It returns its URL.
func serveCommits(t *testing.T, cut []fencepost.CommitID, commits ...[]byte) string {
	t.Helper()
	var b packtest.Builder
	for _, c := range commits {
		b.Object(object.Commit, c)
	}
	p := pktline.AppendText(nil, "shallow-info")
	for _, c := range cut {
		p = pktline.AppendText(p, "shallow "+c.String())
	}
	p = pktline.AppendText(pktline.AppendDelim(p), "packfile")
	return (&host{advertisement: advertisement(), result: pktline.AppendFlush(band(p, 1, b.Bytes()))}).start(t)
}

func TestRelateTakesNoAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	other := fencepost.CommitID{ObjectID: packtest.ID(object.Blob, nil)}
	text := func(lines ...string) (p []byte) {
		for _, l := range lines {
			p = pktline.AppendText(p, l)
		}
		return p
	}
	packed := pktline.AppendFlush(band(pktline.AppendText(nil, "packfile"), 1, pack))
	for name, body := range map[string][]byte{
		"no shallow-info":     packed,
		"an illegal id":       append(append(text("shallow-info", "shallow x"), "0001"...), packed...),
		"unshallow":           append(append(text("shallow-info", "unshallow "+commit.String()), "0001"...), packed...),
		"another section":     append(append(text("shallow-info"), "0001"...), text("wanted-refs")...),
		"cut in shallow-info": text("shallow-info"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := (&host{advertisement: advertisement(), write: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }}).start(t)
			got, err := gitfetch.Relate(t.Context(), gitfetch.Request{URL: url, AllowHTTP: true}, fencepost.CommitID{ObjectID: commit}, other)
			if !errors.Is(err, gitfetch.ErrProtocol) {
				t.Errorf("%+v, %v; want %v", got, err, gitfetch.ErrProtocol)
			}
		})
	}
}
