package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
)

// A fetching is the command line of `fetch`.
type fetching struct {
	url, commit, dir           string
	allowHTTP, allowPrivate    bool
	verify, asJSON             bool
	credential, username       string
	symlinks, gitlinks, naming string
}

// A fetched is what `fetch` says of a checkout.
type fetched struct {
	Commit    string   `json:"commit"`
	Tree      string   `json:"tree"`
	Dir       string   `json:"dir"`
	Files     int64    `json:"files"`
	Bytes     int64    `json:"bytes"`
	WireBytes int64    `json:"wire_bytes"`
	Objects   int64    `json:"objects"`
	Skipped   []string `json:"skipped"`
	Verified  bool     `json:"verified"`
	Millis    int64    `json:"duration_ms"`
}

func (m Main) fetchCommand() *cobra.Command {
	var f fetching
	cmd := &cobra.Command{
		Use:   "fetch URL COMMIT DIR",
		Short: "Fetch the tree of exactly one commit into a new directory",
		Long: `Fetch the tree of exactly one commit into the new directory DIR, over smart HTTP
protocol v2, shallow, within budgets. Every object's id is recomputed, and the
directory holds only what the verified tree names. No git program and no
configuration of this machine is used.`,
		Example: "  fencepost fetch https://github.com/acme/docs.git 9256a9a1c0c5f0e2f6e4d8b6a7c3f1e2d4b5a697 ./docs",
		Args:    takes("URL", "COMMIT", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.url, f.commit, f.dir = args[0], args[1], args[2]
			return m.fetch(cmd.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.allowHTTP, "allow-http", false, "take a URL of plain http, which is meant for loopback")
	fl.BoolVar(&f.allowPrivate, "allow-private", false, "let the host's name lead to a private address")
	fl.BoolVar(&f.verify, "verify", false, "read everything back from the disk and hash it once more")
	fl.StringVar(&f.credential, "credential", "", "where the token is: file:PATH, env:NAME or cred:NAME; anonymous unless given")
	fl.StringVar(&f.username, "username", "x-access-token", "the user name that goes with the token")
	fl.StringVar(&f.symlinks, "symlinks", "refuse", "refuse, as_data or inside")
	fl.StringVar(&f.gitlinks, "gitlinks", "refuse", "refuse or skip")
	fl.StringVar(&f.naming, "names", "portable", "portable or posix")
	jsonFlag(cmd, &f.asJSON)
	return cmd
}

// request turns the command line into a request.
func (m Main) request(f fetching) (gitfetch.Request, error) {
	commit, err := fencepost.ParseCommitID(f.commit)
	if err != nil {
		return gitfetch.Request{}, usagef("COMMIT must be a full commit id of 40 lower-case hexadecimal digits")
	}
	if strings.HasPrefix(f.url, "http://") && !f.allowHTTP {
		return gitfetch.Request{}, usagef("URL is plain http; where that is meant, such as on loopback, add --allow-http")
	}
	req := gitfetch.Request{
		URL: f.url, Commit: commit, Dir: f.dir, AllowHTTP: f.allowHTTP, AllowPrivate: f.allowPrivate,
		Sync: gitfetch.SyncAll, Now: m.Now,
	}
	if err := req.Policy.Symlinks.UnmarshalText([]byte(f.symlinks)); err != nil {
		return gitfetch.Request{}, usagef("--symlinks must be refuse, as_data or inside")
	}
	if err := req.Policy.Gitlinks.UnmarshalText([]byte(f.gitlinks)); err != nil {
		return gitfetch.Request{}, usagef("--gitlinks must be refuse or skip")
	}
	if err := req.Policy.Names.UnmarshalText([]byte(f.naming)); err != nil {
		return gitfetch.Request{}, usagef("--names must be portable or posix")
	}
	if f.credential != "" {
		ref, err := config.ParseSecretRef(f.credential, ".")
		if err != nil {
			return gitfetch.Request{}, usagef("--credential %w", err)
		}
		req.Credential = func(context.Context) (string, fencepost.Secret, error) {
			secret, err := ref.Resolve(m.LookupEnv)
			return f.username, secret, err
		}
	}
	return req, nil
}

func (m Main) fetch(ctx context.Context, f fetching) error {
	req, err := m.request(f)
	if err != nil {
		return err
	}
	begun := m.Now()
	if m.Terminal && !f.asJSON {
		req.Progress = m.progress()
	}
	c, err := gitfetch.Fetch(ctx, req)
	if req.Progress != nil {
		fmt.Fprint(m.Err, "\r\x1b[K")
	}
	if err != nil {
		return explain(err)
	}
	if f.verify {
		if err := c.Verify(ctx); err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	return m.printFetched(f, c, m.Now().Sub(begun))
}

// progress writes how far a fetch is over its own line.
func (m Main) progress() func(gitfetch.Progress) {
	return func(p gitfetch.Progress) {
		line := fmt.Sprintf("received %d of %d objects, %s", p.Objects, p.TotalObjects, readable(p.WireBytes))
		if p.TotalFiles > 0 {
			line += fmt.Sprintf("; wrote %d of %d files", p.Files, p.TotalFiles)
		}
		fmt.Fprint(m.Err, "\r\x1b[K"+line)
	}
}

// readable is a number of bytes for people.
func readable(n int64) string {
	switch {
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

func (m Main) printFetched(f fetching, c *gitfetch.Checkout, took time.Duration) error {
	stats := c.Stats()
	out := fetched{
		Commit: c.Commit().String(), Tree: c.Tree().String(), Dir: c.Root(),
		Files: stats.Files, Bytes: stats.OutputBytes, WireBytes: stats.WireBytes, Objects: stats.Objects,
		Skipped: []string{}, Verified: f.verify, Millis: took.Milliseconds(),
	}
	for _, link := range c.Skipped() {
		out.Skipped = append(out.Skipped, link.Path)
	}
	if f.asJSON {
		return printJSON(m.Out, out)
	}
	fmt.Fprintf(m.Out, "commit  %s\ntree    %s\n", out.Commit, out.Tree)
	for _, path := range out.Skipped {
		fmt.Fprintf(m.Out, "skipped %q (a submodule)\n", path)
	}
	verified := ""
	if out.Verified {
		verified = ", read back and verified"
	}
	_, err := fmt.Fprintf(m.Out, "%d files, %s, from %d objects and %s in %d ms%s\n",
		out.Files, readable(out.Bytes), out.Objects, readable(out.WireBytes), out.Millis, verified)
	return err
}

// explain adds the mend to what a person can mend, and the server's own
// words, which the person who asked may read.
func explain(err error) error {
	var said string
	if e, ok := errors.AsType[*gitfetch.RemoteError](err); ok {
		said = e.Text
	} else if e, ok := errors.AsType[*gitfetch.StatusError](err); ok {
		said = e.Text
	}
	if e, ok := errors.AsType[*fencepost.Error](err); ok && e.Err != nil {
		err = fmt.Errorf("fetch: %w", e.Err)
	}
	mends := []struct {
		is   error
		mend string
	}{
		{gitfetch.ErrExists, "name a directory that doesn't exist yet"},
		{gitfetch.ErrCredential, "give one that may read the repository with --credential"},
		{gitfetch.ErrNotFound, "check the URL; a private repository needs --credential"},
		{gitfetch.ErrNotOurRef, "check the commit id; it must be in this repository"},
		{gitfetch.ErrAddress, "if the host is on your own network, add --allow-private"},
		{gitfetch.ErrNotV2, "check that the URL is that of a repository, as for git clone"},
	}
	for _, m := range mends {
		if errors.Is(err, m.is) {
			err = fmt.Errorf("%w: %s", err, m.mend)
			break
		}
	}
	if errors.Is(err, gitfetch.ErrRequest) {
		err = usage(err)
	}
	if said = strings.TrimSpace(said); said != "" {
		err = fmt.Errorf("%w (the server said: %s)", err, said)
	}
	return err
}
