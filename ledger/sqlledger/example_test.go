package sqlledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

// Two workers are after one delivery: one of them gets it. With a URL instead
// of a path, they may be on different machines.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	delivery, err := accept("push to main")
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg := sqlledger.Config{Path: filepath.Join(dir, "ledger.db")}
	for _, worker := range []string{"first", "second"} {
		l, err := sqlledger.Open(ctx, cfg)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer l.Close()
		claim, err := l.Claim(ctx, delivery)
		if err != nil {
			fmt.Println(err) // unknown: stop as if lost, claim again later
			return
		}
		switch c := claim.(type) {
		case fencepost.Acquired:
			fmt.Println(worker, "runs it, attempt", c.Attempt)
		case fencepost.Busy:
			fmt.Println(worker, "waits, at most", c.After.Round(time.Minute))
		default: // Publish, Completed, Full, Expired, BindingConflict
			fmt.Printf("%s: %T\n", worker, c)
		}
	}
	// Output:
	// first runs it, attempt 1
	// second waits, at most 1m0s
}

// accept stands for authentication: package webhook has the real verifiers.
func accept(body string) (fencepost.AcceptedDelivery, error) {
	var none fencepost.Headers
	check := fencepost.NewIngressCheck("docs", none, []byte(body), time.Now())
	return fencepost.Receive(check, trusting{}, fencepost.RouteRule{
		Route: "docs", TrustSet: "example", SignedTime: fencepost.SignedTimeNone,
		Window: fencepost.DefaultReplayWindow,
	})
}

type trusting struct{}

func (trusting) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	return fencepost.Evidence{Anchor: "key", TrustSet: "example", Replay: fencepost.ReplayBody{}}, nil
}
