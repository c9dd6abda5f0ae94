package ingress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// progressBytes is how much of a body has to arrive within the stall
	// timeout.
	progressBytes = 256 << 10
	// discardBytes is how much of a body nobody wants is read so that the
	// connection can go on; net/http reads as much.
	discardBytes = 256 << 10
)

// Errors of reading a body.
var (
	errTooLarge = errors.New("body is too large")
	errBroken   = errors.New("client broke off or was too slow")
)

// longAgo is a deadline that has passed whatever the clock says.
var longAgo = time.Unix(1, 0)

// A watch cuts a client's body off when it takes too long. It needs no clock:
// when a timer fires, it moves the connection's read deadline into the past.
type watch struct {
	conn        http.ResponseController
	cfg         *Config
	part, whole *time.Timer
}

// newWatch starts with the first part of a body of n bytes, negative for any
// number.
func newWatch(w http.ResponseWriter, n int64, cfg *Config) *watch {
	v := &watch{conn: *http.NewResponseController(w), cfg: cfg}
	v.part = time.AfterFunc(cfg.StallTimeout, v.expire)
	// A body of one part can't take longer than that part.
	if n < 0 || n > progressBytes {
		v.whole = time.AfterFunc(cfg.BodyTimeout, v.expire)
	}
	return v
}

func (v *watch) expire() {
	// A writer without connection, as in tests, has no deadline to move.
	_ = v.conn.SetReadDeadline(longAgo)
}

// next begins another part.
func (v *watch) next() { v.part.Reset(v.cfg.StallTimeout) }

// again begins anew after a stop, for a body of more than one part.
func (v *watch) again() {
	v.next()
	v.whole.Reset(v.cfg.BodyTimeout)
}

// stop ends the watch. It returns false if a timer had fired, when the
// connection can't be used for another request.
func (v *watch) stop() bool {
	stopped := v.part.Stop()
	if v.whole != nil {
		stopped = v.whole.Stop() && stopped
	}
	return stopped
}

// read reads the exact body, of at most so many bytes, into a buffer, which the
// caller releases. A declared length is known to be no more. Its
// errors are [errTooLarge], [errNoRoom], [errBroken] or the context's.
func (s *Server) read(w http.ResponseWriter, r *http.Request, most int64) (body []byte, room *buffer, err error) {
	if r.ContentLength >= 0 {
		return s.readDeclared(w, r)
	}
	return s.readChunked(w, r, most)
}

func (s *Server) readDeclared(w http.ResponseWriter, r *http.Request) ([]byte, *buffer, error) {
	n := r.ContentLength
	room, err := s.budget.take(r.Context(), n)
	if err != nil {
		return nil, nil, err
	}
	watch := newWatch(w, n, &s.cfg)
	got, err := readParts(r.Body, room.bytes[:n], watch)
	if !watch.stop() || int64(got) < n || (err != nil && err != io.EOF) {
		room.release()
		return nil, nil, errBroken
	}
	return room.bytes[:n], room, nil
}

// readChunked reads a body of any length: first into a buffer of the smaller
// part of the budget, and if that is full into one of the largest size.
func (s *Server) readChunked(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *buffer, error) {
	room, err := s.budget.take(r.Context(), min(smallBody, most))
	if err != nil {
		return nil, nil, err
	}
	watch := newWatch(w, -1, &s.cfg)
	n, err := readParts(r.Body, room.bytes, watch)
	if err == nil && int64(n) < most {
		n, room, err = s.readOn(r, room, n, watch, most)
	}
	if err == nil {
		// The buffer is full, and it is the largest: is this the end?
		var more [1]byte
		if _, err = io.ReadFull(r.Body, more[:]); err == nil {
			err = errTooLarge
		}
	}
	if watch.stop() && err == io.EOF {
		return room.bytes[:n], room, nil
	}
	room.release()
	if !errors.Is(err, errTooLarge) && !errors.Is(err, errNoRoom) {
		err = errBroken
	}
	return nil, nil, err
}

// readOn moves the n bytes of a full buffer into one of the largest size and
// reads on. It releases small. The client's time stands still while the body
// waits for room, and begins anew after it.
func (s *Server) readOn(r *http.Request, small *buffer, n int, watch *watch, most int64) (int, *buffer, error) {
	defer small.release()
	if !watch.stop() {
		return 0, nil, errBroken
	}
	room, err := s.budget.take(r.Context(), most)
	if err != nil {
		return 0, nil, err
	}
	watch.again()
	copy(room.bytes, small.bytes[:n])
	more, err := readParts(r.Body, room.bytes[n:], watch)
	return n + more, room, err
}

// readParts fills into. Its error is io.EOF if r ended before or with the
// last byte, and nil if there may be more.
func readParts(r io.Reader, into []byte, watch *watch) (n int, err error) {
	next := progressBytes
	for n < len(into) {
		got, err := r.Read(into[n:])
		n += got
		if err != nil {
			return n, err
		}
		if n >= next {
			watch.next()
			next = n + progressBytes
		}
	}
	return n, nil
}

// discard reads what is left of a body that nobody wants, so that the client
// has sent it all before it is answered. It returns false if there is more
// than a little, or if the client waits for word to send it: then the
// connection has to end.
func (s *Server) discard(w http.ResponseWriter, r *http.Request) bool {
	if r.ContentLength == 0 {
		return true
	}
	watch := newWatch(w, 0, &s.cfg)
	if r.Header.Get("Expect") != "" {
		// net/http would wait for what the client has no word to send.
		watch.expire()
		watch.stop()
		return false
	}
	if r.ContentLength <= discardBytes {
		if _, err := io.CopyN(io.Discard, r.Body, discardBytes); err == io.EOF {
			return watch.stop()
		}
	}
	// The watch stays: once the answer is out, net/http reads a little more
	// and lingers, so that the client sees the answer and not a reset.
	watch.next()
	return false
}

// recordContext outlives the client, who may be gone: what it sent is worth
// recording all the same, since some providers never send it again.
func (s *Server) recordContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.RecordTimeout)
}
