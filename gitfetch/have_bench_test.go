package gitfetch_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
)

// A shape is a tree and how much of it a push changes.
type shape struct {
	name                  string
	files, bytes, changed int
}

func shapes() []shape {
	return []shape{
		{"10MB_of_1000_files_3_changed", 1000, 10 << 20, 3},
		{"123MB_of_3000_files_3_changed", 3000, 123 << 20, 3},
		{"20000_files_50_changed", 20_000, 40 << 20, 50},
	}
}

// pushes makes a repository with a tree of that shape, and one more commit.
func (s shape) pushes(b *testing.B) (repo *gitserver.Repo, first, second fencepost.CommitID) {
	b.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var t strings.Builder
		for t.Len() < s.bytes/s.files {
			fmt.Fprintf(&t, "line %d of something like source, word %x\n", rnd.IntN(50), rnd.Uint32())
		}
		return t.String()
	}
	var entries []gitserver.Entry
	for i := range s.files {
		entries = append(entries, gitserver.Entry{Path: fmt.Sprintf("d%02d/s%02d/f%d", i%40, i/40%10, i), Content: text()})
	}
	server := gitserver.New(b)
	server.Wrap(remembering())
	repo = server.Repo(b, "r.git")
	repo.Git(b, "config", "uploadpack.allowFilter", "true")
	first = repo.Commit(b, "main", entries)
	for i := range s.changed {
		at := i * (s.files / s.changed)
		entries[at].Content += "one more line\n"
	}
	second = repo.Commit(b, "main", entries, first)
	repo.Git(b, "repack", "-adq")
	return repo, first, second
}

// remembering answers a repeated request from memory, so that a server's
// packing is left out.
func remembering() func(http.Handler) http.Handler {
	var mu sync.Mutex
	known := make(map[[32]byte]*httptest.ResponseRecorder)
	return func(backend http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			key := sha256.Sum256(append([]byte(r.URL.String()+"\n"), body...))
			mu.Lock()
			defer mu.Unlock()
			answer := known[key]
			if answer == nil {
				answer = httptest.NewRecorder()
				r.Body = io.NopCloser(bytes.NewReader(body))
				backend.ServeHTTP(answer, r)
				known[key] = answer
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			_, _ = w.Write(answer.Body.Bytes())
		})
	}
}

// BenchmarkPush is what a push costs a place that has the commit before it: a
// fetch from nothing, one on top of the earlier checkout, and as many hard
// links and directories made bare, which is what no fresh tree can do without.
func BenchmarkPush(b *testing.B) {
	for _, s := range shapes() {
		b.Run(s.name, func(b *testing.B) {
			repo, first, second := s.pushes(b)
			dir := b.TempDir()
			n := 0
			get := func(commit fencepost.CommitID, sync gitfetch.Sync, have *gitfetch.Have) *gitfetch.Checkout {
				n++
				c, err := gitfetch.Fetch(b.Context(), gitfetch.Request{
					URL: repo.URL, Commit: commit, AllowHTTP: true, Dir: filepath.Join(dir, fmt.Sprint(n)), Sync: sync, Have: have,
				})
				if err != nil {
					b.Fatal(err)
				}
				return c
			}
			before := get(first, gitfetch.SyncAll, nil)
			var text bytes.Buffer
			if err := before.WriteManifest(&text); err != nil {
				b.Fatal(err)
			}
			for _, sync := range []gitfetch.Sync{gitfetch.SyncNone, gitfetch.SyncAll} {
				suffix := map[gitfetch.Sync]string{gitfetch.SyncNone: "", gitfetch.SyncAll: "_synced"}[sync]
				get(second, sync, nil)
				b.Run("full"+suffix, func(b *testing.B) {
					defer reportCPU(b)()
					for b.Loop() {
						report(b, get(second, sync, nil), 0)
					}
				})
				b.Run("incremental"+suffix, func(b *testing.B) {
					defer reportCPU(b)()
					for b.Loop() {
						m, err := gitfetch.ReadManifest(bytes.NewReader(text.Bytes()))
						if err != nil {
							b.Fatal(err)
						}
						c := get(second, sync, &gitfetch.Have{Dir: before.Root(), Manifest: m})
						var next bytes.Buffer
						if err := c.WriteManifest(&next); err != nil {
							b.Fatal(err)
						}
						report(b, c, next.Len())
					}
				})
			}
			b.Run("links_alone", func(b *testing.B) {
				defer reportCPU(b)()
				for b.Loop() {
					n++
					linkAll(b, before.Root(), filepath.Join(dir, fmt.Sprint(n)))
				}
			})
		})
	}
}

func report(b *testing.B, c *gitfetch.Checkout, manifest int) {
	b.Helper()
	st := c.Stats()
	if st.Fallback != "" {
		b.Fatalf("fallback %q", st.Fallback)
	}
	b.ReportMetric(float64(st.WireBytes), "wire-B/op")
	b.ReportMetric(float64(st.OutputBytes-st.LinkedBytes), "written-B/op")
	b.ReportMetric(float64(manifest), "manifest-B/op")
	b.ReportMetric(float64(st.Receive.Microseconds())/1000, "receive-ms")
	b.ReportMetric(float64(st.Check.Microseconds())/1000, "check-ms")
	b.ReportMetric(float64(st.Write.Microseconds())/1000, "write-ms")
}

// reportCPU adds what the process computed, in the system too: on a machine
// that others use the wall time says less.
func reportCPU(b *testing.B) func() {
	b.Helper()
	before := cpuTime(b)
	return func() {
		b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}
}

func linkAll(b *testing.B, from, to string) {
	b.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.Mkdir(at, 0o700)
		}
		return os.Link(path, at)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSelect fetches some directories of forty, from a server that can
// leave the rest out, and from one that can't.
func BenchmarkSelect(b *testing.B) {
	for _, filter := range []bool{true, false} {
		repo, commit, _ := shape{"", 3000, 123 << 20, 1}.pushes(b)
		repo.Git(b, "config", "uploadpack.allowFilter", fmt.Sprint(filter))
		for _, dirs := range []int{1, 10, 40} {
			b.Run(fmt.Sprintf("%d_of_40_directories_filter_%v", dirs, filter), func(b *testing.B) {
				defer reportCPU(b)()
				dir := b.TempDir()
				n := 0
				for b.Loop() {
					n++
					c, err := gitfetch.Fetch(b.Context(), gitfetch.Request{
						URL: repo.URL, Commit: commit, AllowHTTP: true, Dir: filepath.Join(dir, fmt.Sprint(n)),
						Select: func(path string) bool { return path < fmt.Sprintf("d%02d", dirs) },
					})
					if err != nil {
						b.Fatal(err)
					}
					report(b, c, 0)
				}
			})
		}
	}
}

// BenchmarkLook is what an unchanged head costs: by itself, and with a
// transport that was there before.
func BenchmarkLook(b *testing.B) {
	l := &lister{}
	server := httptest.NewServer(l)
	b.Cleanup(server.Close)
	tr := gitfetch.NewTransport(gitfetch.TransportOptions{})
	b.Cleanup(tr.Close)
	for name, tr := range map[string]*gitfetch.Transport{"alone": nil, "shared": tr} {
		b.Run(name, func(b *testing.B) {
			i := 0
			defer reportCPU(b)()
			for b.Loop() {
				i++
				req := gitfetch.Request{URL: fmt.Sprintf("%s/r%d", server.URL, i%1000), AllowHTTP: true, Transport: tr}
				if _, err := gitfetch.LsRefs(b.Context(), req, "refs/heads/main"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
