package world

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A controller's log may be gone when its error is read, so the error says
// what the controller said last: what the kernel lacks, for one.
func TestAStartThatFailsTellsTheControllersLastWords(t *testing.T) {
	dir := t.TempDir()
	// The shell is the binary, and its first argument the script: "serve".
	t.Chdir(dir)
	const lacks = "fencepost: sandbox not available: missing user_namespace (operation not permitted)"
	for name, tc := range map[string]struct{ script, want string }{
		"a line for people": {`echo '{"msg":"made a new data directory"}'; echo '` + lacks + `'`, lacks},
		"a structured line": {`echo '{"level":"ERROR","msg":"the inbox is damaged","reason":"corrupt"}'`, "the inbox is damaged: corrupt"},
		"no reason":         {`echo '{"msg":"stopping"}'`, ": stopping"},
		"nothing":           {"", "exit status 1; its log is"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile("serve", []byte(tc.script+"\nexit 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := Controller{
				Log: filepath.Join(dir, "serve.log"), binary: "/bin/sh", config: "none", ready: "http://127.0.0.1:1/readyz",
				client: &http.Client{Timeout: time.Second}, now: time.Now,
			}
			_, err := c.Start(t.Context())
			if !errors.Is(err, ErrController) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Start = %v, want an error of the controller that says %q", err, tc.want)
			}
		})
	}
	if t.Failed() {
		return
	}
	// What an earlier process said is no word of this one.
	if err := os.WriteFile("serve", []byte("exit 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Controller{Log: filepath.Join(dir, "serve.log"), binary: "/bin/sh", ready: "http://127.0.0.1:1/", client: &http.Client{}, now: time.Now}
	if _, err := c.Start(t.Context()); err == nil || strings.Contains(err.Error(), "sandbox") || strings.Contains(err.Error(), "stopping") {
		t.Errorf("Start = %v, want none of the earlier processes' words", err)
	}
}
