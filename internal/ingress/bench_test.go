package ingress_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ingress/loadgen"
	"github.com/fencepost/fencepost/internal/strictjson"
	"github.com/fencepost/fencepost/webhook"
)

const benchSecret = "sixteen bytes ok"

// strictAdmission decodes as a gate does.
type strictAdmission struct {
	decoder *strictjson.Decoder[benchEvent]
}

type benchEvent struct {
	Action     string `json:"action"`
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
}

func (a strictAdmission) Admit(_ fencepost.Headers, body []byte) error {
	_, err := a.decoder.Decode(body)
	return err
}

// nowhere records nothing: what is left is ingress itself.
type nowhere struct{}

func (nowhere) Record(context.Context, fencepost.AcceptedDelivery, fencepost.Headers, []byte) (ingress.Recording, error) {
	return ingress.Accepted, nil
}

// bare is the handler that ingress is held against: it reads and verifies,
// and knows nothing else.
func bare(w http.ResponseWriter, r *http.Request) {
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
}

// benchBody is what all bodies begin with. It has a key to about 50 bytes, as
// GitHub's published examples of pull_request and push have.
func benchBody(size int) []byte {
	const item = `,{"id":279147437,"node_id":"MDExOlB1bGxSZXF1ZXN0Mjc5MTQ3NDM3","state":"open","locked":false,"assignee":null,` +
		`"url":"https://api.example.com/repos/acme/docs/pulls/2","html_url":"https://example.com/acme/docs/pull/2",` +
		`"commits_url":"https://api.example.com/repos/acme/docs/pulls/2/commits",` +
		`"review_comment_url":"https://api.example.com/repos/acme/docs/pulls/comments{/number}",` +
		`"statuses_url":"https://api.example.com/repos/acme/docs/statuses/ec26c3e57ca3a959ca5aad62de7213c562f8c821",` +
		`"title":"Update the README with new information."}`
	var b strings.Builder
	b.WriteString(`{"action":"synchronize","repository":{"id":1296269,"full_name":"acme/docs"},"list":[{}`)
	for b.Len() < size-2*len(item) {
		b.WriteString(item)
	}
	b.WriteString(`],"filler":"`)
	b.WriteString(strings.Repeat("x", size-b.Len()-19))
	b.WriteString(`"`)
	return []byte(b.String())
}

func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// benchTable is one route with everything but a store.
func benchTable(b *testing.B, keys *webhook.Keyring) *ingress.Table {
	table, err := ingress.NewTable(ingress.Decoys{Hooks: webhook.Decoy{}}, ingress.Route{
		Rule:      fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow},
		Verifier:  webhook.GitHub{Keys: keys},
		Headers:   []string{"x-hub-signature-256", "x-github-event", "x-github-delivery"},
		Admission: strictAdmission{strictjson.NewDecoder[benchEvent](strictjson.Limits{})},
		Recorder:  nowhere{},
	})
	if err != nil {
		b.Fatal(err)
	}
	return table
}

// BenchmarkIngress compares ingress without a store with the bare handler,
// over 64 connections with bodies of 8 KiB. The client's share is in both.
func BenchmarkIngress(b *testing.B) {
	key := func() fencepost.Secret { return fencepost.NewSecret([]byte(benchSecret)) }
	keys, err := webhook.NewKeyring("acme", webhook.Anchor{ID: "a", Secret: key()})
	if err != nil {
		b.Fatal(err)
	}
	table := benchTable(b, keys)
	for name, serve := range map[string]func(context.Context, net.Listener) error{
		"ingress": func(ctx context.Context, ln net.Listener) error {
			server, err := ingress.New(ingress.Options{Table: table, Now: time.Now})
			if err != nil {
				return err
			}
			return server.Run(ctx, ln)
		},
		"bare": func(ctx context.Context, ln net.Listener) error {
			server := &http.Server{Handler: http.HandlerFunc(bare)}
			stop := context.AfterFunc(ctx, func() { server.Close() })
			defer stop()
			return server.Serve(ln)
		},
	} {
		b.Run(name, func(b *testing.B) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = serve(ctx, ln)
			}()
			defer func() { cancel(); <-ended }()
			load := loadgen.Load{Address: ln.Addr().String(), Path: "/hooks/docs", Connections: 64, Requests: b.N,
				Secret: []byte(benchSecret), Body: benchBody(8 << 10), Now: time.Now}
			before := cpuTime(b)
			b.ResetTimer()
			result, err := loadgen.Run(ctx, load)
			b.StopTimer()
			if err != nil || result.Statuses[http.StatusAccepted] != b.N {
				b.Fatalf("statuses %v, err = %v", result.Statuses, err)
			}
			b.ReportMetric(result.PerSecond(), "req/s")
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-µs/op")
			b.ReportMetric(float64(result.Latency.Quantile(0.5))/1e6, "p50-ms")
			b.ReportMetric(float64(result.Latency.Quantile(0.99))/1e6, "p99-ms")
		})
	}
}

// BenchmarkHandler is ingress without a network and a store.
func BenchmarkHandler(b *testing.B) {
	keys, err := webhook.NewKeyring("acme", webhook.Anchor{ID: "a", Secret: fencepost.NewSecret([]byte(benchSecret))})
	if err != nil {
		b.Fatal(err)
	}
	server, err := ingress.New(ingress.Options{Table: benchTable(b, keys), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	body := append(benchBody(8<<10), '}')
	signed, err := webhook.GitHub{Keys: keys}.Sign(webhook.Message{Body: body, At: time.Now()})
	if err != nil {
		b.Fatal(err)
	}
	w := httptest.NewRecorder()
	reader := bytes.NewReader(body)
	r := httptest.NewRequest(http.MethodPost, "/hooks/docs", reader)
	for name, value := range map[string]string{
		"Accept": "*/*", "Content-Length": "8193", "Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/load",
		"X-Github-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "X-Github-Event": "pull_request", "X-Github-Hook-Id": "292430182",
		"X-Github-Hook-Installation-Target-Id": "79929171", "X-Github-Hook-Installation-Target-Type": "repository", signed[0].Name: signed[0].Value,
	} {
		r.Header.Set(name, value)
	}
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		reader.Reset(body)
		w.Body.Reset()
		server.ServeHTTP(w, r)
		if w.Code != http.StatusAccepted {
			b.Fatal(w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e3, "cpu-µs/op")
}
