package gitfetch

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// TestACollisionEndsTheFetchWithItsReason, leaves nothing, and is no ground to
// ask again.
func TestACollisionEndsTheFetchWithItsReason(t *testing.T) {
	t.Parallel()
	const mark = "the two of it"
	var b packtest.Builder
	good, bad := packtest.ID(object.Blob, []byte("good")), packtest.ID(object.Blob, []byte(mark))
	tree := packtest.Tree(packtest.Entry{Mode: "100644", Name: "a", ID: good}, packtest.Entry{Mode: "100644", Name: "b", ID: bad})
	commit := b.Object(object.Commit, packtest.Commit(packtest.ID(object.Tree, tree)))
	b.Object(object.Tree, tree)
	b.Object(object.Blob, []byte("good"))
	b.Object(object.Blob, []byte(mark))
	answer := pktline.AppendText(pktline.AppendText(nil, "shallow-info"), "shallow "+commit.String())
	answer = pktline.AppendText(pktline.AppendDelim(answer), "packfile")
	answer = pktline.AppendFlush(pktline.AppendData(answer, append([]byte{1}, b.Bytes()...)))
	posts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", typeAdvertisement)
			_, _ = w.Write(pktline.AppendFlush(pktline.AppendText(pktline.AppendText(nil, "version 2"), "fetch=shallow filter")))
			return
		}
		posts++
		w.Header().Set("Content-Type", typeResult)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	for _, hit := range []bool{false, true} {
		req := Request{URL: server.URL, Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Select: func(string) bool { return true }}
		target, err := req.checkFetch()
		if err != nil {
			t.Fatal(err)
		}
		if hit {
			target.hasher = func() *object.Hasher { return object.HasherOf(packtest.NewColliding(mark)) }
		}
		posts = 0
		base := t.TempDir()
		_, err = fetchBeside(t.Context(), target, base, "out")
		err = sealed("fetch", err)
		if !hit {
			if err != nil {
				t.Fatalf("without a hit: %v", err)
			}
			continue
		}
		if !errors.Is(err, ErrCollision) || fencepost.ReasonOf(err) != fencepost.ReasonContent || posts != 1 {
			t.Errorf("err = %v (%s) after %d requests, want %v", err, fencepost.ReasonOf(err), posts, ErrCollision)
		}
		if left, err := os.ReadDir(base); err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}
