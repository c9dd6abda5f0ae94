package sqlledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// lateDelivery is what both workers are after.
func lateDelivery(tb testing.TB) fencepost.AcceptedDelivery {
	return ledgertest.Deliver(tb, ledgertest.Spec{ID: "late", Body: "body"})
}

// workLate is the first worker: it claims, says so, and asks for everything
// each time that it is told to.
func workLate(url string) int {
	ctx := context.Background()
	complain := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	l, err := Open(ctx, Config{URL: url, Lease: MinLease, Volatile: true, Connections: 4})
	if err != nil {
		return complain(err)
	}
	defer l.Close()
	d := lateDelivery(&testing.T{})
	c, err := l.Claim(ctx, d)
	a, ok := c.(fencepost.Acquired)
	if err != nil || !ok {
		return complain(fmt.Errorf("claim: %T, %w", c, err))
	}
	fmt.Printf("acquires it under fence %v, attempt %d\n", a.Lease.Fence(), a.Attempt)
	p, err := fencepost.NewPublication([]byte("first"))
	if err != nil {
		return complain(err)
	}
	for told := bufio.NewScanner(os.Stdin); told.Scan(); {
		r, err1 := l.Renew(ctx, d, a.Lease)
		o, err2 := l.Stage(ctx, d, a.Lease, p)
		s, err3 := fencepost.RestoreStaged(d.Key(), a.Lease.Evaluation(), p)
		e, err4 := l.Complete(ctx, d, s)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return complain(err)
		}
		fmt.Printf("renew %s, stage %s, complete %s\n", short(r), short(o), short(e))
	}
	return 0
}

// short is the name of an answer.
func short(answer any) string {
	name := fmt.Sprintf("%T", answer)
	return name[len("fencepost."):]
}
