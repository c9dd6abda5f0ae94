package forgesim_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// tryGit runs git in an environment of its own.
func tryGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.invalid",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.invalid",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// start puts the bench's forge on a socket.
func (b *bench) start() *forgesim.Server {
	b.t.Helper()
	server, err := b.forge.Start(b.t.Context(), forgesim.ManualDelivery())
	must(b.t, err)
	b.t.Cleanup(func() {
		if err := server.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return server
}

// basic are git's arguments that send a token as github.com takes it.
func basic(token string) []string {
	return []string{"-c", "http.extraHeader=Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))}
}

func TestGitServesExactCommitsToTheToken(t *testing.T) {
	t.Parallel()
	for _, preamble := range []bool{false, true} {
		t.Run(fmt.Sprintf("preamble %v", preamble), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *forgesim.Config) { c.Hostility.ServicePreamble = preamble })
			server := b.start()
			pr := b.open("change")
			merge := b.pollPull(pr)["merge_commit_sha"].(string)
			dir := t.TempDir()
			git(t, dir, "init", "-q")
			url := server.Git + "/acme/docs.git"
			git(t, dir, append(basic(b.token), "fetch", "-q", "--depth=1", url, merge)...)
			if got := git(t, dir, "ls-tree", "-r", "--name-only", "FETCH_HEAD"); got != "README.md\nchange.md" {
				t.Errorf("the test merge holds %q", got)
			}
			refs := git(t, dir, append(basic(b.token), "ls-remote", url)...)
			for _, want := range []string{pr.Head() + "\trefs/pull/1/head", merge + "\trefs/pull/1/merge"} {
				if !strings.Contains(refs, want) {
					t.Errorf("ls-remote %q lacks %q", refs, want)
				}
			}
			if b.forge.Count(forgesim.GitAdvertise) != 2 || b.forge.Count(forgesim.GitFetch) < 2 || b.forge.GitBytes() == 0 {
				t.Errorf("journal has %d advertisements, %d fetches, %d bytes", b.forge.Count(forgesim.GitAdvertise), b.forge.Count(forgesim.GitFetch), b.forge.GitBytes())
			}
		})
	}
}

func TestWhoMayFetch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "open", Public: true})
	must(t, err)
	_, err = b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "closed"})
	must(t, err)
	path := fmt.Sprintf("/app/installations/%d/access_tokens", b.inst.ID())
	noContents := b.wantAs(b.jwt(), 201, "POST", path, `{"permissions":{"checks":"read"}}`).object(t)["token"].(string)
	const refs = "/info/refs?service=git-upload-pack"
	for _, test := range []struct {
		name, user, token, path string
		want                    int
	}{
		{"the token's repository", "x-access-token", b.token, "/acme/docs.git" + refs, 200},
		{"without .git", "x-access-token", b.token, "/acme/docs" + refs, 200},
		{"another user name", "git", b.token, "/acme/docs.git" + refs, 401},
		{"no credential", "", "", "/acme/docs.git" + refs, 401},
		{"a wrong token", "x-access-token", "ghs_wrong", "/acme/docs.git" + refs, 401},
		{"an App's JWT", "x-access-token", b.jwt(), "/acme/docs.git" + refs, 401},
		{"no contents permission", "x-access-token", noContents, "/acme/docs.git" + refs, 404},
		{"a repository beyond the token", "x-access-token", b.token, "/acme/closed.git" + refs, 404},
		{"a repository that is not there", "x-access-token", b.token, "/acme/nothing.git" + refs, 404},
		{"a public repository", "", "", "/acme/open.git" + refs, 200},
		{"a public repository with a wrong token", "x-access-token", "ghs_wrong", "/acme/open.git" + refs, 401},
		{"a push", "x-access-token", b.token, "/acme/docs.git/info/refs?service=git-receive-pack", 404},
		{"a dumb file", "x-access-token", b.token, "/acme/docs.git/HEAD", 404},
		{"another parameter", "x-access-token", b.token, "/acme/docs.git" + refs + "&x=1", 404},
		{"outside", "x-access-token", b.token, "/acme/docs.git/../../gitconfig", 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "http://forge.invalid"+test.path, nil)
			must(t, err)
			request.Header.Set("Git-Protocol", "version=2")
			if test.user != "" {
				request.SetBasicAuth(test.user, test.token)
			}
			r, err := do(b.http, request)
			must(t, err)
			if r.status != test.want {
				t.Fatalf("answered %d %q, want %d", r.status, r.body, test.want)
			}
			if got := r.header.Get("WWW-Authenticate") != ""; got != (test.want == 401) {
				t.Errorf("WWW-Authenticate there: %v", got)
			}
			if test.want == 200 && !bytes.HasPrefix(r.body, []byte("000eversion 2\n")) {
				t.Errorf("body %.30q is no advertisement of version 2", r.body)
			}
		})
	}
}

func TestGitFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	url := "http://forge.invalid/acme/docs.git/info/refs?service=git-upload-pack"
	ask := func() (reply, error) {
		request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
		must(t, err)
		request.SetBasicAuth("x-access-token", b.token)
		return do(b.http, request)
	}
	for _, test := range []struct {
		name   string
		effect forgesim.Effect
		want   int
		err    error
	}{
		{"failure", forgesim.Fail{Code: 503}, 503, nil},
		{"limit", forgesim.SecondaryLimit{Code: 429}, 429, nil},
		{"redirect", forgesim.Redirect{Code: 301, Location: "/other"}, 301, nil},
		{"dropped request", forgesim.DropRequest{}, 0, forgesim.ErrDropped},
		{"dropped answer", forgesim.DropAnswer{}, 0, forgesim.ErrDropped},
		{"truncated", forgesim.Truncate{Bytes: 20}, 200, io.ErrUnexpectedEOF},
		{"hook that fails", forgesim.Before{Do: func(context.Context) error { return errors.New("no") }}, 500, nil},
		{"expired token", forgesim.ExpireToken{}, 401, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.token = b.inst.Token(b.repo)
			b.forge.Inject(forgesim.Fault{On: forgesim.GitAdvertise, Effect: test.effect})
			r, err := ask()
			if !errors.Is(err, test.err) || r.status != test.want {
				t.Errorf("answered %d, %v; want %d, %v", r.status, err, test.want, test.err)
			}
		})
	}
	b.token = b.inst.Token(b.repo)
	must(t, b.repo.Rename("manual"))
	r, err := ask()
	must(t, err)
	if got := r.header.Get("Location"); r.status != 301 || !strings.HasSuffix(got, "/acme/manual.git/info/refs?service=git-upload-pack") {
		t.Errorf("a renamed repository answered %d to %q", r.status, got)
	}
}

func TestImportsOfWhatIsOnDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	plain := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(plain, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(plain, "bin/check"), []byte("#!/bin/sh\r\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(plain, ".gitattributes"), []byte("* text eol=lf\n"), 0o644))
	must(t, os.WriteFile(filepath.Join(plain, ".gitignore"), []byte("*\n"), 0o644))
	must(t, os.Symlink("bin/check", filepath.Join(plain, "link")))
	repository := filepath.Join(t.TempDir(), "a repo%20with ü")
	must(t, os.Mkdir(repository, 0o755))
	git(t, repository, "init", "-q", "-b", "trunk")
	for _, name := range []string{"one", "two"} {
		must(t, os.WriteFile(filepath.Join(repository, name), []byte(name), 0o644))
		git(t, repository, "add", ".")
		git(t, repository, "commit", "-q", "-m", name)
	}
	for _, test := range []struct {
		name    string
		in      forgesim.Import
		tree    string
		commits string
	}{
		{"directory", forgesim.Import{Source: plain}, "100644 .gitattributes 100644 .gitignore 100755 bin/check 120000 link", "1"},
		{"repository", forgesim.Import{Source: repository}, "100644 one 100644 two", "2"},
		{"shallow repository", forgesim.Import{Source: repository, Depth: 1, DefaultBranch: "stable"}, "100644 one 100644 two", "1"},
		{"git directory", forgesim.Import{Source: filepath.Join(repository, ".git")}, "100644 one 100644 two", "2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.in.Owner, test.in.Name = "acme", strings.ReplaceAll(test.name, " ", "-")
			repo, err := b.forge.ImportRepository(t.Context(), test.in)
			must(t, err)
			branch := repo.DefaultBranch()
			tree := git(t, repo.GitDir(), "ls-tree", "-r", "--format=%(objectmode) %(path)", branch)
			if got := strings.ReplaceAll(tree, "\n", " "); got != test.tree {
				t.Errorf("tree %q, want %q", got, test.tree)
			}
			if got := git(t, repo.GitDir(), "rev-list", "--count", branch); got != test.commits {
				t.Errorf("%s commits, want %s", got, test.commits)
			}
			// Attributes of the directory change no byte: the CR is kept.
			if test.name == "directory" && git(t, repo.GitDir(), "cat-file", "-s", branch+":bin/check") != "11" {
				t.Error("the script lost its CR")
			}
			pr, err := repo.OpenPullRequest(t.Context(), forgesim.OpenPull{Head: "change", Change: files("new")})
			must(t, err)
			if state, err := pr.MergeState(t.Context()); err != nil || !state.Allowed {
				t.Errorf("merge state %v, %v", state, err)
			}
		})
	}
	for _, source := range []string{filepath.Join(plain, "nothing"), filepath.Join(plain, ".gitignore")} {
		if _, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "x", Source: source}); err == nil {
			t.Errorf("import of %s succeeded", filepath.Base(source))
		}
	}
}

func TestTheForgeTakesConcurrentUse(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.Hostility = forgesim.Hostile(5) })
	server := b.start()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	ctx := t.Context()
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			head := fmt.Sprintf("change-%d", worker)
			pr, err := b.repo.OpenPullRequest(ctx, forgesim.OpenPull{Head: head, Change: files(head)})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 5 {
				for _, path := range []string{fmt.Sprintf("/repos/acme/docs/pulls/%d", pr.Number()), "/repos/acme/docs/commits/" + pr.Head() + "/check-runs"} {
					request, err := http.NewRequestWithContext(ctx, "GET", server.API+path, nil)
					if err != nil {
						t.Error(err)
						return
					}
					request.Header.Set("Authorization", "Bearer "+b.token)
					if _, err := do(client, request); err != nil {
						t.Error(err)
					}
				}
				if _, err := pr.Push(ctx, files(fmt.Sprint(head, i))); err != nil {
					t.Error(err)
				}
				b.forge.Journal()
				b.forge.Outbox()
			}
		})
	}
	group.Wait()
	if n := len(b.repo.PullRequests()); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

func TestConfigurationThatIsNone(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	must(t, os.WriteFile(filepath.Join(full, "file"), nil, 0o644))
	now := newClock().Now
	for name, config := range map[string]forgesim.Config{
		"no directory":   {Now: now},
		"full directory": {Dir: full, Now: now},
		"no clock":       {Dir: t.TempDir()},
	} {
		if _, err := forgesim.New(t.Context(), config); !errors.Is(err, forgesim.ErrConfig) {
			t.Errorf("%s: error %v, want ErrConfig", name, err)
		}
	}
}
