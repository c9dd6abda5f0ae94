package ingress_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/strictjson"
	"github.com/fencepost/fencepost/webhook"
)

// statuses are all that ingress may answer to one that has no key.
var statuses = map[int]bool{401: true, 405: true, 413: true, 415: true, 431: true}

// FuzzRequest gives the server any bytes that net/http takes for a request:
// who has no key gets a refusal, of the one form, and nothing is recorded.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"POST /hooks/docs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\nX-Hub-Signature-256: sha256=" + strings.Repeat("0", 64) + "\r\n\r\n{}",
		"POST /hooks/lab HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nwebhook-id: a\r\nwebhook-timestamp: 946684800\r\nwebhook-signature: v1,AAAA\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"POST /hooks/docs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X-GitHub-Event\r\n\r\n0\r\nX-GitHub-Event: push\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://other/hooks/docs?x=1 HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=utf-8\r\nContent-Type: application/json\r\n\r\n",
		"POST /hooks/d%6fcs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n",
		"POST /hooks/docs HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 30) + "\r\n",
	} {
		f.Add([]byte(seed))
	}
	w := newWorld(f, ingress.Config{MaxBody: 1000, MaxHeaders: 20, MaxHeaderBytes: 2000}, fixedClock)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		rec := httptest.NewRecorder()
		if aborted(func() { w.ServeHTTP(rec, r) }) {
			return
		}
		if got := read(t, rec); !statuses[rec.Code] || got.Outcome != ingress.OutcomeRejected || got.Reason == "" || got.Delivery != "" {
			t.Fatalf("status %d, %+v", rec.Code, got)
		}
		if w.recorder.seen != 0 || w.Stats() != (ingress.Stats{}) {
			t.Fatalf("%d recorded, %+v left over", w.recorder.seen, w.Stats())
		}
	})
}

// FuzzSignedBody signs any body: what is recorded is exactly what strict JSON
// and the policy allow, byte for byte.
func FuzzSignedBody(f *testing.F) {
	for _, seed := range []string{goodBody, `{}`, `[]`, ``, `{"repository":{"id":1},"repository":{"id":1}}`, `{"repository":{"id":2}}`, `{"repository":{"id":1}}x`, "{\"repository\":{\"id\":1},\"\xff\":0}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		w := newWorld(t, ingress.Config{MaxBody: 1 << 20}, fixedClock)
		if bytes.Contains(body, []byte("66")) {
			return // the policy's own faults
		}
		rec := w.send(t, w.docs(t, string(body)))
		got := read(t, rec)
		valid := strictjson.Check(body, strictjson.Limits{}) == nil
		switch rec.Code {
		case 202:
			if !valid || w.recorder.recorded() != 1 {
				t.Fatalf("%q was accepted", body)
			}
			for _, k := range w.recorder.kept {
				if k.body != string(body) {
					t.Fatalf("recorded %q, sent %q", k.body, body)
				}
			}
		case 400, 403:
			if w.recorder.recorded() != 0 || (rec.Code == 403 && !valid) {
				t.Fatalf("%q: status %d, %d recorded", body, rec.Code, w.recorder.recorded())
			}
		default:
			t.Fatalf("%q: status %d, %+v", body, rec.Code, got)
		}
	})
}

// aborted runs f and reports whether it ended the connection.
func aborted(f func()) (aborted bool) {
	defer func() {
		if what := recover(); what != nil {
			if what != http.ErrAbortHandler {
				panic(fmt.Sprintf("the handler panicked: %v", what))
			}
			aborted = true
		}
	}()
	f()
	return false
}

// Requests as net/http reads them bind what was on the wire.
func TestWireHeadersAreBound(t *testing.T) {
	t.Parallel()
	read := func(text string) [32]byte {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		return webhook.RequestHeaders(r).Digest()
	}
	const line = "POST /hooks/docs HTTP/1.1\r\n"
	base := read(line + "Host: x\r\nA: 1\r\nB: 2\r\nB: 3\r\nContent-Length: 0\r\n\r\n")
	if got := read(line + "content-length: 0\r\nb: 2\r\nhost: x\r\nB: 3\r\nA: 1\r\n\r\n"); got != base {
		t.Error("order between names or their spelling counts")
	}
	for name, text := range map[string]string{
		"another host":       "Host: y\r\nA: 1\r\nB: 2\r\nB: 3\r\nContent-Length: 0\r\n\r\n",
		"order within":       "Host: x\r\nA: 1\r\nB: 3\r\nB: 2\r\nContent-Length: 0\r\n\r\n",
		"a pair less":        "Host: x\r\nA: 1\r\nB: 2\r\nContent-Length: 0\r\n\r\n",
		"values joined":      "Host: x\r\nA: 1\r\nB: 2, 3\r\nContent-Length: 0\r\n\r\n",
		"no declared length": "Host: x\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\n",
		"chunked":            "Host: x\r\nA: 1\r\nB: 2\r\nB: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		if read(line+text) == base {
			t.Errorf("%s: the same digest", name)
		}
	}
}
