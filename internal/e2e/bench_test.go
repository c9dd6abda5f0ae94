package e2e

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// quick is a configuration for a forge that answers at once and asks for no
// pause between writes.
const quick = "provider: {write_interval: 0s}\n"

// BenchmarkEvaluation is one delivery from receipt to its end, with a
// repository of 1 MB: all but the program's own time is the controller's
// share. The forge and its Git server run beside it and answer over loopback.
//
// At once is a forge that has all at hand when the event goes out: the test
// merge is made, and what Git sends for it is worked out. With real Git both
// are part of the share: each costs some processes of Git.
func BenchmarkEvaluation(b *testing.B) {
	b.Run("at-once", func(b *testing.B) { benchmarkEvaluation(b, true) })
	b.Run("real-git", func(b *testing.B) { benchmarkEvaluation(b, false) })
}

func benchmarkEvaluation(b *testing.B, atOnce bool) {
	files := behave("pass")
	for i := range 200 {
		files[fmt.Sprintf("docs/%03d.md", i)] = strings.Repeat(fmt.Sprintf("line %d of a page\n", i), 300)
	}
	w := newWorld(b, world.Config{
		MergePolls: -1, YAML: quick, Repository: forgesim.Import{Files: files}, Manual: true, RememberGit: atOnce,
	})
	token := installToken(b, w)
	var shares []time.Duration
	parts := map[string][]time.Duration{}
	for b.Loop() {
		pr := open(b, w, "pass")
		if atOnce {
			prepare(b, w, pr, token)
		}
		if err := w.Forge.Deliver(b.Context()); err != nil {
			b.Fatal(err)
		}
		awaitRun(b, w, pr)
		r := ended(b, w, pr)
		end, _ := world.Find(r, receipt.Ended)
		ran, _ := world.Find(r, receipt.Ran)
		shares = append(shares, end.At.Sub(r.Events[0].At)-ran.Took)
		for i, e := range r.Events[1:] {
			part := partOf(r.Events[:i+1], e)
			parts[part] = append(parts[part], e.At.Sub(r.Events[i].At))
		}
		parts[string(receipt.Ran)][len(shares)-1] -= ran.Took
	}
	for _, p := range []int{10, 50, 90} {
		b.ReportMetric(quantile(shares, p), fmt.Sprintf("share-p%d-ms", p))
	}
	for name, took := range parts {
		b.ReportMetric(quantile(took, 50), name+"-p50-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// partOf names what passed between two events by the second of them; where
// there are two of a kind, the first is the gate's first reading, or the
// candidate's fetch.
func partOf(before []receipt.Event, e receipt.Event) string {
	if slices.ContainsFunc(before, func(b receipt.Event) bool { return b.Kind == e.Kind }) {
		return string(e.Kind) + "-again"
	}
	return string(e.Kind)
}

// quantile is in milliseconds.
func quantile(of []time.Duration, percent int) float64 {
	slices.Sort(of)
	return float64(of[min(len(of)*percent/100, len(of)-1)]) / 1e6
}

// installToken is a token that reads the gated repository.
func installToken(b *testing.B, w *world.World) string {
	b.Helper()
	installation, err := w.Forge.App().Install(w.Repository)
	if err != nil {
		b.Fatal(err)
	}
	return installation.Token(w.Repository)
}

// prepare has the forge do beforehand what the evaluation will ask it for.
func prepare(b *testing.B, w *world.World, pr *forgesim.PullRequest, token string) {
	b.Helper()
	sha, err := pr.PrepareTestMerge(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	merge, err := fencepost.ParseCommitID(sha)
	if err != nil {
		b.Fatal(err)
	}
	c, err := gitfetch.Fetch(b.Context(), gitfetch.Request{
		URL: w.Server.Git + "/" + w.Repository.FullName() + ".git", Commit: merge, AllowHTTP: true,
		Dir: filepath.Join(b.TempDir(), sha),
		Credential: func(context.Context) (string, fencepost.Secret, error) {
			return "x-access-token", fencepost.NewSecret([]byte(token)), nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Remove(); err != nil {
		b.Fatal(err)
	}
}

// awaitRun waits for the result at the forge: to read receipts meanwhile would
// take the processors from who is measured.
func awaitRun(b *testing.B, w *world.World, pr *forgesim.PullRequest) {
	b.Helper()
	head := pr.Head()
	if _, err := world.Await(b.Context(), endWithin, func() (struct{}, bool, error) {
		return struct{}{}, len(w.Repository.CheckRuns(head)) > 0, nil
	}); err != nil {
		b.Fatal(err)
	}
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
