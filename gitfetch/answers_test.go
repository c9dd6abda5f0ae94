package gitfetch_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

func TestAdvertisements(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	lines := func(lines ...string) []byte {
		var p []byte
		for _, l := range lines {
			p = pktline.AppendText(p, l)
		}
		return pktline.AppendFlush(p)
	}
	preamble := lines("# service=git-upload-pack")
	long := make([]string, 12)
	for i := range long {
		long[i] = fmt.Sprint("extra ", i)
	}
	tests := []struct {
		name string
		body []byte
		want error
	}{
		{"of git http-backend", advertisement(), nil},
		{"with a preamble", append(preamble, advertisement()...), nil},
		{"with more in the preamble", append(lines("# service=git-upload-pack", "extra", "packets"), advertisement()...), nil},
		{"with an endless preamble", append(lines(append([]string{"# service=git-upload-pack"}, long...)...), advertisement()...), gitfetch.ErrProtocol},
		{"of another service", append(lines("# service=git-receive-pack"), advertisement()...), gitfetch.ErrProtocol},
		{"without capabilities that don't matter", lines("version 2", "fetch=shallow"), nil},
		{"without line ends", []byte("000dversion 20011fetch=shallow0000"), nil},
		{"without shallow", lines("version 2", "fetch=filter"), gitfetch.ErrUnsupported},
		{"with something like shallow", lines("version 2", "fetch=shallower"), gitfetch.ErrUnsupported},
		{"without fetch", lines("version 2", "ls-refs"), gitfetch.ErrUnsupported},
		{"of a SHA-256 repository", lines("version 2", "fetch=shallow", "object-format=sha256"), gitfetch.ErrObjectFormat},
		{"of version 1", lines("version 1", commit.String()+" HEAD"), gitfetch.ErrNotV2},
		{"of version 0", lines(commit.String() + " HEAD\x00multi_ack thin-pack"), gitfetch.ErrNotV2},
		{"of version 0 with a preamble", append(preamble, lines(commit.String()+" HEAD\x00multi_ack")...), gitfetch.ErrNotV2},
		{"with a capability twice", lines("version 2", "fetch=shallow", "fetch=shallow"), gitfetch.ErrProtocol},
		{"with an illegal key", lines("version 2", "fetch=shallow", "a b"), gitfetch.ErrProtocol},
		{"with no key", lines("version 2", "fetch=shallow", "=x"), gitfetch.ErrProtocol},
		{"with an illegal value", lines("version 2", "fetch=shallow", "agent=a\x01"), gitfetch.ErrProtocol},
		{"with a delim", append(lines("version 2", "fetch=shallow")[:30], "0001"...), gitfetch.ErrProtocol},
		{"cut short", advertisement()[:40], gitfetch.ErrProtocol},
		{"without a flush", advertisement()[:len(advertisement())-4], gitfetch.ErrProtocol},
		{"with more after the flush", append(advertisement(), '0'), gitfetch.ErrProtocol},
		{"of nothing", nil, gitfetch.ErrRejected},
		{"of an error", pktline.AppendText(nil, "ERR access denied"), &gitfetch.RemoteError{}},
		{"of HTML", []byte("<html>log in"), gitfetch.ErrProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := fetchFrom(t, &host{advertisement: tt.body, result: answerWith(commit, pack)}, commit, nil)
			if remote, ok := tt.want.(*gitfetch.RemoteError); ok {
				if !errors.As(err, &remote) || remote.Text != "access denied" {
					t.Errorf("err = %#v, want the server's own", err)
				}
				return
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAnswersOfAnotherKindAreRefused(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	tests := []struct {
		name string
		head func(http.Header)
		want error
	}{
		{"a login page", set("Content-Type", "text/html"), gitfetch.ErrNotV2},
		{"a dumb server", set("Content-Type", "text/plain"), gitfetch.ErrNotV2},
		{"no type", set("Content-Type", ""), gitfetch.ErrNotV2},
		{"compressed", set("Content-Encoding", "gzip"), gitfetch.ErrProtocol},
		{"identity, spelt out", set("Content-Encoding", "identity"), nil},
		{"a type with parameters", func(h http.Header) { h.Set("Content-Type", h.Get("Content-Type")+"; charset=utf-8") }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := fetchFrom(t, &host{advertisement: advertisement(), result: answerWith(commit, pack), head: tt.head}, commit, nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestFetchAnswers(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	open := opening(commit)
	text := func(lines ...string) []byte {
		var p []byte
		for _, l := range lines {
			p = pktline.AppendText(p, l)
		}
		return p
	}
	join := func(parts ...[]byte) []byte {
		var p []byte
		for _, part := range parts {
			p = append(p, part...)
		}
		return p
	}
	flush, delim := []byte("0000"), []byte("0001")
	packed := band(nil, 1, pack)
	shallow := "shallow " + commit.String()
	last := len(pack) - 1
	tests := []struct {
		name string
		body []byte
		want error
	}{
		{"whole", join(open, packed, flush), nil},
		{"the last byte alone", join(open, band(nil, 1, pack[:last]), band(nil, 1, pack[last:]), flush), nil},
		{"with keepalives and progress", join(open, []byte("0005\x01"), band(nil, 2, []byte("Counting\x1b[2J\r")), packed, []byte("0005\x02"), []byte("0005\x01"), flush), nil},
		{"no shallow line", join(text("shallow-info"), delim, text("packfile"), packed, flush), nil},
		{"nothing", nil, gitfetch.ErrRejected},
		{"a flush alone", flush, gitfetch.ErrProtocol},
		{"no shallow-info", join(text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"acknowledgments", join(text("acknowledgments", "NAK"), delim, open, packed, flush), gitfetch.ErrProtocol},
		{"two shallow lines", join(text("shallow-info", shallow, shallow), delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"shallow of another commit", join(text("shallow-info", "shallow "+strings.Repeat("1", 40)), delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"unshallow", join(text("shallow-info", "un"+shallow), delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"shallow-info twice", join(text("shallow-info"), delim, open, packed, flush), gitfetch.ErrProtocol},
		{"wanted-refs", join(text("shallow-info", shallow), delim, text("wanted-refs"), delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"packfile-uris", join(text("shallow-info", shallow), delim, text("packfile-uris", "x https://evil.example/p"), delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"a delim too many", join(text("shallow-info", shallow), delim, delim, text("packfile"), packed, flush), gitfetch.ErrProtocol},
		{"no packfile", join(text("shallow-info", shallow), flush), gitfetch.ErrProtocol},
		{"an error in place of it all", text("ERR upload-pack: not our ref " + commit.String()), gitfetch.ErrNotOurRef},
		{"an error in place of the pack", join(text("shallow-info", shallow), delim, text("ERR out of memory")), &gitfetch.RemoteError{Text: "out of memory"}},
		{"an error in the pack", join(open, band(nil, 1, pack[:20]), band(nil, 3, []byte("fatal: \x1b]0;x\apack died\n"))), &gitfetch.RemoteError{Text: "fatal: ?]0;x?pack died"}},
		{"band 0", join(open, band(nil, 0, pack), flush), gitfetch.ErrProtocol},
		{"band 4", join(open, band(nil, 4, pack), flush), gitfetch.ErrProtocol},
		{"a packet without a band", join(open, packed, []byte("0004"), flush), gitfetch.ErrProtocol},
		{"a delim in the pack", join(open, packed, delim, flush), gitfetch.ErrProtocol},
		{"response-end", join(open, packed, []byte("0002")), gitfetch.ErrProtocol},
		{"no flush", join(open, packed), gitfetch.ErrProtocol},
		{"more after the flush", join(open, packed, flush, flush), gitfetch.ErrProtocol},
		{"cut inside the pack", join(open, packed[:60]), gitfetch.ErrProtocol},
		{"a flush inside the pack", join(open, band(nil, 1, pack[:60]), flush), gitfetch.ErrPack},
		{"a pack whose last byte was held back", join(open, band(nil, 1, pack[:last]), flush), gitfetch.ErrPack},
		{"a pack with a wrong trailer", join(open, band(nil, 1, pack[:last]), band(nil, 1, []byte{pack[last] ^ 1}), flush), gitfetch.ErrPack},
		{"more after the pack", join(open, packed, band(nil, 1, []byte("x")), flush), gitfetch.ErrPack},
		{"no pack", join(open, flush), gitfetch.ErrPack},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := fetchFrom(t, &host{advertisement: advertisement(), result: tt.body}, commit, nil)
			if want, ok := tt.want.(*gitfetch.RemoteError); ok {
				remote, ok := errors.AsType[*gitfetch.RemoteError](err)
				if !ok || remote.Text != want.Text || strings.Contains(err.Error(), "died") {
					t.Errorf("err = %v with text %q, want %q", err, remote, want.Text)
				}
				return
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			if err != nil && fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
				t.Errorf("reason %s", fencepost.ReasonOf(err))
			}
		})
	}
}

func TestAConnectionThatBreaksIsAnAcquisitionFailure(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	whole := answerWith(commit, pack)
	for _, sent := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		_, err := fetchFrom(t, &host{advertisement: advertisement(), write: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
			if sent > 0 {
				_, _ = w.Write(whole[:sent])
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		}}, commit, nil)
		if !errors.Is(err, io.ErrUnexpectedEOF) || fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
			t.Errorf("after %d bytes: err = %v with reason %s, want %v", sent, err, fencepost.ReasonOf(err), io.ErrUnexpectedEOF)
		}
	}
}
