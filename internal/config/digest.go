package config

import "github.com/fencepost/fencepost"

// policyDigest is the digest of a gate's policy: two machines whose digests
// agree hold requests against the same rules. Secrets are no part of it, nor
// is where a reference points to: rotating a key changes no policy.
//
// Domain "fencepost.gate-policy/v1", then in this order: route, provider,
// API, Git, trust set, App id, installation, App key reference, repository
// id, owner id, full name, base, check, action URL, action commit (its 20
// bytes), action user name, action token reference, program, program
// SHA-256, external verification, wall, CPU, memory, processes, open files,
// file size, scratch, scratch files, program size, allow_http, allow_private,
// symlinks, gitlinks, names. With gitea and forgejo there follow reviewer id,
// login, token reference and rule token reference; with gitlab issuer, audience,
// token reference, policy project id and path, allowed commits (a list, each its
// 20 bytes, in the order of the file), job name, and max_signed_age. Durations
// are nanoseconds, sizes bytes.
func (g *Gate) policyDigest() [32]byte {
	e := fencepost.NewEncoder("fencepost.gate-policy/v1").
		Text(string(g.Route)).Text(string(g.Provider)).Text(g.API.String()).Text(g.Git.String()).
		Text(string(g.Trust)).
		Int(g.App.ID).Int(g.App.Installation).Text(g.App.Key.String()).
		Int(g.Repository.ID).Int(g.Repository.OwnerID).Text(g.Repository.FullName()).
		Text(g.Base).Text(g.Check)
	g.Plan.encode(e)
	e.Bool(g.AllowHTTP).Bool(g.AllowPrivate).
		Text(g.Content.Symlinks).Text(g.Content.Gitlinks).Text(g.Content.Names)
	switch g.Provider {
	case Gitea, Forgejo:
		e.Int(g.Reviewer.ID).Text(g.Reviewer.Login).Text(g.Reviewer.Token.String()).Text(g.RuleToken.String())
	case GitLab:
		g.GitLab.encode(e)
		e.Int(int64(g.MaxSignedAge))
	}
	return e.Sum()
}

// encode appends: issuer, audience, token reference, policy project id and path,
// allowed commits, job name.
func (g *GitLabGate) encode(e *fencepost.Encoder) {
	p := g.Policy
	e.Text(g.Issuer.String()).Text(g.Audience).Text(g.Token.String()).Int(p.Project).Text(p.Path).List(len(p.Commits))
	for _, id := range p.Commits {
		e.Bytes(id.ObjectID[:])
	}
	e.Text(p.Job)
}

// encode appends: action URL, action commit (its 20 bytes), action user name,
// action token reference, program, program SHA-256, external verification,
// wall, CPU, memory, processes, open files, file size, scratch, scratch files,
// program size.
func (p *Plan) encode(e *fencepost.Encoder) {
	l := p.Limits
	e.Text(p.Action.URL.String()).Bytes(p.Action.Commit.ObjectID[:]).
		Text(p.Action.Credential.Username).Text(p.Action.Credential.Token.String()).
		Text(p.Program).Bytes(p.SHA256[:]).Bool(p.ExternalVerification).
		Int(int64(l.Wall)).Int(int64(l.CPU)).Int(int64(l.Memory)).Int(int64(l.Processes)).
		Int(int64(l.OpenFiles)).Int(int64(l.FileSize)).
		Int(int64(l.Scratch)).Int(l.ScratchFiles).Int(int64(l.ProgramSize))
}
