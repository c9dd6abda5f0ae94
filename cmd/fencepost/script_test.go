package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

func TestMain(m *testing.M) {
	testscript.Main(withPostgres{m}, map[string]func(){"fencepost": main})
}

// hookSecret is the secret of the receiver that scripts can send to.
const hookSecret = "a-webhook-secret-for-scripts"

// TestScripts runs each script of testdata/script with the program as a
// command. A script has
//
//	$HOOK    a receiver that knows the secret in secrets/webhook
//	$REPO    a repository on a real git http-backend, and $COMMIT its commit
//	$LISTEN  and $OPS, two addresses that nobody listens on, and $TAKEN, one
//	         that somebody does
//	fill FILE        puts the values of $VARIABLES into a file
//	exits N PROGRAM… runs a program that must end with the exit code N
//	answers URL      waits until a page is there
//	idof FILE        sets $DELIVERY to the first delivery id in a file or stdout
//	appkey FILE      writes a fresh App key
//	json FILE KEY VALUE  holds a field of a file or of stdout, which is JSON;
//	                     keys are dotted, and a list stands for its first item
func TestScripts(t *testing.T) {
	t.Parallel()
	hook := httptest.NewServer(receiver(t))
	t.Cleanup(hook.Close)
	repo, commit := repository(t)
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(scripts) < 10 {
		t.Fatalf("%d scripts, %v; are they where they belong?", len(scripts), err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOOK", hook.URL)
			env.Setenv("REPO", repo)
			env.Setenv("COMMIT", commit)
			env.Setenv("TAKEN", hook.Listener.Addr().String())
			for _, name := range []string{"LISTEN", "OPS"} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				env.Setenv(name, l.Addr().String())
				// Held until both are chosen, so that they differ.
				defer l.Close()
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"appkey": appKey, "json": jsonField, "fill": fill, "answers": answers, "idof": idOf, "exits": exits,
		},
	})
}

// receiver accepts what is signed with hookSecret, and answers as ingress
// does.
func receiver(t *testing.T) http.Handler {
	t.Helper()
	ring, err := webhook.NewKeyring("scripts", webhook.Anchor{ID: "one", Secret: fencepost.NewSecret([]byte(hookSecret))})
	if err != nil {
		t.Fatal(err)
	}
	h, err := webhook.NewHandler(webhook.Options{
		Rule:     fencepost.RouteRule{Route: "docs", TrustSet: "scripts", SignedTime: fencepost.SignedTimeNone},
		Verifier: webhook.GitHub{Keys: ring},
		Now:      time.Now,
	}, func(w http.ResponseWriter, r *http.Request, d webhook.Delivery) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{
			"outcome": "accepted", "delivery": string(d.ID()), "event": r.Header.Get("X-GitHub-Event"),
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// repository serves a small repository by git http-backend, without
// credentials under /open and with the token "read-token" under /closed.
func repository(t *testing.T) (url, commit string) {
	t.Helper()
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main", "work")
	for name, text := range map[string]string{"README.md": "hello\n", "docs/a.md": "a\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, "work", name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "work", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("-C", "work", "add", ".")
	git("-C", "work", "commit", "-q", "-m", "one")
	git("clone", "-q", "--bare", "work", "docs.git")
	backend := &cgi.Handler{
		Path:       filepath.Join(git("--exec-path"), "git-http-backend"),
		Env:        []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1"},
		InheritEnv: []string{"PATH"}, Stderr: io.Discard,
	}
	// Without the header git-http-backend speaks the old protocol.
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := *backend
		h.Env = append(h.Env, "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
		h.ServeHTTP(w, r)
	})
	mux := http.NewServeMux()
	mux.Handle("/open/", http.StripPrefix("/open", serve))
	mux.Handle("/closed/", http.StripPrefix("/closed", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, token, _ := r.BasicAuth(); token != "read-token" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		serve.ServeHTTP(w, r)
	})))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, git("-C", "work", "rev-parse", "HEAD")
}

func appKey(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: appkey FILE")
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	ts.Check(err)
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}

func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fill FILE")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ...")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answers URL")
	}
	const tries, pause = 1000, 20 * time.Millisecond
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for range tries {
		resp, err := client.Get(args[0])
		if err == nil {
			ts.Check(resp.Body.Close())
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(pause)
	}
	ts.Fatalf("%s gave no answer within %s", args[0], tries*pause)
}

var deliveryID = regexp.MustCompile(`dlv_[a-z2-7]{26}`)

func idOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: idof FILE")
	}
	id := deliveryID.FindString(ts.ReadFile(args[0]))
	if id == "" {
		ts.Fatalf("there is no delivery id in %s", args[0])
	}
	ts.Setenv("DELIVERY", id)
}

func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: json FILE KEY VALUE")
	}
	var value any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &value))
	for key := range strings.SplitSeq(args[1], ".") {
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		object, ok := value.(map[string]any)
		if !ok {
			ts.Fatalf("%s: there is no object to look into", args[1])
		}
		value = object[key]
	}
	got, err := json.Marshal(value)
	ts.Check(err)
	if want := args[2]; string(got) != want && string(got) != `"`+want+`"` {
		ts.Fatalf("%s is %s, want %s", args[1], got, want)
	}
}

func TestRunWithoutAProcess(t *testing.T) {
	t.Parallel()
	var out, errs strings.Builder
	m := Main{In: strings.NewReader(""), Out: &out, Err: &errs, LookupEnv: func(string) (string, bool) { return "", false }, Now: time.Now}
	if code := m.Run(context.Background(), []string{"version"}); code != exitDone || !strings.HasPrefix(out.String(), "fencepost ") || errs.Len() > 0 {
		t.Errorf("version: code %d, out %q, err %q", code, out.String(), errs.String())
	}
	for _, args := range [][]string{{"chekc"}, {"check", "--nope"}, {"check", "extra"}, {"webhook", "sign"}, {"fetch", "one"}} {
		out.Reset()
		errs.Reset()
		code := m.Run(context.Background(), args)
		if code != exitUsage || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 || !strings.HasPrefix(errs.String(), "fencepost: ") {
			t.Errorf("%v: code %d, out %q, err %q; want 2 and one line on stderr", args, code, out.String(), errs.String())
		}
	}
}
