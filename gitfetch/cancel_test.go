package gitfetch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// TestCancellingEndsTheFetchAtEveryPhase has a server that stalls for good,
// each time at another place, and a caller that gives up once it does. No
// budget of the fetch would end it: what ends it is the caller.
func TestCancellingEndsTheFetchAtEveryPhase(t *testing.T) {
	t.Parallel()
	const refs = "HTTP/1.1 200 OK\r\nContent-Type: " + typeAdvertisement + "\r\n"
	commit, pack := good()
	// plain has a stall after the first bytes of the first answer.
	plain := func(text string) func(stalled func()) func(*testing.T) string {
		return func(stalled func()) func(*testing.T) string {
			return func(t *testing.T) string {
				return "http://" + listen(t, func(c net.Conn) {
					readRequest(c)
					_, _ = io.WriteString(c, text)
					stalled()
					_, _ = io.Copy(io.Discard, c)
				}) + "/r.git"
			}
		}
	}
	// answer has a stall after the first bytes of the second.
	answer := func(body []byte) func(stalled func()) func(*testing.T) string {
		return func(stalled func()) func(*testing.T) string {
			h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write(body)
				_ = http.NewResponseController(w).Flush()
				stalled()
				<-r.Context().Done()
			}}
			return h.start
		}
	}
	packed := band(opening(commit), 1, pack)
	phases := []struct {
		name string
		// server starts a server that calls stalled when it goes silent.
		server func(stalled func()) func(*testing.T) string
	}{
		{"the handshake", func(stalled func()) func(*testing.T) string {
			return func(t *testing.T) string {
				return "https://" + listen(t, func(c net.Conn) {
					readRequest(c)
					stalled()
					_, _ = io.Copy(io.Discard, c)
				}) + "/r.git"
			}
		}},
		{"the first headers", plain("")},
		{"within the first headers", plain("HTTP/1.1 200 OK\r\nX: ")},
		{"the refs", plain(refs + "\r\n")},
		{"within the refs", plain(refs + "\r\n000eversion 2\n00")},
		{"the end of the refs", plain(refs + "Transfer-Encoding: chunked\r\n\r\n12\r\n000eversion 2\n0000\r\n")},
		{"an error's text", plain("HTTP/1.1 500 No\r\nContent-Type: text/plain\r\n\r\nx")},
		{"the second headers", func(stalled func()) func(*testing.T) string {
			h := &host{advertisement: advertisement(), write: func(_ http.ResponseWriter, r *http.Request) {
				stalled()
				<-r.Context().Done()
			}}
			return h.start
		}},
		{"the sections", answer(nil)},
		{"the pack", answer(opening(commit))},
		{"within the pack", answer(packed[:len(packed)-len(pack)/2])},
		{"the flush", answer(packed)},
		{"the end of the answer", answer(answerWith(commit, pack))},
	}
	for _, phase := range phases {
		t.Run(phase.name, func(t *testing.T) {
			t.Parallel()
			why := fmt.Errorf("the caller's own reason: %s", phase.name)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			url := phase.server(func() { cancel(why) })(t)
			parent := t.TempDir()
			before := snapshot(t, parent)
			_, err := gitfetch.Fetch(ctx, gitfetch.Request{
				URL: url, Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Dir: parent + "/out",
				Budgets: gitfetch.Budgets{Connect: time.Hour, Idle: time.Hour, Total: time.Hour},
			})
			if !errors.Is(err, why) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
				t.Errorf("err = %v (%s), want %v", err, fencepost.ReasonOf(err), why)
			}
			if after := snapshot(t, parent); len(after) != len(before) {
				t.Errorf("left behind: %q", after)
			}
		})
	}
}
