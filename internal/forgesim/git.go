package forgesim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// gitTimeout bounds one git command; an import of a large repository is the
// longest.
const gitTimeout = 5 * time.Minute

// gitConfig is the whole configuration that git sees: nothing of the host, no
// hooks, no clean-up behind our back, no waiting for the disk.
const gitConfig = `[core]
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsync = none
	autocrlf = false
[init]
	defaultBranch = main
[safe]
	directory = *
[protocol]
	allow = never
[protocol "file"]
	allow = always
[gc]
	auto = 0
[maintenance]
	auto = false
[advice]
	detachedHead = false
[uploadpack]
	allowFilter = true
	allowAnySHA1InWant = true
[http]
	receivepack = false
[receive]
	denyCurrentBranch = ignore
`

// A gitRunner runs git in an environment of its own.
type gitRunner struct {
	binary  string
	backend string // git-http-backend
	env     []string
	now     func() time.Time
}

// newGitRunner finds git and git-http-backend and writes the configuration
// below dir.
func newGitRunner(ctx context.Context, binary, dir string, now func() time.Time) (*gitRunner, error) {
	if binary == "" {
		found, err := exec.LookPath("git")
		if err != nil {
			return nil, fmt.Errorf("%w: git is needed: %w", ErrConfig, err)
		}
		binary = found
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("forge directory: %w", err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, fmt.Errorf("forge directory: %w", err)
	}
	global := filepath.Join(home, "gitconfig")
	if err := os.WriteFile(global, []byte(gitConfig), 0o600); err != nil {
		return nil, fmt.Errorf("forge git configuration: %w", err)
	}
	g := &gitRunner{
		binary: binary,
		now:    now,
		env: []string{
			"PATH=" + os.Getenv("PATH"),
			"HOME=" + home,
			"XDG_CONFIG_HOME=" + home,
			"GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=" + global,
			"GIT_ATTR_NOSYSTEM=1",
			"GIT_TERMINAL_PROMPT=0",
			"GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir),
			"LC_ALL=C",
			"TZ=UTC",
		},
	}
	execPath, err := g.run(ctx, gitCall{args: []string{"--exec-path"}})
	if err != nil {
		return nil, err
	}
	g.backend = filepath.Join(execPath, "git-http-backend")
	if _, err := os.Stat(g.backend); err != nil {
		return nil, fmt.Errorf("%w: git-http-backend is needed: %w", ErrConfig, err)
	}
	return g, nil
}

// A gitCall is one git command.
type gitCall struct {
	dir   string // --git-dir; empty: none
	args  []string
	stdin []byte
	env   []string // in addition
}

// A gitError is a git command that ended with another status than 0.
type gitError struct {
	command string
	code    int
	stderr  string
}

func (e *gitError) Error() string {
	return fmt.Sprintf("git %s: exit status %d: %s", e.command, e.code, e.stderr)
}

// exitedWith reports whether err is git's exit status code.
func exitedWith(err error, code int) bool {
	e, ok := errors.AsType[*gitError](err)
	return ok && e.code == code
}

// run returns the command's standard output without its last line end, also
// beside a [gitError].
func (g *gitRunner) run(ctx context.Context, call gitCall) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	args := call.args
	if call.dir != "" {
		args = append([]string{"--git-dir=" + call.dir}, args...)
	}
	cmd := exec.CommandContext(ctx, g.binary, args...)
	cmd.Env = append(append([]string(nil), g.env...), g.identity()...)
	cmd.Env = append(cmd.Env, call.env...)
	cmd.Stdin = bytes.NewReader(call.stdin)
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := strings.TrimSuffix(stdout.String(), "\n")
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return out, &gitError{
			command: call.args[0],
			code:    exit.ExitCode(),
			stderr:  strings.TrimSpace(stderr.String()),
		}
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", call.args[0], err)
	}
	return out, nil
}

// identity is who makes commits, and when: the forge's clock, so that equal
// content at an equal time is an equal commit.
func (g *gitRunner) identity() []string {
	date := fmt.Sprintf("%d +0000", g.now().Unix())
	return []string{
		"GIT_AUTHOR_NAME=Fencepost Forge", "GIT_AUTHOR_EMAIL=forge@forge.invalid", "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=Fencepost Forge", "GIT_COMMITTER_EMAIL=forge@forge.invalid", "GIT_COMMITTER_DATE=" + date,
	}
}
