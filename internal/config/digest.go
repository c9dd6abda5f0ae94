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
// symlinks, gitlinks, names. Durations are nanoseconds, sizes bytes.
func (g *Gate) policyDigest() [32]byte {
	l := g.Plan.Limits
	return fencepost.NewEncoder("fencepost.gate-policy/v1").
		Text(string(g.Route)).Text(string(g.Provider)).Text(g.API.String()).Text(g.Git.String()).
		Text(string(g.Trust)).
		Int(g.App.ID).Int(g.App.Installation).Text(g.App.Key.String()).
		Int(g.Repository.ID).Int(g.Repository.OwnerID).Text(g.Repository.FullName()).
		Text(g.Base).Text(g.Check).
		Text(g.Plan.Action.URL.String()).Bytes(g.Plan.Action.Commit.ObjectID[:]).
		Text(g.Plan.Action.Credential.Username).Text(g.Plan.Action.Credential.Token.String()).
		Text(g.Plan.Program).Bytes(g.Plan.SHA256[:]).Bool(g.Plan.ExternalVerification).
		Int(int64(l.Wall)).Int(int64(l.CPU)).Int(int64(l.Memory)).Int(int64(l.Processes)).
		Int(int64(l.OpenFiles)).Int(int64(l.FileSize)).
		Int(int64(l.Scratch)).Int(l.ScratchFiles).Int(int64(l.ProgramSize)).
		Bool(g.AllowHTTP).Bool(g.AllowPrivate).
		Text(g.Content.Symlinks).Text(g.Content.Gitlinks).Text(g.Content.Names).
		Sum()
}
