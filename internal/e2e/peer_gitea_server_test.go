//go:build peer

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/trial/world"
)

// giteaStarts bounds the start of the server, which makes its database first.
const giteaStarts = 2 * time.Minute

// A giteaPeer is a real server on loopback, with a database of its own.
type giteaPeer struct {
	t         *testing.T
	dir, url  string
	client    *http.Client
	passwords map[string]string
	ids       map[string]int64
}

// startGitea starts the executable of a flag, which lies in the tree that it
// was built from: its templates and options are read there.
func startGitea(t *testing.T, executable string) *giteaPeer {
	t.Helper()
	address := freeAddress(t)
	g := &giteaPeer{
		t: t, dir: t.TempDir(), url: "http://" + address, client: &http.Client{Timeout: time.Minute},
		passwords: map[string]string{}, ids: map[string]int64{},
	}
	me, err := user.Current()
	must(t, err)
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	ini := filepath.Join(g.dir, "app.ini")
	must(t, os.WriteFile(ini, []byte(fmt.Sprintf(`RUN_USER = %s
RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
WORK_PATH = %[2]s
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = %[3]s
ROOT_URL = %[4]s/
STATIC_ROOT_PATH = %[5]s
APP_DATA_PATH = %[2]s/data
OFFLINE_MODE = true
DISABLE_SSH = true
[database]
DB_TYPE = sqlite3
PATH = %[2]s/gitea.db
[repository]
ROOT = %[2]s/repositories
[security]
INSTALL_LOCK = true
SECRET_KEY = of no use to anybody
INTERNAL_TOKEN =
PASSWORD_HASH_ALGO = pbkdf2_v1
[service]
DISABLE_REGISTRATION = true
[webhook]
ALLOWED_HOST_LIST = loopback
[log]
LEVEL = Warn
ROOT_PATH = %[2]s/log
`, me.Username, g.dir, port, g.url, filepath.Dir(executable))), 0o600))
	g.run(executable, "migrate", "--config", ini)
	g.passwords["boss"] = "a password of the boss"
	g.run(executable, "admin", "user", "create", "--config", ini, "--admin", "--username", "boss",
		"--password", g.passwords["boss"], "--email", "boss@example.invalid", "--must-change-password=false")
	log, err := os.Create(filepath.Join(g.dir, "gitea.log"))
	must(t, err)
	defer log.Close() // the process has its own
	cmd := exec.Command(executable, "web", "--config", ini)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, g.environment()
	must(t, cmd.Start())
	t.Cleanup(func() { g.stop(cmd, log.Name()) })
	if _, err := world.Await(t.Context(), giteaStarts, func() (struct{}, bool, error) {
		resp, err := g.client.Get(g.url + "/api/v1/version")
		if err != nil {
			return struct{}{}, false, nil // not yet
		}
		resp.Body.Close()
		return struct{}{}, resp.StatusCode == http.StatusOK, nil
	}); err != nil {
		t.Fatal("the server does not answer: ", err)
	}
	return g
}

// stop lets the server end by itself, so that what it keeps in memory is
// written while its directory is still there.
func (g *giteaPeer) stop(cmd *exec.Cmd, log string) {
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		g.t.Error(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended: // its status is of no account
	case <-time.After(30 * time.Second):
		if err := cmd.Process.Kill(); err != nil {
			g.t.Error(err)
		}
		<-ended
	}
	if g.t.Failed() {
		dumpLog(g.t, log)
	}
}

func (g *giteaPeer) environment() []string {
	return append(os.Environ(), "HOME="+g.dir, "GIT_CONFIG_NOSYSTEM=1", "GITEA_WORK_DIR="+g.dir)
}

func (g *giteaPeer) run(name string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = append(g.environment(), "GIT_TERMINAL_PROMPT=0"), g.dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}

// ask calls the API as somebody, by password or, where by is longer than a
// name, by token. It returns the status and decodes an answer of 2xx.
func (g *giteaPeer) ask(by, method, path string, body, into any) int {
	g.t.Helper()
	var send io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		must(g.t, err)
		send = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, g.url+"/api/v1"+path, send)
	must(g.t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if password, ok := g.passwords[by]; ok {
		req.SetBasicAuth(by, password)
	} else {
		req.Header.Set("Authorization", "token "+by)
	}
	resp, err := g.client.Do(req)
	must(g.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	must(g.t, err)
	if resp.StatusCode/100 != 2 {
		g.t.Logf("%s %s as %.8s: %d %.200s", method, path, by, resp.StatusCode, data)
		return resp.StatusCode
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			g.t.Fatalf("%s %s: %v\n%s", method, path, err, data)
		}
	}
	return resp.StatusCode
}

// want is ask for what must be answered with 2xx.
func (g *giteaPeer) want(by, method, path string, body, into any) {
	g.t.Helper()
	if status := g.ask(by, method, path, body, into); status/100 != 2 {
		g.t.Fatalf("%s %s as %.8s: answered %d", method, path, by, status)
	}
}

// user makes an account and returns a token of it.
func (g *giteaPeer) user(name string, scopes ...string) (token string) {
	g.t.Helper()
	password := "the password of " + name
	var made struct {
		ID int64 `json:"id"`
	}
	g.want("boss", http.MethodPost, "/admin/users", map[string]any{
		"username": name, "email": name + "@example.invalid", "password": password, "must_change_password": false,
	}, &made)
	g.passwords[name], g.ids[name] = password, made.ID
	return g.token(name, scopes...)
}

func (g *giteaPeer) token(name string, scopes ...string) string {
	g.t.Helper()
	var made struct {
		Token string `json:"sha1"`
	}
	g.want(name, http.MethodPost, "/users/"+name+"/tokens", map[string]any{"name": strings.Join(scopes, " "), "scopes": scopes}, &made)
	return made.Token
}

// A giteaRepository is a repository there, and a clone of it to push from.
type giteaRepository struct {
	*giteaPeer
	id, ownerID int64
	name, clone string
}

// repository makes one with files, as its owner.
func (g *giteaPeer) repository(owner, name string, private bool, files map[string][]byte) *giteaRepository {
	g.t.Helper()
	r := &giteaRepository{giteaPeer: g, name: owner + "/" + name, clone: filepath.Join(g.dir, "clone-"+name)}
	var made struct {
		ID    int64 `json:"id"`
		Owner struct {
			ID int64 `json:"id"`
		} `json:"owner"`
	}
	g.want(owner, http.MethodPost, "/user/repos", map[string]any{"name": name, "private": private, "default_branch": "main"}, &made)
	r.id, r.ownerID = made.ID, made.Owner.ID
	g.run("git", "init", "-q", "-b", "main", r.clone)
	r.commit(files)
	r.push(owner, "main", false)
	return r
}

// git runs git in the clone.
func (r *giteaRepository) git(args ...string) string {
	r.t.Helper()
	return strings.TrimSpace(r.run("git", append([]string{"-C", r.clone, "-c", "user.name=Dev", "-c", "user.email=dev@example.invalid"}, args...)...))
}

// commit commits files to the clone's branch and returns the commit.
func (r *giteaRepository) commit(files map[string][]byte) string {
	r.t.Helper()
	for name, data := range files {
		at := filepath.Join(r.clone, name)
		must(r.t, os.MkdirAll(filepath.Dir(at), 0o755))
		mode := os.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode = 0o755
		}
		must(r.t, os.WriteFile(at, data, mode))
	}
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "A change")
	return r.git("rev-parse", "HEAD")
}

// remote is the repository's URL for somebody.
func (r *giteaRepository) remote(by string) string {
	return strings.Replace(r.url, "http://", "http://"+url.UserPassword(by, r.passwords[by]).String()+"@", 1) + "/" + r.name + ".git"
}

// push pushes the clone's branch as somebody.
func (r *giteaRepository) push(by, branch string, force bool) {
	r.t.Helper()
	args := []string{"push", "-q", r.remote(by), "HEAD:refs/heads/" + branch}
	if force {
		args = append(args, "--force")
	}
	r.git(args...)
}

// branch puts the clone on a new branch of the present main.
func (r *giteaRepository) branch(name string) {
	r.t.Helper()
	r.git("fetch", "-q", r.remote("acme"), "main")
	r.git("checkout", "-q", "-B", name, "FETCH_HEAD")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}()
	return l.Addr().String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
