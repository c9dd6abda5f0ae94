package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ingress/loadgen"
	"github.com/fencepost/fencepost/internal/ops"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/webhook"
)

const benchSecret = "sixteen bytes ok"

// BenchmarkDurableIngress pairs the whole way of a delivery into the inbox
// (verify, decode by the lane, look-up in the ledger, record, sync, receipt,
// answer) with a bare net/http handler that reads and verifies the same body
// and writes nothing: 64 connections, 8 KiB bodies, one round of each in turn.
// It reports the median of the ratios, and what our side does.
func BenchmarkDurableIngress(b *testing.B) {
	const rounds, perRound = 7, 20_000
	ours := serveWhole(b)
	bare := serveBare(b)
	var ratios, rates, bareRates []float64
	var p50, p99 []time.Duration
	for b.Loop() {
		for round := range rounds {
			// Every round's bodies are new: a repeat would only be replayed.
			one := load(b, bare, perRound, round)
			two := load(b, ours, perRound, round)
			ratios = append(ratios, two.PerSecond()/one.PerSecond())
			rates, bareRates = append(rates, two.PerSecond()), append(bareRates, one.PerSecond())
			p50 = append(p50, two.Latency.Quantile(0.5))
			p99 = append(p99, two.Latency.Quantile(0.99))
		}
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(rates), "req/s")
	b.ReportMetric(median(bareRates), "bare-req/s")
	b.ReportMetric(float64(median(p50))/1e6, "p50-ms")
	b.ReportMetric(float64(median(p99))/1e6, "p99-ms")
}

func median[T int64 | float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

var serial int

func load(b *testing.B, address string, n, round int) loadgen.Result {
	b.Helper()
	serial++
	result, err := loadgen.Run(b.Context(), loadgen.Load{
		Address: address, Path: "/hooks/docs", Connections: 64, Requests: n, Secret: []byte(benchSecret),
		Body: event(8<<10, serial), Now: time.Now,
	})
	if err != nil || result.Statuses[http.StatusAccepted] != n {
		b.Fatalf("round %d: statuses %v, %v", round, result.Statuses, err)
	}
	return result
}

// event is what the body of a pull_request delivery begins with.
func event(size, serial int) []byte {
	var t strings.Builder
	fmt.Fprintf(&t, `{"action":"opened","number":7,"serial":%d,"repository":{"id":1296269,"owner":{"id":1}},"installation":{"id":2},`, serial)
	fmt.Fprintf(&t, `"pull_request":{"number":7,"head":{"sha":"%040d","repo":null},"base":{"ref":"main","repo":{"id":1296269,"owner":{"id":1}}}},"list":[{}`, 5)
	for t.Len() < size-600 {
		t.WriteString(`,{"id":279147437,"node_id":"MDExOlB1bGxSZXF1ZXN0Mjc5MTQ3NDM3","url":"https://api.example.com/repos/acme/docs/pulls/2","html_url":"https://example.com/acme/docs/pull/2","state":"open","locked":false,"title":"Update the README with new information.","assignee":null,"site_admin":false,"type":"User"}`)
	}
	t.WriteString(`],"filler":"`)
	t.WriteString(strings.Repeat("x", size-t.Len()-19))
	t.WriteString(`"`)
	return []byte(t.String())
}

// serveBare serves the handler that ours is held against.
func serveBare(b *testing.B) string {
	b.Helper()
	return serve(b, func(ctx context.Context, ln net.Listener) error {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			h := hmac.New(sha256.New, []byte(benchSecret))
			h.Write(body)
			given, err := hex.DecodeString(strings.TrimPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256="))
			if err != nil || !hmac.Equal(h.Sum(nil), given) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(http.StatusAccepted)
		})}
		defer context.AfterFunc(ctx, func() { server.Close() })()
		return server.Serve(ln)
	})
}

// serveWhole serves what `fencepost serve` does, short of the pool behind it.
func serveWhole(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	for _, name := range []string{"inbox", "receipts"} {
		must(b, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	in, err := inbox.Open(b.Context(), durable.OS(filepath.Join(dir, "inbox")), inbox.Config{MaxEntries: 10_000_000, MaxBytes: 64 << 30})
	must(b, err)
	led, err := fileledger.Open(b.Context(), fileledger.Config{Dir: filepath.Join(dir, "ledger")})
	must(b, err)
	receipts, err := receipt.Open(b.Context(), durable.OS(filepath.Join(dir, "receipts")), receipt.Limits{}, time.Now)
	must(b, err)
	metrics := ops.NewMetrics(ops.MetricsOptions{Routes: []fencepost.RouteName{"docs"}, Now: time.Now})
	log := slog.New(slog.DiscardHandler)
	keys, err := webhook.NewKeyring("acme", webhook.Anchor{ID: "a", Secret: fencepost.NewSecret([]byte(benchSecret))})
	must(b, err)
	trusted := &trust{work: newToil(1), keys: keys}
	client, err := github.NewClient(github.ClientConfig{
		API: &url.URL{Scheme: "https", Host: "api.invalid"}, Now: time.Now,
		App: github.App{ID: 1, Installation: 2, Key: func(context.Context) (fencepost.Secret, error) {
			return fencepost.Secret{}, errors.New("no key in a benchmark")
		}},
	})
	must(b, err)
	lane, err := github.NewLane(client, github.LaneConfig{
		Gate: "docs", Repository: github.Repository{ID: 1296269, OwnerID: 1, Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: "fencepost/docs", Git: &url.URL{Scheme: "https", Host: "git.invalid"},
	})
	must(b, err)
	table, err := ingress.NewTable(ingress.Decoys{Hooks: webhook.Decoy{Work: 1}}, ingress.Route{
		Rule:     fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow},
		Verifier: trusted, Headers: headersOf(config.GitHub), Admission: admission{lane},
		Recorder: &recorder{
			inbox: in, ledger: led, journal: &journal{receipts: receipts, metrics: metrics, log: log}, gate: gate.Name("docs"),
			wake: func(fencepost.DeliveryKey) bool { return false }, now: time.Now,
		},
	})
	must(b, err)
	server, err := ingress.New(ingress.Options{
		Table: table, Now: time.Now, Log: log,
		Observer: observer{metrics: metrics, sets: map[fencepost.RouteName]fencepost.TrustSetName{"docs": "acme"}},
	})
	must(b, err)
	b.Cleanup(func() {
		must(b, errors.Join(in.Close(), led.Close(), receipts.Close()))
	})
	return serve(b, server.Run)
}

// serve runs a server until the benchmark ends and returns its address.
func serve(b *testing.B, run func(context.Context, net.Listener) error) string {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, ln) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	return ln.Addr().String()
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
