package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
)

// actionWanted is what an action must be.
const actionWanted = "the commit is there, and may be fetched"

// examineAction fetches the program of a gate's plan as an evaluation does,
// and holds its bytes against the digest that the plan pins. Of the rest of the
// action names and kinds of files are held to the gate's rules, and no content
// is asked for. Nothing is run.
func (a *App) examineAction(ctx context.Context, g config.Gate) []doctor.Check {
	check := doctor.Check{Subject: "gate " + string(g.Route), Name: "plan.action", Status: doctor.Skipped, Seen: "there is no place to fetch it to"}
	if a.fetch == nil {
		return []doctor.Check{check}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*lookWithin)
	defer cancel()
	plan := a.plan(g)
	c, err := a.fetch.Fetch(ctx, gitfetch.Request{
		URL: plan.Action.URL, Commit: plan.Commit, Credential: plan.Action.Credential,
		AllowHTTP: plan.Action.AllowHTTP, AllowPrivate: plan.Action.AllowPrivate, Policy: plan.Policy, Budgets: plan.Budgets,
		Select: func(path string) bool { return path == plan.Program }, Now: a.Now,
	})
	if err != nil {
		check.Status, check.Want = doctor.Fail, actionWanted
		check.Seen, check.Mend = actionTrouble(ctx, err)
		return []doctor.Check{check}
	}
	check.Status, check.Seen = doctor.OK, "commit "+plan.Commit.String()[:12]+" is there, and may be fetched"
	program := a.examineProgram(g, c)
	if err := c.Remove(); err != nil {
		check.Status, check.Seen, check.Mend = doctor.Warn, "what was fetched of it could not be removed", "see that the directory for temporary files works, and clear it"
	}
	return []doctor.Check{check, program}
}

// actionTrouble says why an action can't be fetched, and the mend.
func actionTrouble(ctx context.Context, err error) (seen, mend string) {
	type trouble struct {
		is         error
		seen, mend string
	}
	const reach = "see that plan.action.url is right, and that it can be reached from here"
	for _, t := range [...]trouble{
		{gitfetch.ErrTLS, "the server's certificate is refused", "see that plan.action.url is right, and that its certificate is vouched for on this machine"},
		{gitfetch.ErrAddress, "its host is at an address that is not allowed", "set the gate's allow_private if a private address is meant"},
		{gitfetch.ErrRedirect, "it answers with a redirect, which is not followed", "put the URL that it leads to into plan.action.url"},
		{gitfetch.ErrRateLimited, "the server asks to wait", "try again later"},
		{gitfetch.ErrCredential, "the credential is refused", "see that plan.action.credential is valid, not expired, and may read the repository"},
		{gitfetch.ErrNotFound, "no repository is there that may be seen", "correct plan.action.url, or give plan.action.credential a token that may read it"},
		{gitfetch.ErrNotOurRef, "the repository does not have the commit", "correct plan.action.commit, or push it to a branch or tag"},
		{gitfetch.ErrNotCommit, "what plan.action.commit names is no commit", "put the id of the commit there, not of a tag or a tree"},
		{gitfetch.ErrObjectFormat, "the repository is of SHA-256", "keep the action in a repository of SHA-1"},
		{gitfetch.ErrContent, "the tree holds what the gate's content rules refuse", "set the gate's content rules to what the action needs, or take it out of the action"},
		{context.DeadlineExceeded, fmt.Sprintf("it was not fetched within %s", 2*lookWithin), reach},
		{gitfetch.ErrConnection, "the server can't be reached", reach},
	} {
		if errors.Is(err, t.is) || errors.Is(context.Cause(ctx), t.is) {
			return t.seen, t.mend
		}
	}
	why := fencepost.ReasonOf(err)
	return "it can't be fetched (" + string(why) + ")", "docs/reasons.md says of " + string(why) + " what to do"
}

// examineProgram holds the program of a checkout against the plan.
func (a *App) examineProgram(g config.Gate, c *gitfetch.Checkout) doctor.Check {
	want := hex.EncodeToString(g.Plan.SHA256[:])
	check := doctor.Check{Subject: "gate " + string(g.Route), Name: "plan.program", Status: doctor.Fail, Want: "SHA-256 " + want}
	if _, ok := c.Lookup(g.Plan.Program); !ok {
		check.Seen, check.Mend = "the action has no file "+g.Plan.Program, "correct plan.program, or plan.action.commit"
		return check
	}
	got, err := digestWithin(c.Root(), g.Plan.Program, int64(g.Plan.Limits.ProgramSize))
	switch {
	case errors.Is(err, errTooLarge):
		check.Seen, check.Mend = "larger than plan.program_size", "raise plan.program_size, or correct plan.program"
	case err != nil:
		check.Seen, check.Mend = "it can't be read as a plain file", "correct plan.program: a link is none"
	case got != want:
		check.Seen, check.Mend = "SHA-256 "+got, "if that is the program that you mean, put it into plan.sha256; else correct plan.action.commit or plan.program"
	default:
		check.Status, check.Seen, check.Want = doctor.OK, g.Plan.Program+" has the pinned digest", ""
	}
	return check
}

var errTooLarge = errors.New("too large")

// digestWithin is the SHA-256 of a plain file in a tree, in hexadecimal.
func digestWithin(root, name string, most int64) (string, error) {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	name = filepath.FromSlash(name)
	info, err := tree.Lstat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", os.ErrInvalid
	case info.Size() > most:
		return "", errTooLarge
	}
	f, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}
