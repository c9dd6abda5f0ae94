package gitfetch_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// lines are text packets without an end.
func lines(texts ...string) []byte {
	var p []byte
	for _, l := range texts {
		p = pktline.AppendText(p, l)
	}
	return p
}

func flushed(p []byte) []byte { return pktline.AppendFlush(slices.Clone(p)) }

// advertises is a host with those refs, and a good pack.
func advertises(body []byte) func(*testing.T) []scene {
	return against(func(commit fencepost.ObjectID, pack []byte) *host {
		return &host{advertisement: body, result: answerWith(commit, pack)}
	})
}

// replies is a good host but for its second answer.
func replies(body func(commit fencepost.ObjectID, pack []byte) []byte, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return against(func(commit fencepost.ObjectID, pack []byte) *host {
		return &host{advertisement: advertisement(), result: body(commit, pack)}
	}, change...)
}

// within sets the time budgets of a fetch: idle, and in all.
func within(idle, total time.Duration) func(*gitfetch.Request) {
	return func(r *gitfetch.Request) { r.Budgets.Idle, r.Budgets.Total = idle, total }
}

// slow writes the first part of a good second answer, as far as upTo says,
// and then rest, again and again.
func slow(upTo func(commit fencepost.ObjectID, pack []byte) []byte, rest string) func(fencepost.ObjectID, []byte) *host {
	return second(func(commit fencepost.ObjectID, pack []byte, w http.ResponseWriter, r *http.Request) {
		drip(upTo(commit, pack), []byte(rest))(w, r)
	})
}

func timeAttacks() []attack {
	const (
		idle  = 60 * time.Millisecond
		total = 120 * time.Millisecond
		long  = time.Minute
	)
	opened := func(commit fencepost.ObjectID, _ []byte) []byte { return opening(commit) }
	begun := func(commit fencepost.ObjectID, pack []byte) []byte {
		return band(opening(commit), 1, pack[:len(pack)/2])
	}
	packed := func(commit fencepost.ObjectID, pack []byte) []byte { return band(opening(commit), 1, pack) }
	endless := func(commit fencepost.ObjectID, _ []byte) []byte {
		return band(opening(commit), 1, slices.Concat([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01"), packtest.Header(3, 1<<20), packtest.Deflate(nil)[:2]))
	}
	refs := "HTTP/1.1 200 OK\r\nContent-Type: " + typeAdvertisement + "\r\n\r\n"
	plain := func(talk func(net.Conn), change func(*gitfetch.Request)) func(*testing.T) []scene {
		return func(t *testing.T) []scene {
			s := sockets(talk)(t)
			s[0].change = change
			return s
		}
	}
	const slow4 = 4 * time.Millisecond
	return []attack{
		{"silence in place of an answer", "idle time", over(gitfetch.BudgetIdle), plain(onAndOn("", "", slow4), within(idle, long))},
		{"headers a byte at a time", "idle time", over(gitfetch.BudgetIdle), plain(onAndOn("HTTP/1.1 200 OK\r\nX: ", "x", slow4), within(idle, long))},
		{"refs a byte at a time", "idle time", over(gitfetch.BudgetIdle), plain(onAndOn(refs+"fff0version 2", "x", slow4), within(idle, long))},
		{"refs a packet at a time, for ever", "total time", over(gitfetch.BudgetTotal), plain(onAndOn(refs+"000eversion 2\n", "0005a", slow4), within(long, total))},
		{"an error's text a byte at a time", "idle time", over(gitfetch.BudgetIdle), plain(onAndOn("HTTP/1.1 404 No\r\nContent-Type: text/plain\r\n\r\n", "x", slow4), within(idle, long))},
		{"silence before the pack", "idle time", over(gitfetch.BudgetIdle), against(slow(opened, ""), within(idle, long))},
		{"silence within the pack", "idle time", over(gitfetch.BudgetIdle), against(slow(begun, ""), within(idle, long))},
		{"silence after the pack", "idle time", over(gitfetch.BudgetIdle), against(slow(packed, ""), within(idle, long))},
		{"nothing but keepalives", "uploadpack.keepAlive", over(gitfetch.BudgetIdle), against(slow(begun, "0005\x01"), within(idle, long))},
		{"keepalives after the pack", "uploadpack.keepAlive", over(gitfetch.BudgetIdle), against(slow(packed, "0005\x01"), within(idle, long))},
		{"nothing but progress texts", "idle time", over(gitfetch.BudgetIdle), against(slow(begun, "0006\x02."), within(idle, long))},
		{"a pack a byte at a time", "total time", over(gitfetch.BudgetTotal), against(slow(endless, "000a\x01\x00\x00\x00\xff\xff"), within(long, total))},
		{"a pack that never ends", "bytes on the wire", over(gitfetch.BudgetWire), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(endless(c, p))
			for nothing := band(nil, 1, []byte(strings.Repeat("\x00\x00\x00\xff\xff", 200))); err == nil; {
				_, err = w.Write(nothing)
			}
		}), func(r *gitfetch.Request) { r.Budgets.WireBytes = 4 << 20 })},
		{"endless progress texts", "metadata budget", over(gitfetch.BudgetMetadata), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(begun(c, p))
			for text := band(nil, 2, []byte(strings.Repeat(serverWords, 90))); err == nil; {
				_, err = w.Write(text)
			}
		}))},
		{"endless short progress texts", "metadata budget", over(gitfetch.BudgetMetadataLines), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(begun(c, p))
			for text := []byte(strings.Repeat("0006\x02.", 1000)); err == nil; {
				_, err = w.Write(text)
			}
		}))},
		{"endless keepalives at once", "metadata budget", over(gitfetch.BudgetMetadataLines), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(packed(c, p))
			for text := []byte(strings.Repeat("0005\x01", 1000)); err == nil; {
				_, err = w.Write(text)
			}
		}))},
		{"endless capabilities", "metadata budget", over(gitfetch.BudgetMetadataLines), sockets(onAndOn(refs+"000eversion 2\n", strings.Repeat("0005a", 1000), 0))},
		{"endless long capabilities", "metadata budget", over(gitfetch.BudgetMetadata), sockets(onAndOn(refs+"000eversion 2\n", string(pktline.AppendText(nil, "a="+strings.Repeat("x", 60_000))), 0))},
	}
}

func pktAttacks() []attack {
	const (
		pkt = "gitprotocol-common"
		v2  = "gitprotocol-v2"
	)
	good := lines("version 2", "fetch=shallow")
	preamble := flushed(lines("# service=git-upload-pack"))
	oid := strings.Repeat("ab", 20)
	return []attack{
		{"a packet longer than any may be", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "fff1"+strings.Repeat("x", 0xfff1-4)+"0000"...))},
		{"the longest number for a packet", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "ffff"...))},
		{"a packet of three bytes", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "0003"...))},
		{"a length that is no number", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "00g0"...))},
		{"a length with a sign", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "-001"...))},
		{"a length with a blank", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), " 005a"...))},
		{"a length cut short", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "00"...))},
		{"a packet cut short", pkt, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "0010abc"...))},
		{"response-end in the refs", v2, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "0002"...))},
		{"response-end first of all", v2, fails(gitfetch.ErrProtocol), advertises([]byte("0002"))},
		{"a delimiter in the refs", v2, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "00010000"...))},
		{"refs without an end", v2, fails(gitfetch.ErrProtocol), advertises(good)},
		{"refs with more after their end", v2, fails(gitfetch.ErrProtocol), advertises(append(flushed(good), flushed(good)...))},
		{"an empty packet for a capability", v2, fails(gitfetch.ErrProtocol), advertises(append(slices.Clone(good), "00040000"...))},
		{"protocol version 0", v2, fails(gitfetch.ErrNotV2), advertises(flushed(lines(oid + " HEAD\x00multi_ack allow-tip-sha1-in-want agent=" + serverWords)))},
		{"protocol version 0 behind a preamble", v2, fails(gitfetch.ErrNotV2), advertises(append(slices.Clone(preamble), flushed(lines(oid+" HEAD\x00multi_ack"))...))},
		{"protocol version 0 without refs", v2, fails(gitfetch.ErrNotV2), advertises(flushed(lines(strings.Repeat("0", 40) + " capabilities^{}\x00multi_ack")))},
		{"protocol version 1", v2, fails(gitfetch.ErrNotV2), advertises(flushed(lines("version 1", oid+" HEAD")))},
		{"protocol version 3", v2, fails(gitfetch.ErrNotV2), advertises(flushed(lines("version 3")))},
		{"a preamble of another service", v2, fails(gitfetch.ErrProtocol), advertises(append(flushed(lines("# service=git-receive-pack")), flushed(good)...))},
		{"an endless preamble", v2, fails(gitfetch.ErrProtocol), advertises(append(lines(slices.Repeat([]string{"# service=git-upload-pack"}, 30)...), flushed(good)...))},
		{"a capability without a key", v2, fails(gitfetch.ErrProtocol), advertises(flushed(append(slices.Clone(good), lines("=x")...)))},
		{"a capability with a blank in its key", v2, fails(gitfetch.ErrProtocol), advertises(flushed(append(slices.Clone(good), lines(serverWords+" x=y")...)))},
		{"a capability with an escape in its value", v2, fails(gitfetch.ErrProtocol), advertises(flushed(append(slices.Clone(good), lines("agent=\x1b]0;"+serverWords+"\a")...)))},
		{"a capability with a line end in its value", "CVE-2025-48385", fails(gitfetch.ErrProtocol), advertises(flushed(append(slices.Clone(good), lines("agent=x\ncommand=fetch")...)))},
		{"a capability twice", v2, fails(gitfetch.ErrProtocol), advertises(flushed(append(slices.Clone(good), lines("fetch=shallow filter")...)))},
		{"a server that can't fetch", v2, fails(gitfetch.ErrUnsupported), advertises(flushed(lines("version 2", "ls-refs")))},
		{"a server that can't cut history off", v2, fails(gitfetch.ErrUnsupported), advertises(flushed(lines("version 2", "fetch=shallower filter")))},
		{"a SHA-256 repository", v2, fails(gitfetch.ErrObjectFormat), advertises(flushed(append(slices.Clone(good), lines("object-format=sha256")...)))},
		{"an unknown object format", v2, fails(gitfetch.ErrObjectFormat), advertises(flushed(append(slices.Clone(good), lines("object-format="+serverWords)...)))},
		{"an error in place of the refs", v2, said("access denied to " + serverWords), advertises(lines("ERR access denied to " + serverWords))},
		{"an error with terminal escapes", "sideband.allowControlCharacters", said("?[2J?]0;title? " + serverWords + "?"), advertises(lines("ERR \x1b[2J\x1b]0;title\a\r" + serverWords + "\u202e"))},
		{"an error with a text of 60,000 bytes", v2, said(strings.Repeat("x", 4<<10)), advertises(lines("ERR " + strings.Repeat("x", 60_000)))},
		{"an empty answer", v2, fails(gitfetch.ErrRejected), advertises(nil)},
		{"HTML that calls itself refs", v2, fails(gitfetch.ErrProtocol), advertises([]byte("<html>" + serverWords))},
	}
}

func answerAttacks() []attack {
	const v2 = "gitprotocol-v2"
	delim := []byte("0001")
	// section is an answer with other sections before the pack.
	section := func(parts func(shallow string) []byte) func(*testing.T) []scene {
		return replies(func(c fencepost.ObjectID, p []byte) []byte {
			return flushed(band(append(parts("shallow "+c.String()), lines("packfile")...), 1, p))
		})
	}
	// after is what stands behind a good opening; pack is in bands already.
	after := func(rest func(pack []byte) []byte) func(*testing.T) []scene {
		return replies(func(c fencepost.ObjectID, p []byte) []byte { return append(opening(c), rest(p)...) })
	}
	in := func(n byte, p []byte) []byte { return band(nil, n, p) }
	with := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	return []attack{
		{"an empty answer for the pack", v2, fails(gitfetch.ErrRejected), replies(func(fencepost.ObjectID, []byte) []byte { return nil })},
		{"an answer of a flush alone", v2, fails(gitfetch.ErrProtocol), replies(func(fencepost.ObjectID, []byte) []byte { return []byte("0000") })},
		{"acknowledgments nobody asked for", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte {
			return with(lines("acknowledgments", "NAK"), delim, lines("shallow-info", s), delim)
		})},
		{"no shallow section", v2, fails(gitfetch.ErrProtocol), section(func(string) []byte { return nil })},
		{"a shallow section twice", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", s), delim, lines("shallow-info", s), delim) })},
		{"another commit cut off", v2, fails(gitfetch.ErrProtocol), section(func(string) []byte { return with(lines("shallow-info", "shallow "+strings.Repeat("1", 40)), delim) })},
		{"two commits cut off", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", s, s), delim) })},
		{"a commit cut off no more", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", "un"+s), delim) })},
		{"a shallow line with an id of 64 digits", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", s+strings.Repeat("0", 24)), delim) })},
		{"endless shallow lines", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte {
			return with(lines("shallow-info"), lines(slices.Repeat([]string{s}, 1000)...), delim)
		})},
		{"wanted refs nobody asked for", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte {
			return with(lines("shallow-info", s), delim, lines("wanted-refs", s[8:]+" refs/heads/main"), delim)
		})},
		{"packs elsewhere", "CVE-2025-48385", fails(gitfetch.ErrProtocol), section(func(s string) []byte {
			return with(lines("shallow-info", s), delim, lines("packfile-uris", s[8:]+" http://169.254.169.254/"+serverWords), delim)
		})},
		{"a section of no known name", v2, fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", s), delim, lines(serverWords), delim) })},
		{"a delimiter too many", "t/t5704", fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(lines("shallow-info", s), delim, delim) })},
		{"a flush in place of the delimiter", "t/t5702", fails(gitfetch.ErrProtocol), section(func(s string) []byte { return with(flushed(lines("shallow-info", s))) })},
		{"an answer that ends before the pack", v2, fails(gitfetch.ErrProtocol), replies(func(c fencepost.ObjectID, _ []byte) []byte { return opening(c)[:len(opening(c))-13] })},
		{"an error in place of the pack", v2, said("out of " + serverWords), section(func(s string) []byte { return with(lines("shallow-info", s), delim, lines("ERR out of "+serverWords)) })},
		{"a commit the server denies", v2, fails(gitfetch.ErrNotOurRef), replies(func(c fencepost.ObjectID, _ []byte) []byte {
			return lines("ERR upload-pack: not our ref " + c.String())
		})},
		{"an error within the pack", v2, said("fatal: " + serverWords + "?[1m died"), after(func(p []byte) []byte {
			return with(in(1, p[:30]), in(3, []byte("fatal: "+serverWords+"\x1b[1m died\n")))
		})},
		{"an error after the pack", v2, said("late"), after(func(p []byte) []byte { return with(in(1, p), in(3, []byte("late"))) })},
		{"band 0", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return flushed(in(0, p)) })},
		{"band 4", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return flushed(in(4, p)) })},
		{"band 255", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return flushed(in(255, p)) })},
		{"a packet without a band", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return with(in(1, p), []byte("00040000")) })},
		{"a delimiter within the pack", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return with(in(1, p[:30]), delim, flushed(in(1, p[30:]))) })},
		{"response-end after the pack", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return with(in(1, p), []byte("0002")) })},
		{"response-end after the flush", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return with(flushed(in(1, p)), []byte("0002")) })},
		{"no flush after the pack", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return in(1, p) })},
		{"two flushes after the pack", v2, fails(gitfetch.ErrProtocol), after(func(p []byte) []byte { return with(flushed(in(1, p)), []byte("0000")) })},
		{"a second answer behind the first", v2, fails(gitfetch.ErrProtocol), replies(func(c fencepost.ObjectID, p []byte) []byte { return with(answerWith(c, p), answerWith(c, p)) })},
		{"a flush within the pack", v2, fails(gitfetch.ErrPack), after(func(p []byte) []byte { return flushed(in(1, p[:len(p)/2])) })},
		{"a last byte that is held back", v2, fails(gitfetch.ErrPack), after(func(p []byte) []byte { return flushed(in(1, p[:len(p)-1])) })},
		{"no pack at all", v2, fails(gitfetch.ErrPack), after(func([]byte) []byte { return []byte("0000") })},
		{"a second pack behind the first", v2, fails(gitfetch.ErrPack), after(func(p []byte) []byte { return flushed(in(1, append(slices.Clone(p), p...))) })},
		{"a bare pack without bands", v2, fails(gitfetch.ErrProtocol), replies(func(_ fencepost.ObjectID, p []byte) []byte { return p })},
		{"an answer of version 0", v2, fails(gitfetch.ErrProtocol), replies(func(_ fencepost.ObjectID, p []byte) []byte { return with(lines("NAK"), flushed(in(1, p))) })},
		{"another commit than was asked for", "closure", fails(gitfetch.ErrMissingObject), func(t *testing.T) []scene {
			s := replies(func(_ fencepost.ObjectID, p []byte) []byte {
				return answerWith(fencepost.ObjectID{1}, p)
			})(t)
			s[0].commit = fencepost.ObjectID{1}
			return s
		}},
		{"a rejection that remembers the request", v2, said("bad line: " + fmt.Sprintf("%q", "want")), replies(func(fencepost.ObjectID, []byte) []byte { return lines(`ERR bad line: "want"`) })},
	}
}
