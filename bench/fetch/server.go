package main

import (
	"bytes"
	"crypto/sha256"
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
	"strings"
	"sync"
)

// startServer runs serve in a process of its own: a process that measures
// others must be small, since what it holds in memory counts as theirs.
func startServer(self, dir string) (url string, stop func() error, err error) {
	cmd := exec.Command(self, "-serve", dir)
	cmd.Stderr = os.Stderr
	// It ends when its input does.
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := fmt.Fscanln(out, &url); err != nil {
		return "", nil, errors.Join(fmt.Errorf("server: %w", err), stop())
	}
	return url, stop, nil
}

// serve serves the repositories below dir on loopback with git http-backend,
// until its standard input ends, and answers a repeated request from memory,
// so that packing is left out. It prints where it listens.
func serve(dir string) error {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("git --exec-path: %w", err)
	}
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull},
		Stderr: io.Discard,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: remember(backend)}
	var done sync.WaitGroup
	done.Go(func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	})
	fmt.Println("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	done.Wait()
	return nil
}

func remember(backend http.Handler) http.Handler {
	var mu sync.Mutex
	known := make(map[[sha256.Size]byte]*httptest.ResponseRecorder)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		key := sha256.Sum256(fmt.Appendf(nil, "%s %s %s\n%s", r.Method, r.URL, r.Header.Get("Git-Protocol")+r.Header.Get("Content-Encoding"), body))
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
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	})
}
