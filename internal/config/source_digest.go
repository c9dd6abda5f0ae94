package config

import "github.com/fencepost/fencepost"

// The rules that a source is held to, by name and version. A change of what
// they accept, fetch or write is a new version: under it no run of before
// counts, and each source runs once.
const (
	pushContract      = "fencepost.push-rules/v1"
	fetchContract     = "fencepost.fetch-rules/v1"
	directoryContract = "fencepost.directory-rules/v1"
	rowsContract      = "fencepost.rows-rules/v1"
	programContract   = "fencepost.program-rules/v1"
)

// contractsDigest is the digest of the rules that the source is held to.
//
// Domain "fencepost.source-contracts/v1", then the names of the rules for
// pushes, for fetches, and for the sink's kind.
func (s *Source) contractsDigest() [32]byte {
	sink := map[SinkKind]string{SinkDirectory: directoryContract, SinkRows: rowsContract, SinkProgram: programContract}[s.Sink.Kind]
	return fencepost.NewEncoder("fencepost.source-contracts/v1").Text(pushContract).Text(fetchContract).Text(sink).Sum()
}

// policyDigest is the digest of a source's policy: its revision. Two machines
// whose digests agree hold pushes, content and sink to the same rules. Secrets
// are no part of it, nor is where a reference points to; of a database URL
// that was written out, host, port, name and schema are.
//
// Domain "fencepost.source-policy/v1", then in this order: id (16 bytes),
// route, provider, API, Git, hosts (a list, in order), trust set, repository
// id, owner id, full name, visibility, object format, ref, any_writer, senders
// (a list, by id: id and login of each), unannounced heads accepted, forced
// pushes accepted, credential, allow_http, allow_private, symlinks, gitlinks,
// names, budgets, timings, run_failed raised, run_partial raised, enabled,
// sink, contracts (32 bytes). Durations are nanoseconds, sizes bytes.
func (s *Source) policyDigest() fencepost.SourceRevision {
	e := fencepost.NewEncoder("fencepost.source-policy/v1").
		Bytes(s.ID[:]).Text(string(s.Route)).Text(string(s.Provider)).Text(s.API.String()).Text(s.Git.String()).
		List(len(s.Hosts))
	for _, h := range s.Hosts {
		e.Text(h.String())
	}
	e.Text(string(s.Trust)).
		Int(s.Repository.ID).Int(s.Repository.OwnerID).Text(s.Repository.FullName()).
		Text(string(s.Visibility)).Text(s.ObjectFormat).
		Text(s.Ref).Bool(s.AnyWriter).List(len(s.Senders))
	for _, w := range s.Senders {
		e.Int(w.ID).Text(w.Login)
	}
	e.Bool(s.AcceptUnannounced).Bool(s.AcceptForced)
	s.Credential.encode(e)
	e.Bool(s.AllowHTTP).Bool(s.AllowPrivate).
		Text(s.Content.Symlinks).Text(s.Content.Gitlinks).Text(s.Content.Names)
	encodeFetch(e, s.Fetch)
	encodeTimings(e, s.Timings)
	e.Bool(s.Alerts.RunFailed).Bool(s.Alerts.RunPartial).Bool(s.Enabled)
	s.Sink.encode(e)
	return e.Bytes(s.Contracts[:]).Sum()
}

// encode appends: the kind as text, "app", "basic" or "anonymous"; then App
// id, installation and key reference, or user name and token reference, or
// nothing.
func (c SourceCredential) encode(e *fencepost.Encoder) {
	switch {
	case c.App != nil:
		e.Text("app").Int(c.App.ID).Int(c.App.Installation).Text(c.App.Key.String())
	case c.Anonymous:
		e.Text("anonymous")
	default:
		e.Text("basic").Text(c.Basic.Username).Text(c.Basic.Token.String())
	}
}

// encodeFetch appends: connect, idle, total, redirects, wire, metadata,
// metadata lines, inflated, objects, delta chain, commit, tree, file, entries,
// repeats, depth, component, path, links, output.
func encodeFetch(e *fencepost.Encoder, f Fetch) {
	e.Int(int64(f.Connect)).Int(int64(f.Idle)).Int(int64(f.Total)).Int(int64(f.Redirects)).
		Int(int64(f.Wire)).Int(int64(f.Metadata)).Int(int64(f.MetadataLines)).Int(int64(f.Inflated)).
		Int(f.Objects).Int(f.DeltaChain).Int(int64(f.Commit)).Int(int64(f.Tree)).Int(int64(f.File)).
		Int(f.Entries).Int(f.Repeats).Int(int64(f.Depth)).Int(int64(f.Component)).Int(int64(f.Path)).Int(f.Links).
		Int(int64(f.Output))
}

// encodeTimings appends: target, alert_after, reconcile, observe, queue_age,
// lease, renew, checkout, sink, attempts, backoff, evaluate.
func encodeTimings(e *fencepost.Encoder, t fencepost.Timings) {
	e.Int(int64(t.Target)).Int(int64(t.AlertAfter)).Int(int64(t.Reconcile)).Int(int64(t.Observe)).
		Int(int64(t.QueueAge)).Int(int64(t.Lease)).Int(int64(t.Renew)).Int(int64(t.Checkout)).
		Int(int64(t.Sink)).Int(int64(t.Attempts)).Int(int64(t.Backoff)).Int(int64(t.Evaluate))
}

// encode appends: the kind, mount, and the lists include, exclude and require;
// then of a directory path, keep, grace, most, reserve and mode; of rows the database's identity, table,
// max_row and text; of a program the fields of its plan.
func (k Sink) encode(e *fencepost.Encoder) {
	e.Text(string(k.Kind)).Text(k.Mount)
	for _, list := range [][]string{k.Include, k.Exclude, k.Require} {
		e.List(len(list))
		for _, p := range list {
			e.Text(p)
		}
	}
	switch {
	case k.Directory != nil:
		d := k.Directory
		e.Text(d.Path).Int(int64(d.Keep)).Int(int64(d.Grace)).Int(int64(d.Most)).Int(int64(d.Reserve)).Int(int64(d.Mode))
	case k.Rows != nil:
		e.Text(k.Rows.Database.identity()).Text(k.Rows.Table).Int(int64(k.Rows.MaxRow)).Bool(k.Rows.Text)
	case k.Program != nil:
		k.Program.encode(e)
	}
}
