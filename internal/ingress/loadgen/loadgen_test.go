package loadgen_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress/loadgen"
	"github.com/fencepost/fencepost/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLoadIsSignedAndUnlike(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"sixteen bytes ok", string(bytes.Repeat([]byte("long"), 30))} {
		keys, err := webhook.NewKeyring("load", webhook.Anchor{ID: "a", Secret: fencepost.NewSecret([]byte(secret))})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		bodies := map[string]bool{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if _, err := (webhook.GitHub{Keys: keys}).Verify(webhook.RequestHeaders(r), body, time.Now()); err != nil {
				t.Errorf("a request is not signed: %v", err)
			}
			if !json.Valid(body) || len(body) != 100 || r.URL.Path != "/hooks/docs" {
				t.Errorf("%s: %d bytes: %s", r.URL.Path, len(body), body)
			}
			mu.Lock()
			defer mu.Unlock()
			bodies[string(body)] = true
			w.WriteHeader(202 + len(bodies)%2)
		}))
		result, err := loadgen.Run(t.Context(), loadgen.Load{
			Address: server.Listener.Addr().String(), Path: "/hooks/docs", Connections: 4, Requests: 50, Distinct: 7,
			Secret: []byte(secret), Body: []byte(`{"filler":"` + string(bytes.Repeat([]byte("x"), 100-18-12)) + `"`), Now: time.Now,
		})
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(bodies) != 50 || result.Statuses[202] != 25 || result.Statuses[203] != 25 || result.PerSecond() <= 0 ||
			result.Latency.Quantile(1) <= 0 || result.Latency.Quantile(1) > 2*result.Took {
			t.Errorf("%d different bodies, statuses %v, %v a second, slowest %v of %v",
				len(bodies), result.Statuses, result.PerSecond(), result.Latency.Quantile(1), result.Took)
		}
	}
}

func TestQuantilesAreNearTheTruth(t *testing.T) {
	t.Parallel()
	var none loadgen.Latency
	if none.Quantile(0.5) != 0 {
		t.Error("nothing has a quantile")
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "d"))
		var l, sum loadgen.Latency
		l.Record(d)
		sum.Add(&l)
		got := sum.Quantile(0.5)
		if got < d || float64(got-d) > float64(d)/16 {
			t.Fatalf("%d counts as %d", d, got)
		}
	})
	var l loadgen.Latency
	for i := range 100 {
		l.Record(time.Duration(i+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 50 * time.Microsecond, 0.99: 99 * time.Microsecond, 1: 100 * time.Microsecond} {
		if got := l.Quantile(q); got < want || float64(got) > float64(want)*17/16 {
			t.Errorf("quantile %v is %v, want about %v", q, got, want)
		}
	}
}
