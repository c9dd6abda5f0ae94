package gitfetch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// TestCommitsAreReadToADepth compares with git, whether the server filters or
// not.
func TestCommitsAreReadToADepth(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	for _, filter := range []bool{true, false} {
		repo := filtering(t, s, filter)
		main := history(t, repo, "main", 5)
		side := history(t, repo, "side", 2, main[1])
		merge := history(t, repo, "merge", 1, main[4], side[1])[0]
		for _, tt := range []struct {
			tip   fencepost.CommitID
			depth int
			want  []fencepost.CommitID
		}{
			{merge, 1, []fencepost.CommitID{merge}},
			{merge, 2, []fencepost.CommitID{merge, main[4], side[1]}},
			{main[1], 2, []fencepost.CommitID{main[1], main[0]}},
			{main[0], 9, []fencepost.CommitID{main[0]}},
		} {
			got, err := gitfetch.Commits(t.Context(), request(repo, tt.tip), tt.tip, tt.depth)
			if err != nil || len(got) != len(tt.want) {
				t.Fatalf("filter %v, %s %d deep: %v, %v; want %v", filter, tt.tip, tt.depth, got, err, tt.want)
			}
			for _, id := range tt.want {
				c := got[id]
				var line []string
				for _, p := range c.Parents {
					line = append(line, p.String())
				}
				want := strings.TrimSpace(repo.Git(t, "show", "-s", "--format=%H %T %P", id.String()))
				if is := strings.TrimSpace(fmt.Sprint(c.ID, " ", c.Tree, " ", strings.Join(line, " "))); is != want {
					t.Errorf("commit %s is %q, want %q", id, is, want)
				}
			}
		}
	}
}

func TestCommitsThatAreNotShownAreAnError(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	tip := history(t, repo, "main", 1)[0]
	gone := fencepost.CommitID{ObjectID: absentID()}
	if _, err := gitfetch.Commits(t.Context(), request(repo, gone), gone, 2); !errors.Is(err, gitfetch.ErrNotOurRef) {
		t.Errorf("a tip that is not there: %v", err)
	}
	for _, depth := range []int{-1, 0} {
		if _, err := gitfetch.Commits(t.Context(), request(repo, tip), tip, depth); !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	if _, err := gitfetch.Commits(t.Context(), request(repo, tip), fencepost.CommitID{}, 1); !errors.Is(err, gitfetch.ErrRequest) {
		t.Errorf("no tip: %v", err)
	}

	// A server that leaves a parent out, which is within the depth.
	tree := packtest.ID(object.Tree, nil)
	old := packtest.Commit(tree)
	next := packtest.Commit(tree, packtest.ID(object.Commit, old))
	url := serveCommits(t, nil, next)
	id := fencepost.CommitID{ObjectID: packtest.ID(object.Commit, next)}
	_, err := gitfetch.Commits(t.Context(), gitfetch.Request{URL: url, AllowHTTP: true}, id, 2)
	if !errors.Is(err, gitfetch.ErrProtocol) {
		t.Errorf("a parent that is left out: %v", err)
	}
}
