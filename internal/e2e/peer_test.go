//go:build peer

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/ingress/loadgen"
)

var peerWebhook = flag.String("peer.webhook", "", "an executable of adnanh/webhook")

// What adnanh/webhook does under the load of
// TestNothingAcknowledgedIsLostAndNothingIsPublishedTwice: the same number of
// signed deliveries from as many senders, a hook that verifies the signature
// and runs a script, and the same kills. Its losses are figures, not failures.
func TestPeerWebhookUnderKill(t *testing.T) {
	if *peerWebhook == "" {
		t.Fatal("name the executable with -peer.webhook")
	}
	deliveries, kills := fromEnv(t, "FENCEPOST_SOAK_DELIVERIES", 500), fromEnv(t, "FENCEPOST_SOAK_KILLS", 1)
	p := newPeer(t)
	p.start(t)
	acknowledged := make([]bool, deliveries)
	next := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for i := range next {
				acknowledged[i] = p.send(t, i)
			}
		})
	}
	for i := range deliveries {
		if due := (i + 1) * (kills + 1) / deliveries; due > i*(kills+1)/deliveries && due <= kills {
			p.kill(t)
			p.start(t)
		}
		next <- i
	}
	close(next)
	senders.Wait()
	// What is under way ends.
	time.Sleep(2 * time.Second)
	done := p.done(t)
	taken, lost := 0, 0
	for i, ok := range acknowledged {
		if ok {
			taken++
			if !done[fmt.Sprint(i)] {
				lost++
			}
		}
	}
	t.Logf("adnanh/webhook: %d deliveries, %d kills: %d acknowledged, %d of them lost", deliveries, kills, taken, lost)
}

const peerSecret = "a secret of enough bytes for the peer"

type peer struct {
	dir, address string
	cmd          *exec.Cmd
	client       *http.Client
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{dir: t.TempDir(), address: l.Addr().String(), client: &http.Client{Timeout: 10 * time.Second}}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n# as long as a quick check takes\nsleep 0.1\necho \"$1\" >> " + filepath.Join(p.dir, "done") + "\n"
	if err := os.WriteFile(filepath.Join(p.dir, "run"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	hooks, err := json.Marshal([]map[string]any{{
		"id": "docs", "execute-command": filepath.Join(p.dir, "run"),
		"pass-arguments-to-command": []any{map[string]any{"source": "payload", "name": "number"}},
		"trigger-rule": map[string]any{"match": map[string]any{
			"type": "payload-hmac-sha256", "secret": peerSecret,
			"parameter": map[string]any{"source": "header", "name": "X-Hub-Signature-256"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "hooks.json"), hooks, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	return p
}

func (p *peer) start(t *testing.T) {
	t.Helper()
	host, port, _ := strings.Cut(p.address, ":")
	p.cmd = exec.Command(*peerWebhook, "-hooks", filepath.Join(p.dir, "hooks.json"), "-ip", host, "-port", port)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			conn.Close()
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the peer does not listen")
}

// kill ends the peer with what it forked, as a service manager, a container's
// end or a lost machine does.
func (p *peer) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	// Its exit status says that it was killed.
	_ = p.cmd.Wait()
}

func (p *peer) send(t *testing.T, n int) bool {
	body := fmt.Sprintf(`{"number":%d}`, n)
	for range 200 {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+p.address+"/hooks/docs", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return false
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Hub-Signature-256", "sha256="+forgesim.Sign([]byte(peerSecret), []byte(body)))
		resp, err := p.client.Do(req)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		resp.Body.Close()
		return resp.StatusCode/100 == 2
	}
	return false
}

func (p *peer) done(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open(filepath.Join(p.dir, "done"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	done := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		done[lines.Text()] = true
	}
	return done
}

// How many signed deliveries of 8 KiB adnanh/webhook answers a second, over 64
// connections, while it runs the smallest program for each.
func TestPeerWebhookRate(t *testing.T) {
	if *peerWebhook == "" {
		t.Fatal("name the executable with -peer.webhook")
	}
	p := newPeer(t)
	if err := os.WriteFile(filepath.Join(p.dir, "run"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	body := []byte(`{"number":1,"filler":"` + strings.Repeat("x", 8<<10) + `"`)
	result, err := loadgen.Run(t.Context(), loadgen.Load{
		Address: p.address, Path: "/hooks/docs", Connections: 64, Requests: 3000, Secret: []byte(peerSecret), Body: body, Now: time.Now,
	})
	if err != nil || result.Statuses[http.StatusOK] != 3000 {
		t.Fatalf("statuses %v, %v", result.Statuses, err)
	}
	t.Logf("adnanh/webhook: %.0f req/s", result.PerSecond())
}
