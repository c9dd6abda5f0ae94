// Package loadgen sends signed webhooks over many connections as fast as they
// are answered, with little of the machine's time: what shares the cores with
// a server under measurement must not be what is measured.
package loadgen

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A Load says what is sent.
type Load struct {
	// Address is the server's host and port.
	Address string
	// Path is the request path.
	Path string
	// Connections is how many connections are kept busy; each has one request
	// under way.
	Connections int
	// Requests is how many requests are sent in all.
	Requests int
	// Secret signs them in GitHub's way.
	Secret []byte
	// Body is what each body begins with: a JSON object without its closing
	// brace. A number of its own is put after it, so that no two are alike.
	Body []byte
	// Distinct is added to the numbers, so that two loads are unlike.
	Distinct int
	// Now tells the time that latencies are measured by.
	Now func() time.Time
}

// A Result is what came of a load.
type Result struct {
	// Statuses is how many answers there were of each status.
	Statuses map[int]int
	// Took is from the first request to the last answer.
	Took time.Duration
	// Latency is of the answers.
	Latency Latency
}

// PerSecond is the rate of answers.
func (r Result) PerSecond() float64 {
	n := 0
	for _, count := range r.Statuses {
		n += count
	}
	return float64(n) / r.Took.Seconds()
}

// Run sends the load. Its error is the first of any connection.
func Run(ctx context.Context, l Load) (Result, error) {
	m := newMaker(l)
	var next atomic.Int64
	results := make([]Result, l.Connections)
	errs := make([]error, l.Connections)
	var wg sync.WaitGroup
	begin := l.Now()
	for i := range l.Connections {
		wg.Go(func() {
			results[i].Statuses = map[int]int{}
			errs[i] = l.connection(ctx, m, &next, &results[i])
		})
	}
	wg.Wait()
	whole := Result{Statuses: map[int]int{}, Took: l.Now().Sub(begin)}
	for _, r := range results {
		whole.Latency.Add(&r.Latency)
		for status, n := range r.Statuses {
			whole.Statuses[status] += n
		}
	}
	return whole, errors.Join(errs...)
}

func (l Load) connection(ctx context.Context, m *maker, next *atomic.Int64, r *Result) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", l.Address)
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	in := bufio.NewReaderSize(conn, 1024)
	var request []byte
	mac := sha256.New()
	for {
		n := int(next.Add(1))
		if n > l.Requests {
			return nil
		}
		request = m.request(request[:0], mac, l.Distinct+n)
		sent := l.Now()
		if _, err := conn.Write(request); err != nil {
			return fmt.Errorf("load: send: %w", err)
		}
		status, err := readAnswer(in)
		if err != nil {
			return fmt.Errorf("load: read answer: %w", err)
		}
		r.Latency.Record(l.Now().Sub(sent))
		r.Statuses[status]++
	}
}

// readAnswer reads one answer and returns its status.
func readAnswer(in *bufio.Reader) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, io.ErrUnexpectedEOF
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, err
	}
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		const name = "Content-Length: "
		if len(line) > len(name) && string(line[:len(name)]) == name {
			if length, err = strconv.Atoi(string(line[len(name) : len(line)-2])); err != nil {
				return 0, err
			}
		}
	}
	_, err = in.Discard(length)
	return status, err
}

// A maker makes requests. What all bodies begin with has been hashed once:
// signing one costs a few blocks, whatever its size.
type maker struct {
	head, body []byte
	state      []byte // of the inner hash, after body
	outer      []byte // of the outer hash, after the key
}

// suffixBytes is the length of what follows the common part of each body.
const suffixBytes = len(`,"n":000000000000}`)

func newMaker(l Load) *maker {
	m := &maker{body: l.Body}
	m.head = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: GitHub-Hookshot/load\r\nAccept: */*\r\n"+
		"X-GitHub-Event: pull_request\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\nX-GitHub-Hook-ID: 292430182\r\n"+
		"X-GitHub-Hook-Installation-Target-ID: 79929171\r\nX-GitHub-Hook-Installation-Target-Type: repository\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nX-Hub-Signature-256: sha256=", l.Path, l.Address, len(l.Body)+suffixBytes)
	var pad [sha256.BlockSize]byte
	copy(pad[:], blockKey(l.Secret))
	inner, outer := pad, pad
	for i := range pad {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	m.state = marshal(inner[:], l.Body)
	m.outer = marshal(outer[:])
	return m
}

func blockKey(secret []byte) []byte {
	if len(secret) <= sha256.BlockSize {
		return secret
	}
	sum := sha256.Sum256(secret)
	return sum[:]
}

func marshal(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		panic("loadgen: a hash of the standard library does not marshal: " + err.Error())
	}
	return state
}

// request appends the request of number n to b.
func (m *maker) request(b []byte, h hash.Hash, n int) []byte {
	var suffix [suffixBytes]byte
	copy(suffix[:], fmt.Appendf(suffix[:0], `,"n":%012d}`, n+100_000_000_000))
	var sum [sha256.Size]byte
	m.restore(h, m.state)
	h.Write(suffix[:])
	h.Sum(sum[:0])
	m.restore(h, m.outer)
	h.Write(sum[:])
	h.Sum(sum[:0])
	b = append(b, m.head...)
	b = hex.AppendEncode(b, sum[:])
	b = append(b, "\r\n\r\n"...)
	b = append(b, m.body...)
	return append(b, suffix[:]...)
}

func (m *maker) restore(h hash.Hash, state []byte) {
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state); err != nil {
		panic("loadgen: a hash does not take its own state: " + err.Error())
	}
}
