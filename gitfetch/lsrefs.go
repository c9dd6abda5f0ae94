package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// A Ref is what one name of a repository points to at this moment.
type Ref struct {
	// Name is whole: "refs/heads/main", "HEAD".
	Name string
	// ID is the object that it names: a commit for a branch, mostly a tag
	// object for a tag.
	ID fencepost.ObjectID
	// Peeled is what a tag leads to in the end; zero for other refs.
	Peeled fencepost.ObjectID
	// Symref is the ref that this one stands for; empty for most.
	Symref string
}

// Commit is the commit that the ref leads to, provided that it leads to one:
// the server's word is all there is for that until it is fetched.
func (r Ref) Commit() fencepost.CommitID {
	if !r.Peeled.IsZero() {
		return fencepost.CommitID{ObjectID: r.Peeled}
	}
	return fencepost.CommitID{ObjectID: r.ID}
}

// LsRefs asks the server of req what each of names points to, and returns
// those that exist, in the server's order. Names are exact: what the server
// sends beyond them is dropped. The request's Commit, Dir, Policy and Sync
// are not looked at.
//
// gitprotocol-v2, "ls-refs".
func LsRefs(ctx context.Context, req Request, names ...string) ([]Ref, error) {
	const op = "gitfetch.ls_refs"
	t, err := req.check()
	if err != nil {
		return nil, sealed(op, err)
	}
	for _, name := range names {
		if !legalRef(name) {
			return nil, sealed(op, fmt.Errorf("%w: illegal ref name", ErrRequest))
		}
	}
	ctx, c, stop, err := converseAlone(ctx, t)
	if err != nil {
		return nil, sealed(op, err)
	}
	defer stop()
	refs, err := c.lsRefs(ctx, names)
	return refs, sealed(op, causeOf(ctx, err))
}

func (c *client) lsRefs(ctx context.Context, names []string) (refs []Ref, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = c.converse(ctx, func(caps capabilities) error {
		refs, err = c.askRefs(ctx, caps, names)
		return err
	})
	return refs, err
}

func (c *client) askRefs(ctx context.Context, caps capabilities, names []string) ([]Ref, error) {
	if _, ok := caps["ls-refs"]; !ok {
		return nil, ErrUnsupported
	}
	body := caps.beginCommand("ls-refs")
	for _, arg := range []string{"peel", "symrefs"} {
		body = pktline.AppendText(body, arg)
	}
	for _, name := range names {
		body = pktline.AppendText(body, "ref-prefix "+name)
	}
	a, err := c.command(ctx, pktline.AppendFlush(body))
	if err != nil {
		return nil, err
	}
	refs, err := readRefs(a, names)
	if err := errors.Join(err, a.close()); err != nil {
		return nil, err
	}
	return refs, nil
}

// readRefs reads one ref a packet until the flush.
func readRefs(a *answer, names []string) ([]Ref, error) {
	// An empty list is a flush; an answer without even that is a rejection.
	if err := a.pkt.End(); err == nil {
		return nil, ErrRejected
	}
	var refs []Ref
	seen := make(map[string]struct{})
	for {
		p, err := a.next()
		if err != nil {
			return nil, cutShort(err)
		}
		switch p.Kind {
		case pktline.Flush:
			return refs, a.pkt.End()
		case pktline.Delim:
			return nil, fmt.Errorf("%w: delim among refs", ErrProtocol)
		case pktline.Data:
		}
		ref, err := parseRef(p.Text())
		if err != nil {
			return nil, err
		}
		if _, twice := seen[ref.Name]; twice {
			return nil, fmt.Errorf("%w: ref twice", ErrProtocol)
		}
		seen[ref.Name] = struct{}{}
		if slices.Contains(names, ref.Name) && !ref.ID.IsZero() {
			refs = append(refs, ref)
		}
	}
}

// parseRef reads "<id> <name>" and its attributes. A ref that is not born
// yet has no id.
func parseRef(line string) (Ref, error) {
	bad := func(what string) (Ref, error) { return Ref{}, fmt.Errorf("%w: ref with %s", ErrProtocol, what) }
	fields := strings.Split(line, " ")
	if len(fields) < 2 || !legalRef(fields[1]) {
		return bad("an illegal name")
	}
	ref := Ref{Name: fields[1]}
	var err error
	if fields[0] != "unborn" {
		if ref.ID, err = fencepost.ParseObjectID(fields[0]); err != nil {
			return bad("an illegal id")
		}
	}
	for _, attribute := range fields[2:] {
		key, value, _ := strings.Cut(attribute, ":")
		switch key {
		case "symref-target":
			if ref.Symref = value; !legalRef(value) {
				return bad("an illegal target")
			}
		case "peeled":
			if ref.Peeled, err = fencepost.ParseObjectID(value); err != nil {
				return bad("an illegal peeled id")
			}
		}
	}
	return ref, nil
}

// legalRef holds a whole ref name to git-check-ref-format: "HEAD" and the
// like, or anything under "refs/".
func legalRef(name string) bool {
	const maxRef = 1024 // far beyond any, well inside a packet
	if len(name) > maxRef || strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`~^:?*[\`, c) >= 0 {
			return false
		}
	}
	parts := strings.Split(name, "/")
	if len(parts) == 1 {
		return strings.HasSuffix(name, "HEAD")
	}
	for _, part := range parts {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return parts[0] == "refs"
}
