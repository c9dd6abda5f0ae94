package fileledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// A worker takes one delivery from its claim to its end. Any number of
// processes may run this at once: one of them acquires the delivery, and if
// it dies, another takes it over under a later fence.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	l, err := fileledger.Open(ctx, fileledger.Config{Dir: filepath.Join(dir, "ledger"), Volatile: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	delivery, err := accept("push to main")
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		if err := work(ctx, l, delivery); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// run, attempt 1
	// publish "all good"
	// nothing left to do
}

// work does what the ledger says is to be done.
func work(ctx context.Context, l fencepost.Ledger, d fencepost.AcceptedDelivery) error {
	claim, err := l.Claim(ctx, d)
	if err != nil {
		return err // unknown: stop as if lost, claim again later
	}
	var staged fencepost.StagedPublication
	switch c := claim.(type) {
	case fencepost.Acquired:
		fmt.Println("run, attempt", c.Attempt)
		result, err := fencepost.NewPublication([]byte("all good"))
		if err != nil {
			return err
		}
		// Frozen before anything leaves: from here on there is no other
		// result of this delivery.
		outcome, err := l.Stage(ctx, d, c.Lease, result)
		if err != nil {
			return err
		}
		s, ok := outcome.(fencepost.Staged)
		if !ok || !s.Lease.Valid() {
			return nil // lost: somebody else goes on
		}
		staged = s.Staged
	case fencepost.Publish: // another worker staged, and died
		staged = c.Staged
	case fencepost.Completed:
		fmt.Println("nothing left to do")
		return nil
	default: // Busy, Full, Expired, BindingConflict
		fmt.Printf("not now: %T\n", c)
		return nil
	}
	fmt.Printf("publish %q\n", staged.Publication().Bytes())
	_, err = l.Complete(ctx, d, staged)
	return err
}

// accept stands for authentication: package webhook has the real verifiers.
func accept(body string) (fencepost.AcceptedDelivery, error) {
	var none fencepost.Headers
	check := fencepost.NewIngressCheck("docs", none, []byte(body), time.Now())
	proof, err := fencepost.Authenticate(check, trusting{})
	if err != nil {
		return fencepost.AcceptedDelivery{}, err
	}
	return fencepost.Accept(proof, fencepost.RouteRule{
		Route: "docs", TrustSet: "example", SignedTime: fencepost.SignedTimeNone,
		Window: fencepost.DefaultReplayWindow,
	}, none, []byte(body))
}

type trusting struct{}

func (trusting) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	return fencepost.Evidence{Anchor: "key", TrustSet: "example", Replay: fencepost.ReplayBody{}}, nil
}
