package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// maxPreamble is how many packets may stand before the first flush.
const maxPreamble = 8

// capabilities are what the server said it can do, as far as it matters.
type capabilities map[string]string

// has reports whether the value of key, a list of words, holds word.
func (c capabilities) has(key, word string) bool {
	for w := range strings.FieldsSeq(c[key]) {
		if w == word {
			return true
		}
	}
	return false
}

// readAdvertisement reads the first answer: with or without a preamble,
// "version 2", one capability a packet, a flush, nothing more.
// gitprotocol-v2, "Capability Advertisement".
func readAdvertisement(a *answer) (capabilities, error) {
	line, err := a.firstText()
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(line, "# service=") {
		if line != "# "+refsQuery {
			return nil, fmt.Errorf("%w: preamble of another service", ErrProtocol)
		}
		if err := skipPreamble(a); err != nil {
			return nil, err
		}
		if line, err = a.text(); err != nil {
			return nil, err
		}
	}
	if line != "version 2" {
		return nil, ErrNotV2
	}
	caps := make(capabilities)
	for {
		p, err := a.next()
		if err != nil {
			return nil, cutShort(err)
		}
		switch p.Kind {
		case pktline.Flush:
			return caps, a.pkt.End()
		case pktline.Delim:
			return nil, fmt.Errorf("%w: delim among capabilities", ErrProtocol)
		case pktline.Data:
			if err := caps.add(p.Text()); err != nil {
				return nil, err
			}
		}
	}
}

func skipPreamble(a *answer) error {
	for range maxPreamble {
		p, err := a.next()
		if err != nil {
			return cutShort(err)
		}
		if p.Kind == pktline.Flush {
			return nil
		}
	}
	return fmt.Errorf("%w: endless preamble", ErrProtocol)
}

// add reads one capability, "key" or "key=value". Unknown ones are checked
// for their form and forgotten: several of them would send the client to
// other hosts.
func (c capabilities) add(line string) error {
	key, value, _ := strings.Cut(line, "=")
	if key == "" || strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) {
		return fmt.Errorf("%w: capability without a legal key", ErrProtocol)
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("%w: capability with an illegal value", ErrProtocol)
	}
	switch key {
	case "agent", "fetch", "ls-refs", "object-format":
		if _, twice := c[key]; twice {
			return fmt.Errorf("%w: capability %s twice", ErrProtocol, key)
		}
		c[key] = value
	}
	return nil
}

// discover makes the first request and returns what the server can do.
func (c *client) discover(ctx context.Context) (capabilities, error) {
	a, err := c.advertise(ctx)
	if err != nil {
		return nil, err
	}
	caps, err := readAdvertisement(a)
	if err := errors.Join(err, a.close()); err != nil {
		return nil, causeOf(ctx, err)
	}
	if format, ok := caps["object-format"]; ok && format != "sha1" {
		return nil, ErrObjectFormat
	}
	return caps, nil
}

// beginCommand returns the start of a command's request, up to its
// arguments. Only capabilities that the server has may be sent: another one
// makes it end without an answer.
func (c capabilities) beginCommand(name string) []byte {
	body := pktline.AppendText(nil, "command="+name)
	if _, ok := c["agent"]; ok {
		body = pktline.AppendText(body, "agent="+agent)
	}
	if _, ok := c["object-format"]; ok {
		body = pktline.AppendText(body, "object-format=sha1")
	}
	return pktline.AppendDelim(body)
}

// requestTree asks for one commit and what it needs, less what h has, or less
// all files where filtered. gitprotocol-v2, "fetch".
//
// On top of a commit that is here, a server leaves nothing out of a cut-off
// history unless it may send a thin pack: only then does it take that commit's
// whole tree for known.
func (c *client) requestTree(ctx context.Context, caps capabilities, commit fencepost.CommitID, h *have, filtered bool) (*packSource, error) {
	if !caps.has("fetch", "shallow") {
		return nil, ErrUnsupported
	}
	args := []string{"ofs-delta", "no-progress"}
	if h != nil {
		args = append(args, "thin-pack", "shallow "+h.m.commit.String())
	}
	args = append(args, "deepen 1")
	if filtered {
		args = append(args, "filter blob:none")
	}
	args = append(args, "want "+commit.String())
	if h != nil {
		args = append(args, "have "+h.m.commit.String())
	}
	a, err := c.fetchCommand(ctx, caps, append(args, "done"))
	if err != nil {
		return nil, err
	}
	return openWith(a, func(a *answer) (*packSource, error) { return openPack(a, commit) })
}

// requestBlobs asks for single objects.
func (c *client) requestBlobs(ctx context.Context, caps capabilities, ids []fencepost.ObjectID) (*packSource, error) {
	args := []string{"ofs-delta", "no-progress"}
	for _, id := range ids {
		args = append(args, "want "+id.String())
	}
	a, err := c.fetchCommand(ctx, caps, append(args, "done"))
	if err != nil {
		return nil, err
	}
	return openWith(a, func(a *answer) (*packSource, error) {
		first, err := a.firstText()
		if err != nil {
			return nil, err
		}
		return packSection(a, first)
	})
}

func (c *client) fetchCommand(ctx context.Context, caps capabilities, args []string) (*answer, error) {
	body := caps.beginCommand("fetch")
	for _, arg := range args {
		body = pktline.AppendText(body, arg)
	}
	return c.command(ctx, pktline.AppendFlush(body))
}

// openWith opens the pack of an answer, which it closes on error.
func openWith(a *answer, open func(*answer) (*packSource, error)) (*packSource, error) {
	source, err := open(a)
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return source, nil
}

// A packSource is a fetch answer behind its "packfile" line: it gives out the
// bytes of the pack and judges everything around them.
type packSource struct{ a *answer }

// openPack reads a fetch answer up to its pack. To the request that is sent
// there is one legal answer: the shallow section, then the pack.
func openPack(a *answer, commit fencepost.CommitID) (*packSource, error) {
	first, err := a.firstText()
	if err != nil {
		return nil, err
	}
	if first != "shallow-info" {
		return nil, fmt.Errorf("%w: no shallow-info at its start", ErrProtocol)
	}
	for seen := false; ; seen = true {
		p, err := a.next()
		if err != nil {
			return nil, cutShort(err)
		}
		if p.Kind == pktline.Delim {
			break
		}
		// The commit that was asked for is the only one that may be cut off
		// from its parents, and nothing was cut off here before.
		if p.Kind != pktline.Data || seen || p.Text() != "shallow "+commit.String() {
			return nil, fmt.Errorf("%w: illegal shallow-info", ErrProtocol)
		}
	}
	section, err := a.text()
	if err != nil {
		return nil, err
	}
	return packSection(a, section)
}

func packSection(a *answer, section string) (*packSource, error) {
	if section != "packfile" {
		return nil, fmt.Errorf("%w: another section where the pack belongs", ErrProtocol)
	}
	return &packSource{a: a}, nil
}

// Next returns the next bytes of the pack, and [io.EOF] after the flush that
// ends the answer. That the pack is whole is for its trailer to say: a server
// that fails at the end still sends the flush.
func (s *packSource) Next() ([]byte, error) {
	for {
		p, err := s.a.pkt.Next()
		if err != nil {
			return nil, cutShort(err)
		}
		if p.Kind == pktline.Flush {
			if err := s.a.pkt.End(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		if p.Kind != pktline.Data || len(p.Data) == 0 {
			return nil, fmt.Errorf("%w: packet without a band in the pack", ErrProtocol)
		}
		data := p.Data[1:]
		switch p.Data[0] {
		case 1:
			if len(data) > 0 {
				s.a.c.watch.progress()
				return data, nil
			}
			// It keeps the connection alive, and is no progress.
		case 2:
			// Text for people, which nobody asked for.
		case 3:
			return nil, remoteError(string(data))
		default:
			return nil, fmt.Errorf("%w: unknown band", ErrProtocol)
		}
		if err := s.a.c.charge(p); err != nil {
			return nil, err
		}
	}
}
