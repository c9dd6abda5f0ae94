package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/powercut"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// onVolume makes a world whose data directory is on a volume.
func onVolume(t *testing.T, v *powercut.Volume) *world.World {
	t.Helper()
	w := newWorld(t, world.Config{Manual: true, YAML: "provider: {write_interval: 0s}\ninbox: {segment: 1MiB}\n"})
	kill(t, w)
	data := filepath.Join(v.Path(), "data")
	if err := errors.Join(os.RemoveAll(w.DataDir()), os.Mkdir(data, 0o700), os.Symlink(data, w.DataDir())); err != nil {
		t.Fatal(err)
	}
	// The volume goes before the world does.
	t.Cleanup(func() {
		if err := w.Controller.Stop(); err != nil {
			t.Log(err) // a controller whose disk failed says so
		}
	})
	start(t, w)
	return w
}

// padded is the delivery with so many bytes more: another one, about the same.
func padded(d forgesim.Delivery, n, bytesMore int) forgesim.Delivery {
	pad := fmt.Sprintf(`{"pad":"%d %s",`, n, strings.Repeat("x", bytesMore))
	d.Body = append([]byte(pad), d.Body[1:]...)
	return d
}

// attempt sends a delivery once; nothing is said where there is no whole answer.
func attempt(ctx context.Context, w *world.World, d forgesim.Delivery) (a world.Answer, status int, err error) {
	req, err := w.Forge.Request(ctx, d, w.HookURL)
	if err != nil {
		return a, 0, err
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return a, 0, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		return a, 0, err
	}
	a, err = world.ReadAnswer(text.Bytes())
	return a, resp.StatusCode, err
}

// allEnd waits until each delivery has its end.
func allEnd(t *testing.T, w *world.World, acknowledged []fencepost.DeliveryID) {
	t.Helper()
	for _, id := range acknowledged {
		if _, err := world.Await(t.Context(), 2*endWithin, func() (struct{}, bool, error) {
			r, err := w.Receipt(t.Context(), id)
			_, ended := world.Find(r, receipt.Ended)
			return struct{}{}, ended, err
		}); err != nil {
			t.Errorf("%s was acknowledged and does not end: %v", id, err)
		}
	}
}

// A disk that is full: what is new is refused with 503 before anything is
// promised, and taken again when there is room, by the same process.
func TestAFullDiskRefusesAndRecoversWithoutARestart(t *testing.T) {
	t.Parallel()
	v := powercut.Make(t, t.TempDir(), powercut.Ext4, "")
	w := onVolume(t, v)
	pid := w.Controller.PID()
	one := held(t, w, "pass")
	acknowledged := []fencepost.DeliveryID{give(t, w, w.Controller, one.delivery).Delivery}
	v.Fill()
	refused := 0
	for n := 0; refused < 20 && n < 200; n++ {
		a, status, err := attempt(t.Context(), w, padded(one.delivery, n, 64<<10))
		switch {
		case err != nil:
			t.Fatalf("no answer, with a full disk: %v", err)
		case status == http.StatusServiceUnavailable && a.Reason == fencepost.ReasonFull:
			refused++
		case status/100 == 2:
			acknowledged = append(acknowledged, a.Delivery)
		default:
			t.Fatalf("answered %d %s, with a full disk", status, a)
		}
	}
	if refused < 20 {
		t.Errorf("%d deliveries were refused, want 20; %d were taken", refused, len(acknowledged))
	}
	v.Empty()
	a := give(t, w, w.Controller, padded(one.delivery, 1000, 64<<10))
	if a.Outcome != "accepted" {
		t.Errorf("with room again: answered %s, want accepted", a)
	}
	allEnd(t, w, append(acknowledged, a.Delivery))
	if w.Controller.PID() != pid {
		t.Error("another process serves")
	}
	t.Logf("%d acknowledged, %d refused, none lost", len(acknowledged)+1, refused)
}

// A disk that fails: nothing is acknowledged that is not there when it works
// again, and the controller stops.
func TestADiskThatFailsStopsTheController(t *testing.T) {
	t.Parallel()
	shelf := powercut.NewShelf(t, t.TempDir(), 250<<20)
	v := powercut.Make(t, shelf.Path(), powercut.XFS, "")
	w := onVolume(t, v)
	one := held(t, w, "pass")
	acknowledged := []fencepost.DeliveryID{give(t, w, w.Controller, one.delivery).Delivery}
	deaf := 0
	for n := 0; deaf < 20 && n < 400; n++ {
		if n == 20 {
			shelf.Fill()
		}
		a, status, err := attempt(t.Context(), w, padded(one.delivery, n, 16<<10))
		switch {
		case err == nil && status/100 == 2:
			acknowledged = append(acknowledged, a.Delivery)
		default:
			deaf++
		}
	}
	if deaf == 0 {
		t.Error("a controller whose disk has failed goes on")
	}
	ended := w.Controller.Stop()
	if ended == nil {
		t.Error("a controller whose disk has failed ends as if nothing had been")
	}
	shelf.Empty()
	v.Restart()
	for _, dir := range []string{".", "ledger", "inbox"} {
		if err := durable.ClearPoison(durable.OS(filepath.Join(v.Path(), "data", dir))); err != nil {
			t.Fatal(err)
		}
	}
	start(t, w)
	allEnd(t, w, acknowledged)
	t.Logf("%d acknowledged, none lost; the controller said: %v", len(acknowledged), ended)
}

// A flood of wrong signatures: each is refused, and right deliveries are
// acknowledged all the while.
func TestAFloodOfWrongSignaturesStopsNobody(t *testing.T) {
	t.Parallel()
	seconds, right := fromEnv(t, "FENCEPOST_FLOOD_SECONDS", 3), 20
	w := newWorld(t, world.Config{Manual: true, RateLimit: 100_000, YAML: "provider: {write_interval: 0s}\n"})
	one := held(t, w, "pass")
	ctx, dry := context.WithCancel(t.Context())
	var refused, other atomic.Int64
	var flood sync.WaitGroup
	client := &http.Client{Timeout: endWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	for n := range 32 {
		flood.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				req, err := w.Forge.Request(ctx, padded(one.delivery, n<<20|i, 1<<10), w.HookURL)
				if err != nil {
					continue // it is over
				}
				req.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
				resp, err := client.Do(req)
				if err != nil {
					continue
				}
				_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
				if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode == http.StatusUnauthorized {
					refused.Add(1)
				} else if ctx.Err() == nil {
					other.Add(1)
				}
			}
		})
	}
	var acknowledged []fencepost.DeliveryID
	var slowest time.Duration
	for n := range right {
		began := time.Now()
		a := give(t, w, w.Controller, padded(one.delivery, -n-1, 1<<10))
		slowest = max(slowest, time.Since(began))
		if a.Outcome != "accepted" {
			t.Errorf("in the flood: answered %s, want accepted", a)
		}
		acknowledged = append(acknowledged, a.Delivery)
		time.Sleep(time.Duration(seconds) * time.Second / time.Duration(right))
	}
	dry()
	flood.Wait()
	allEnd(t, w, acknowledged)
	if refused.Load() < 100 || other.Load() > 0 {
		t.Errorf("%d wrong signatures were refused, %d answered otherwise", refused.Load(), other.Load())
	}
	t.Logf("%d wrong signatures refused in %d s; %d right deliveries acknowledged meanwhile, the slowest in %v",
		refused.Load(), seconds, len(acknowledged), slowest.Round(time.Millisecond))
}

// Slow clients: more than the listener takes connections, each with a request
// that it never finishes. They are closed in turn, and right deliveries are
// acknowledged.
func TestSlowClientsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	clients := fromEnv(t, "FENCEPOST_SLOW_CLIENTS", 1500)
	w := newWorld(t, world.Config{Manual: true, YAML: "provider: {write_interval: 0s}\ningress: {header_timeout: 1s, body_timeout: 1s, stall_timeout: 1s}\n"})
	one := held(t, w, "pass")
	address := strings.TrimSuffix(strings.TrimPrefix(w.HookURL, "http://"), "/hooks/"+world.Gate)
	ctx, leave := context.WithCancel(t.Context())
	var open, closed atomic.Int64
	var all sync.WaitGroup
	ready := make(chan struct{}, 256) // who dials at once
	for n := range clients {
		all.Go(func() {
			ready <- struct{}{}
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", address)
			<-ready
			if err != nil {
				return
			}
			open.Add(1)
			defer conn.Close()
			// Half a head, or half a body.
			text := "POST /hooks/docs HTTP/1.1\r\nHost: x\r\n"
			if n%2 == 0 {
				text += "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
			}
			if _, err := io.WriteString(conn, text); err != nil {
				closed.Add(1)
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			if _, err := io.Copy(io.Discard, io.LimitReader(conn, 1<<16)); err == nil || ctx.Err() == nil {
				closed.Add(1)
			}
		})
	}
	var acknowledged []fencepost.DeliveryID
	var slowest time.Duration
	for n := range 10 {
		began := time.Now()
		// A sender repeats what was not answered.
		a, err := world.Await(ctx, 2*endWithin, func() (world.Answer, bool, error) {
			a, status, err := attempt(ctx, w, padded(one.delivery, n, 1<<10))
			return a, err == nil && status/100 == 2, nil
		})
		if err != nil {
			t.Errorf("beside %d slow clients: %v", open.Load(), err)
			break
		}
		slowest = max(slowest, time.Since(began))
		acknowledged = append(acknowledged, a.Delivery)
	}
	dialed := open.Load()
	// Each of them was served its bound of time, and no more.
	if _, err := world.Await(ctx, 2*endWithin, func() (struct{}, bool, error) {
		return struct{}{}, int(closed.Load()) >= clients, nil
	}); err != nil {
		t.Errorf("%d of %d slow clients were closed: %v", closed.Load(), clients, err)
	}
	leave()
	all.Wait()
	allEnd(t, w, acknowledged)
	t.Logf("%d slow clients, %d of them connected while 10 right deliveries were acknowledged, the slowest in %v; all were closed",
		clients, dialed, slowest.Round(time.Millisecond))
}
