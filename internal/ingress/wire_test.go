package ingress_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/webhook"
)

// An ordinary client reads its answer, whether it is refused in the middle of
// a large body, waits for word to send one, or sends it all.
func TestOrdinaryClientsReadTheirAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, time.Now)
	w.keys = keyring(t, anchorA)
	w.Swap(w.table(t, nil))
	address := live(t, w)
	transport := &http.Transport{ExpectContinueTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	good := []byte(goodBody)
	for _, test := range []struct {
		name   string
		body   []byte
		expect bool
		change func(*http.Request)
		status int
	}{
		{"good", good, false, nil, 202},
		{"good, waits for word", good, true, nil, 200},
		{"too large", bytes.Repeat([]byte(" "), 30<<20), false, nil, 413},
		{"too large, waits for word", bytes.Repeat([]byte(" "), 30<<20), true, nil, 413},
		{"too large, no length", bytes.Repeat([]byte(" "), 26<<20), false, func(r *http.Request) { r.ContentLength = -1 }, 413},
		{"form", good, false, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"large form", bytes.Repeat([]byte(" "), 1<<20), false, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"form, waits for word", good, true, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415},
		{"of an unknown length, that is new", append(good, bytes.Repeat([]byte(" "), 3<<20)...), false, func(r *http.Request) { r.ContentLength = -1 }, 202},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/hooks/docs", bytes.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := webhook.GitHub{Keys: w.keys}.Sign(webhook.Message{Body: test.body, At: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-GitHub-Event", "pull_request")
		r.Header.Set(signed[0].Name, signed[0].Value)
		if test.expect {
			r.Header.Set("Expect", "100-continue")
		}
		if test.change != nil {
			test.change(r)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != test.status || err != nil {
			t.Errorf("%s: status %d, err = %v; want %d", test.name, resp.StatusCode, err, test.status)
		}
	}
}
