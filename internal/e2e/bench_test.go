package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// quick is a configuration for a forge that answers at once and asks for no
// pause between writes.
const quick = "provider: {write_interval: 0s}\n"

// BenchmarkEvaluation is one delivery from receipt to its end on a forge that
// answers at once, with a repository of 1 MB: all but the program's own time
// is the controller's share, the Git server's and the forge's included.
func BenchmarkEvaluation(b *testing.B) {
	files := behave("pass")
	for i := range 200 {
		files[fmt.Sprintf("docs/%03d.md", i)] = strings.Repeat(fmt.Sprintf("line %d of a page\n", i), 300)
	}
	w := newWorld(b, world.Config{MergePolls: -1, YAML: quick, Repository: forgesim.Import{Files: files}})
	var shares []time.Duration
	for b.Loop() {
		pr := open(b, w, "pass")
		r := ended(b, w, pr)
		end, _ := world.Find(r, receipt.Ended)
		ran, _ := world.Find(r, receipt.Ran)
		shares = append(shares, end.At.Sub(r.Events[0].At)-ran.Took)
	}
	slices.Sort(shares)
	b.ReportMetric(float64(shares[len(shares)/2])/1e6, "share-p50-ms")
	b.ReportMetric(float64(shares[len(shares)*9/10])/1e6, "share-p90-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMemory is what an idle controller takes, and what it takes at most
// while 64 bodies of 25 MiB come in at once; every one of them must be
// answered.
func BenchmarkMemory(b *testing.B) {
	w := newWorld(b, world.Config{Manual: true, YAML: "ingress: {body_wait: 1m, write_timeout: 5m, body_timeout: 2m}\n"})
	for b.Loop() {
		b.ReportMetric(memory(b, w, "VmRSS"), "idle-MB")
		large := largeBodies(b, w, 64)
		b.ReportMetric(memory(b, w, "VmHWM"), "peak-MB")
		b.ReportMetric(float64(large), "answered")
	}
	b.ReportMetric(0, "ns/op")
}

// memory reads a line of /proc/PID/status, in MB.
func memory(b *testing.B, w *world.World, line string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Controller.PID()))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), line+":")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		b.Fatalf("no line %s", line)
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		b.Fatal(err)
	}
	return kb / 1e3
}

// largeBodies sends n bodies of just below 25 MiB at once, signed, of an event
// that no gate handles, and returns how many were answered as they must be.
func largeBodies(b *testing.B, w *world.World, n int) int {
	b.Helper()
	body := append([]byte(`{"repository":{"id":`), strconv.FormatInt(w.Repository.ID(), 10)...)
	body = append(body, fmt.Sprintf(`,"owner":{"id":%d}},"filler":["`, w.Repository.OwnerID())...)
	const each = 1 << 19
	for len(body) < 25<<20-2*each {
		body = append(append(body, bytes.Repeat([]byte("x"), each)...), `","`...)
	}
	body = append(body, `"]}`...)
	mac := hmac.New(sha256.New, []byte(w.Secret))
	mac.Write(body)
	signature := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	client := &http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	answered := 0
	var senders sync.WaitGroup
	for range n {
		senders.Go(func() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, w.HookURL, bytes.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-GitHub-Event", "push")
			req.Header.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
			req.Header.Set("X-Hub-Signature-256", signature)
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Errorf("a body of %d bytes was answered %d", len(body), resp.StatusCode)
				return
			}
			mu.Lock()
			answered++
			mu.Unlock()
		})
	}
	senders.Wait()
	return answered
}
