//go:build peer

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

var peerAlertmanager = flag.String("peer.alertmanager", "", "an executable of Prometheus' Alertmanager")

// A real Alertmanager hears of a source that an outage keeps from being fresh,
// under the labels that docs/alerts.md names, and that it is over.
func TestAlertmanagerHearsOfASource(t *testing.T) {
	if *peerAlertmanager == "" {
		t.Fatal("name the executable with -peer.alertmanager")
	}
	url := startAlertmanager(t)
	w := newWorld(t, world.Config{
		YAML: quick + "alerts: {alertmanager: " + url + ", allow_http: true, repeat: 1s}\n",
		Source: &world.SourceConfig{
			Timings: "{target: 30s, alert_after: 6s, reconcile: 2s, observe: 1s, queue_age: 1s, lease: 3s, renew: 1s, " +
				"checkout: 5s, sink: 5s, attempts: 2, backoff: 500ms, evaluate: 1s}",
			Repository: forgesim.Import{Files: map[string]string{"page": "1"}},
		},
	})
	if err := serves(t, filepath.Join(w.Served(), "page"), "1"); err != nil {
		t.Fatal(err)
	}
	w.Forge.SetDown(true)
	defer w.Forge.SetDown(false)
	await := func(want bool) {
		t.Helper()
		if _, err := world.Await(t.Context(), 40*time.Second, func() (struct{}, bool, error) {
			firing, err := alertsAt(t.Context(), url)
			return struct{}{}, firing["freshness source:handbook"] == want, err
		}); err != nil {
			t.Fatalf("freshness alert at the Alertmanager, want %t: %v", want, err)
		}
	}
	await(true)
	w.Forge.SetDown(false)
	await(false)
}

// alertsAt are the alerts that fire, by code and subject.
func alertsAt(ctx context.Context, url string) (map[string]bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v2/alerts?active=true", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var list []struct {
		Labels map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	firing := map[string]bool{}
	for _, a := range list {
		firing[a.Labels["code"]+" "+a.Labels["subject"]] = true
	}
	return firing, nil
}

func startAlertmanager(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(config, []byte("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(*peerAlertmanager, "--config.file", config, "--storage.path", dir, "--web.listen-address", address, "--cluster.listen-address", "")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		// Its status says that it was killed.
		_ = cmd.Wait()
	})
	url := "http://" + address
	if _, err := world.Await(t.Context(), 20*time.Second, func() (struct{}, bool, error) {
		_, err := alertsAt(t.Context(), url)
		return struct{}{}, err == nil, nil
	}); err != nil {
		t.Fatal("the Alertmanager does not answer: ", err)
	}
	return url
}
