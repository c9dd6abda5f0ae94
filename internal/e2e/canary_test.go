package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// Invariant 16: known secrets and personal fields go in at every edge, at
// debug level, through successes and failures; then every output is searched
// for them.
func TestNoSecretReachesAnyOutput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{
		Args: []string{"--debug"}, YAML: "work: {attempts: 2, backoff: 100ms}\n", PrivateChecks: true,
	})
	canaries := map[string]string{
		"webhook secret": w.Secret,
		"body":           "CANARY-BODY-7d1f",
		"sender":         "canary-sender-41aa",
		"header value":   "CANARY-HEADER-90c3",
		"app key":        keyLine(t, w),
		"token":          "ghs_",
		"data directory": w.DataDir(),
		"secret's path":  "secrets/canary-nowhere-5e",
		// As a value of its own, and as it goes to the Git server.
		"action credential": w.ChecksToken,
		"basic credential":  "x-access-token:" + w.ChecksToken,
	}
	open := func(head, what string) *forgesim.PullRequest {
		pr, err := w.Repository.OpenPullRequest(t.Context(), forgesim.OpenPull{
			Head: head, Title: "About " + canaries["body"], Body: canaries["body"], Actor: canaries["sender"],
			Change: forgesim.Change{Files: behave(what), Message: canaries["body"]},
		})
		if err != nil {
			t.Fatal(err)
		}
		return pr
	}
	passed := open("pass", "pass")
	ended(t, w, passed)
	accepted := acceptWithHeader(t, w, passed, canaries["header value"])
	ended(t, w, open("crash", "crash"))
	// Failures at the provider, with provider text that must not travel.
	w.Forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/pulls/{pull_number}", Times: 2, Effect: forgesim.Garble{}})
	w.Forge.Inject(forgesim.Fault{On: createRun, Effect: forgesim.DropAnswer{}})
	ended(t, w, open("faults", "block"))
	s := searched{controller: w.Controller, data: w.DataDir(), config: w.ConfigFile, ops: w.OpsURL, client: w.Client}
	s.forge(t, w.HookURL, "X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64), canaries["header value"])
	s.failReload(t, "file:secrets/webhook", canaries["secret's path"])
	s.search(t, accepted, map[string][]byte{}, canaries)
}

// A searched is a controller whose outputs are searched.
type searched struct {
	controller        *world.Controller
	data, config, ops string
	client            *http.Client
}

// search stops the controller and looks for canaries in all that it put out:
// pages, log, files and their names, and what commands show of a delivery; and
// in further outputs that the caller has.
func (s searched) search(t *testing.T, id fencepost.DeliveryID, outputs map[string][]byte, canaries map[string]string) {
	t.Helper()
	for _, path := range []string{"/metrics", "/", "/readyz", "/healthz"} {
		outputs["GET "+path] = s.page(t, path)
	}
	if err := s.controller.Stop(); err != nil {
		t.Fatal(err)
	}
	s.collect(t, outputs)
	s.commands(t, id, outputs)
	if len(outputs["serve.log"]) == 0 || len(outputs) < 20 {
		t.Fatalf("only %d outputs were found", len(outputs))
	}
	for what, canary := range canaries {
		for name, output := range outputs {
			for form, text := range forms(canary) {
				if bytes.Contains(output, []byte(text)) {
					t.Errorf("%s (%s) stands in %s", what, form, name)
				}
			}
		}
	}
}

// forms are the ways in which a secret may hide.
func forms(secret string) map[string]string {
	return map[string]string{
		"plain": secret, "base64": base64.StdEncoding.EncodeToString([]byte(secret)), "hex": hex.EncodeToString([]byte(secret)),
	}
}

// keyLine is a line from the middle of the App's private key.
func keyLine(t *testing.T, w *world.World) string {
	t.Helper()
	lines := strings.Split(string(w.Forge.App().KeyPEM()), "\n")
	line := lines[len(lines)/2]
	if len(line) < 32 {
		t.Fatalf("line %q of the key is too short to look for", line)
	}
	return line
}

// acceptWithHeader sends an event of a request in other words, which makes it
// a delivery of its own, with a further header, and waits for its end.
func acceptWithHeader(t *testing.T, w *world.World, pr *forgesim.PullRequest, header string) fencepost.DeliveryID {
	t.Helper()
	d, ok := w.Delivery(pr, false)
	if !ok {
		t.Fatalf("no delivery of request #%d", pr.Number())
	}
	d.Body = append(slices.Clone(d.Body), '\n')
	req, err := w.Forge.Request(t.Context(), d, w.HookURL)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Canary", header)
	req.Header.Set("X-GitHub-Hook-ID", header)
	resp, err := w.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := world.ReadAnswer(text)
	if err != nil || answer.Outcome != "accepted" {
		t.Fatalf("answered %s (%v), want accepted", answer, err)
	}
	if _, err := world.Await(t.Context(), endWithin, func() (struct{}, bool, error) {
		r, err := w.Receipt(t.Context(), answer.Delivery)
		_, ended := world.Find(r, receipt.Ended)
		return struct{}{}, ended, err
	}); err != nil {
		t.Fatalf("end of %s: %v", answer.Delivery, err)
	}
	return answer.Delivery
}

// page reads a page of the operations listener.
func (s searched) page(t *testing.T, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ops+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil || len(text) == 0 {
		t.Fatalf("GET %s: %d bytes, %v", path, len(text), err)
	}
	return text
}

// failReload has the controller read a configuration that names a secret's
// file that is not there.
func (s searched) failReload(t *testing.T, secret, path string) {
	t.Helper()
	rewrite(t, s.config, secret, "file:"+path)
	if err := s.controller.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := world.Await(t.Context(), endWithin, func() (struct{}, bool, error) {
		text, err := os.ReadFile(s.controller.Log)
		return struct{}{}, bytes.Contains(text, []byte("keys were not reloaded")), err
	}); err != nil {
		t.Fatal(err)
	}
	rewrite(t, s.config, "file:"+path, secret)
}

// commands runs what shows a person what happened.
func (s searched) commands(t *testing.T, id fencepost.DeliveryID, outputs map[string][]byte) {
	t.Helper()
	for _, args := range [][]string{
		{"deliveries", "list"}, {"deliveries", "show", string(id)}, {"ledger", "stat"}, {"ledger", "verify"},
	} {
		for _, more := range [][]string{nil, {"--json"}} {
			cmd := exec.CommandContext(t.Context(), fencepostBinary, slices.Concat(args, []string{"--config", s.config}, more)...)
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Errorf("%v: %v\n%s", cmd.Args, err, out)
			}
			outputs[strings.Join(slices.Concat([]string{"fencepost"}, args, more), " ")] = out
		}
	}
}

// forge sends what nobody has signed, and wants it refused.
func (s searched) forge(t *testing.T, to, header, signature, canary string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(`{"canary":"CANARY-BODY-7d1f"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Canary", canary)
	req.Header.Set(header, signature)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("what nobody signed was answered %d, want 401", resp.StatusCode)
	}
}

// collect reads the log and every file that the controller keeps, their names
// too. The inbox holds raw bodies, by design (DESIGN §2).
func (s searched) collect(t *testing.T, outputs map[string][]byte) {
	t.Helper()
	log, err := os.ReadFile(s.controller.Log)
	if err != nil {
		t.Fatal(err)
	}
	outputs["serve.log"] = log
	err = filepath.WalkDir(s.data, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(s.data, name)
		if err != nil {
			return err
		}
		if relative == "inbox" {
			return filepath.SkipDir
		}
		outputs["name of "+relative] = []byte(relative)
		if d.IsDir() {
			return nil
		}
		outputs[relative], err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
