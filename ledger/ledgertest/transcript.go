package ledgertest

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencepost/fencepost"
)

// Transcribe is l, with every operation written to w as one of client's: a
// line before it is begun, and a line when it was answered. So what a process
// had begun when it was killed is known, if w has it by then, as a file has
// that is not buffered. now is a clock that all processes share and that
// never steps, such as the machine's since its boot. One client does one thing
// at a time. A line that can't be written is a panic: without it the history
// would be wrong.
func Transcribe(w io.Writer, client int, l fencepost.Ledger, now func() time.Duration) fencepost.Ledger {
	say := func(format string, args ...any) {
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			panic(fmt.Sprintf("ledgertest.Transcribe: %v", err))
		}
	}
	return recorder{ledger: l, record: func(in input, do func() output) {
		say("c %d %d %d %x %x %x %d %x\n", client, now(), in.op, in.key[:], in.binding[:], in.evaluation[:], in.fence.Uint64(), in.value[:])
		out := do()
		if out.unknown {
			say("u %d\n", now())
			return
		}
		say("r %d %s %x %d %x\n", now(), out.answer, out.evaluation[:], out.fence.Uint64(), out.value[:])
	}}
}

// Read adds the operations of a transcript. One without an answer, such as the
// last one of a process that was killed, has an unknown outcome; a last line
// that is cut off never was. Transcripts of one history need one clock, and
// can't be mixed with [History.Client].
func (h *History) Read(r io.Reader) error {
	lines := bufio.NewReader(r)
	var ops []porcupine.Operation
	open := false // the last of ops has no answer yet
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			h.add(ops...)
			return nil
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "c ") {
			op, err := parseCall(line)
			if err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			ops, open = append(ops, op), true
			continue
		}
		if !open {
			return fmt.Errorf("line %d: an answer that nobody asked for", n)
		}
		if err := parseReturn(line, &ops[len(ops)-1]); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		open = false
	}
}

func parseCall(line string) (porcupine.Operation, error) {
	var in input
	var fence uint64
	var key, binding, evaluation, value string
	op := porcupine.Operation{Output: output{unknown: true}}
	if _, err := fmt.Sscanf(line, "c %d %d %d %s %s %s %d %s", &op.ClientId, &op.Call, &in.op, &key, &binding, &evaluation, &fence, &value); err != nil {
		return op, err
	}
	err := unhex(place{key, in.key[:]}, place{binding, in.binding[:]}, place{evaluation, in.evaluation[:]}, place{value, in.value[:]})
	if err != nil {
		return op, err
	}
	in.fence, err = optionalFence(fence)
	op.Input, op.Return = in, op.Call
	return op, err
}

func parseReturn(line string, op *porcupine.Operation) error {
	if strings.HasPrefix(line, "u ") {
		return nil
	}
	var out output
	var fence uint64
	var evaluation, value string
	if _, err := fmt.Sscanf(line, "r %d %s %s %d %s", &op.Return, &out.answer, &evaluation, &fence, &value); err != nil {
		return err
	}
	if err := unhex(place{evaluation, out.evaluation[:]}, place{value, out.value[:]}); err != nil {
		return err
	}
	var err error
	out.fence, err = optionalFence(fence)
	op.Output = out
	return err
}

// A place is where bytes go that stand in a line as text.
type place struct {
	text  string
	bytes []byte
}

func unhex(places ...place) error {
	for _, p := range places {
		b, err := hex.DecodeString(p.text)
		if err != nil || len(b) != len(p.bytes) {
			return fmt.Errorf("%q is not %d bytes in hexadecimal", p.text, len(p.bytes))
		}
		copy(p.bytes, b)
	}
	return nil
}

// optionalFence is the zero fence for 0.
func optionalFence(n uint64) (fencepost.Fence, error) {
	if n == 0 {
		return fencepost.Fence{}, nil
	}
	return fencepost.ParseFence(n)
}
