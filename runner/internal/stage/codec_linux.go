package stage

import (
	"encoding/binary"
	"errors"

	"github.com/fencepost/fencepost/runner/internal/landlock"
)

// The payload of a message is its fields one after the other: numbers as eight
// bytes, little-endian; texts and lists with their length before them. Both
// sides are the same executable, so there is no version. It is not JSON
// because a decoder by reflection takes longer than all mounts together in a
// process that has just started.

var errCodec = errors.New("stage message is not whole")

// A writer appends fields.
type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.LittleEndian.AppendUint64(w.b, n) }

func (w *writer) flag(f bool) {
	var n uint64
	if f {
		n = 1
	}
	w.number(n)
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

// A reader takes fields off; after the last one err tells whether all were
// there.
type reader struct {
	b   []byte
	err error
}

func (r *reader) number() uint64 {
	if len(r.b) < 8 {
		r.err, r.b = errCodec, nil
		return 0
	}
	n := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return n
}

func (r *reader) flag() bool { return r.number() == 1 }

func (r *reader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.err, r.b = errCodec, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// count reads a list's length, which can't be more than the bytes left.
func (r *reader) count() int {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.err, r.b = errCodec, nil
		return 0
	}
	return int(n)
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return errCodec
	}
	return r.err
}

func (w *writer) binds(binds []Bind) {
	w.number(uint64(len(binds)))
	for _, b := range binds {
		w.text(b.Source)
		w.text(b.Target)
		w.flag(b.File)
		w.flag(b.Detached)
	}
}

func (r *reader) binds() []Bind {
	var out []Bind
	for range r.count() {
		out = append(out, Bind{Source: r.text(), Target: r.text(), File: r.flag(), Detached: r.flag()})
	}
	return out
}

// Encode returns the message.
func (b *Base) Encode() []byte {
	w := writer{[]byte{KindBase}}
	w.flag(b.Plain)
	w.binds(b.Binds)
	w.number(uint64(len(b.Links)))
	for _, l := range b.Links {
		w.text(l.Target)
		w.text(l.Text)
	}
	w.number(uint64(len(b.Devices)))
	for _, d := range b.Devices {
		w.text(d)
	}
	w.flag(b.Leave)
	return w.b
}

func decodeBase(message []byte) (Base, error) {
	r := reader{b: message[1:]}
	b := Base{Plain: r.flag(), Binds: r.binds()}
	for range r.count() {
		b.Links = append(b.Links, Link{Target: r.text(), Text: r.text()})
	}
	for range r.count() {
		b.Devices = append(b.Devices, r.text())
	}
	b.Leave = r.flag()
	return b, r.end()
}

// Encode returns the message.
func (c *Config) Encode() []byte {
	w := writer{[]byte{KindConfig}}
	w.flag(c.Strict)
	w.binds(c.Binds)
	w.number(uint64(c.Scratch))
	w.number(uint64(c.Inodes))
	for _, s := range []string{c.Work, c.Program, c.Request, c.Report, c.Result} {
		w.text(s)
	}
	w.number(uint64(c.Doors))
	w.number(uint64(c.Landlock))
	w.number(uint64(len(c.Rules)))
	for _, r := range c.Rules {
		w.text(r.Path)
		w.number(uint64(r.Access))
	}
	for _, n := range []uint64{c.Limits.CPUSeconds, c.Limits.FileBytes, c.Limits.OpenFiles, c.Limits.Processes, c.Limits.DataBytes} {
		w.number(n)
	}
	return w.b
}

func decodeConfig(message []byte) (Config, error) {
	r := reader{b: message[1:]}
	c := Config{Strict: r.flag(), Binds: r.binds()}
	c.Scratch, c.Inodes = int64(r.number()), int64(r.number())
	c.Work, c.Program, c.Request, c.Report, c.Result = r.text(), r.text(), r.text(), r.text(), r.text()
	c.Doors, c.Landlock = int(r.number()), int(r.number())
	for range r.count() {
		c.Rules = append(c.Rules, landlock.Rule{Path: r.text(), Access: landlock.Access(r.number())})
	}
	c.Limits = Rlimits{CPUSeconds: r.number(), FileBytes: r.number(), OpenFiles: r.number(), Processes: r.number(), DataBytes: r.number()}
	return c, r.end()
}

// Encode returns the message.
func (y *Ready) Encode() []byte {
	w := writer{[]byte{KindReady}}
	w.flag(y.Fatal)
	w.number(uint64(len(y.Failures)))
	for _, f := range y.Failures {
		w.text(string(f.Part))
		w.text(f.Step)
		w.number(uint64(f.Errno))
	}
	return w.b
}

// DecodeReady reads a message of [KindReady].
func DecodeReady(message []byte) (Ready, error) {
	r := reader{b: message[1:]}
	y := Ready{Fatal: r.flag()}
	for range r.count() {
		y.Failures = append(y.Failures, Failure{Part: Part(r.text()), Step: r.text(), Errno: uint(r.number())})
	}
	return y, r.end()
}

// Encode returns the message.
func (x *Exit) Encode() []byte {
	w := writer{[]byte{KindExit}}
	for _, n := range []uint64{uint64(x.Spawn), uint64(x.Status), uint64(x.UserMicros), uint64(x.SystemMicros), uint64(x.MaxRSSKiB)} {
		w.number(n)
	}
	return w.b
}

// DecodeExit reads a message of [KindExit].
func DecodeExit(message []byte) (Exit, error) {
	r := reader{b: message[1:]}
	x := Exit{
		Spawn: uint(r.number()), Status: uint32(r.number()),
		UserMicros: int64(r.number()), SystemMicros: int64(r.number()), MaxRSSKiB: int64(r.number()),
	}
	return x, r.end()
}
