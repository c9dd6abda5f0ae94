package ledgertest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

// TestFlippedHistoriesAreCaught: of histories of many clients at once, each
// with one refusal turned into a success, none may pass. They go through
// transcripts, as those of other processes do.
func TestFlippedHistoriesAreCaught(t *testing.T) {
	t.Parallel()
	const histories = 30
	flipped := 0
	for seed := range uint64(histories) {
		text := contested(t, seed)
		h := &History{}
		for _, one := range text {
			if err := h.Read(strings.NewReader(one)); err != nil {
				t.Fatal(err)
			}
		}
		h.Check(t, false)
		r := rand.New(rand.NewPCG(seed, 5))
		for _, i := range r.Perm(len(h.ops)) {
			in, out := h.ops[i].Input.(input), h.ops[i].Output.(output)
			if out.answer != lost {
				continue
			}
			h.ops[i].Output = map[opKind]output{
				opRenew:    {answer: renewed, evaluation: in.evaluation, fence: in.fence},
				opStage:    {answer: stagedAs, evaluation: in.evaluation, fence: in.fence, value: in.value},
				opComplete: {answer: completed},
			}[in.op]
			flipped++
			v := &verdict{TB: t}
			if h.Check(v, false); !v.failed {
				t.Errorf("seed %d: %s answered as a success passes", seed, describe(in, out))
			}
			break
		}
	}
	if flipped < histories/2 {
		t.Errorf("%d histories had a refusal to flip, want most of %d", flipped, histories)
	}
}

// contested is the transcripts of four clients at once over three deliveries.
func contested(t *testing.T, seed uint64) []string {
	t.Helper()
	w := &world{TB: t, h: memoryHarness(hooks{})}
	start := time.Now()
	texts := make([]bytes.Buffer, 4)
	var clients sync.WaitGroup
	var mu sync.Mutex
	leases := map[int][]fencepost.Lease{}
	for c := range texts {
		l := Transcribe(&texts[c], c, w.h.Ledger, func() time.Duration { return time.Since(start) })
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			for range 25 {
				n := r.IntN(3)
				d := w.permanent(fmt.Sprint(n))
				mu.Lock()
				var lease fencepost.Lease
				if all := leases[n]; len(all) > 0 {
					lease = all[r.IntN(len(all))]
				}
				mu.Unlock()
				if !lease.Valid() || r.IntN(3) == 0 {
					if a, ok := w.claimOn(l, d).(fencepost.Acquired); ok {
						forged := w.grant(a.Lease.Evaluation(), w.fenceAt(a.Lease.Fence(), 1))
						mu.Lock()
						leases[n] = append(leases[n], a.Lease, forged)
						mu.Unlock()
					}
					continue
				}
				p := w.publication(fmt.Sprint(r.IntN(2)))
				var err error
				switch r.IntN(3) {
				case 0:
					_, err = l.Renew(t.Context(), d, lease)
				case 1:
					_, err = l.Stage(t.Context(), d, lease, p)
				case 2:
					_, err = l.Complete(t.Context(), d, w.restore(d, lease.Evaluation(), p))
				}
				if err != nil {
					t.Errorf("client %d: %v", c, err)
				}
			}
		})
	}
	clients.Wait()
	var all []string
	for i := range texts {
		all = append(all, texts[i].String())
	}
	return all
}

func (w *world) claimOn(l fencepost.Ledger, d fencepost.AcceptedDelivery) fencepost.Claim {
	c, err := l.Claim(w.Context(), d)
	if err != nil {
		w.Errorf("claim: %v", err)
	}
	return c
}

func TestReadRefusesWhatIsNoTranscript(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"r 1 fencepost.Lost 00 0 00\n", "c x\n", "what\n", "c 1 2 1 00 00 00 0 00\n"} {
		if err := new(History).Read(strings.NewReader(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	h := &History{}
	if err := h.Read(strings.NewReader("c 1 2")); err != nil || h.Len() != 0 {
		t.Errorf("a first line that is cut off: %v, %d operations; want none", err, h.Len())
	}
}
