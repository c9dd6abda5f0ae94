//go:build unix

package remote_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/source/remote"
	remotegitea "github.com/fencepost/fencepost/internal/source/remote/gitea"
)

// lightServer answers like a forge whose branches do not move, at next to no
// cost of its own: ls-refs from memory, and the identity as unchanged.
func lightServer(b *testing.B) *httptest.Server {
	b.Helper()
	const advertisement = "000eversion 2\n0014agent=git/light\n000cls-refs\n0012fetch=shallow\n0000"
	line := strings.Repeat("ab", 20) + " refs/heads/main\n"
	refs := fmt.Sprintf("%04x%s0000", len(line)+4, line)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			b.Error(err)
		}
		answer := ""
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			answer = advertisement
		case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			answer = refs
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
			return
		default:
			w.Header().Set("Etag", `"x"`)
			id := strings.TrimPrefix(r.URL.Path, "/api/v1/repositories/")
			answer = fmt.Sprintf(`{"id":%s,"owner":{"id":1},"full_name":"acme/r%s","private":true,"object_format_name":"sha1"}`, id, id)
		}
		if _, err := io.WriteString(w, answer); err != nil {
			b.Error(err)
		}
	}))
	b.Cleanup(server.Close)
	return server
}

// cpu is what the process has computed so far, the server included.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkObserveUnchanged is one look at a head that has not moved, among
// so many sources that share their connections. Its time holds the server's,
// which is in the same process.
func BenchmarkObserveUnchanged(b *testing.B) {
	for _, sources := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			server := lightServer(b)
			at, err := url.Parse(server.URL)
			if err != nil {
				b.Fatal(err)
			}
			api := *at
			api.Path = "/api/v1"
			client, err := gitea.New(gitea.Config{
				API: &api, AllowHTTP: true, Now: time.Now,
				Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte("token")), nil },
			})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			shared := gitfetch.NewTransport(gitfetch.TransportOptions{})
			defer shared.Close()
			all := make([]*remote.Remote, sources)
			for i := range all {
				name := fmt.Sprintf("acme/r%d", i+1)
				repo, err := remotegitea.New(client, int64(i+1), name)
				if err != nil {
					b.Fatal(err)
				}
				all[i], err = remote.New(remote.Config{
					Repository: remote.Repository{ID: int64(i + 1), OwnerID: 1, FullName: name, Visibility: remote.Private},
					Ref:        "refs/heads/main", Git: at, AllowHTTP: true, Credential: client.GitCredential, Identity: repo,
					Transport: shared, Now: time.Now,
				})
				if err != nil {
					b.Fatal(err)
				}
				// The first look asks what the server can do.
				if _, err := all[i].Observe(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			before, i := cpu(b), 0
			for b.Loop() {
				if _, err := all[i%sources].Observe(b.Context()); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
