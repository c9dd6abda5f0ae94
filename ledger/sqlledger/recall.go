package sqlledger

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// recall answers an operation of which it is not known whether it was stored,
// if the row bears its token. That it doesn't proves nothing: the server may
// not have done it yet, or somebody may have changed the row after it.
func (l *Ledger) recall(ctx context.Context, req ledger.Request, own change) (ledger.Answer, bool) {
	s, err := l.see(ctx, req.Op(), req.On().Key())
	if err != nil || s.token != own.token {
		return ledger.Answer{}, false
	}
	answer, err := recalled(req, s)
	return answer, err == nil
}

// recalled is the answer to an operation that left the row that is seen.
func recalled(req ledger.Request, s sight) (ledger.Answer, error) {
	r := s.row
	switch req.(type) {
	case ledger.ClaimRequest:
		lease, err := s.lease()
		if err != nil {
			return ledger.Answer{}, err
		}
		if r.State == ledger.Staged {
			staged, err := r.Staged()
			return ledger.Answer{Claim: fencepost.Publish{Staged: staged, Lease: lease}}, err
		}
		return ledger.Answer{Claim: fencepost.Acquired{Lease: lease, Reclaimed: r.Attempts > 1, Attempt: int(r.Attempts)}}, nil
	case ledger.RenewRequest:
		lease, err := s.lease()
		return ledger.Answer{Renewal: fencepost.Renewed{Lease: lease}}, err
	case ledger.StageRequest:
		staged, err := r.Staged()
		if err != nil {
			return ledger.Answer{}, err
		}
		lease, err := s.lease()
		return ledger.Answer{Stage: fencepost.Staged{Staged: staged, Lease: lease}}, err
	case ledger.CompleteRequest:
		return ledger.Answer{Completion: fencepost.Completed{}}, nil
	case ledger.RepeatRequest:
		return ledger.Answer{Repeat: ledger.RepeatKnown}, nil
	}
	return ledger.Answer{}, fmt.Errorf("recall a request of type %T", req)
}

// lease is what is left of the row's.
func (s sight) lease() (fencepost.Lease, error) {
	term := s.row.Execution
	if s.row.State == ledger.Staged {
		term = s.row.Publishing
	}
	left := time.Duration(-1)
	if term.Deadline.Boot == s.now.Boot {
		left = term.Deadline.At - s.now.At
	}
	return fencepost.GrantLease(s.row.Evaluation, s.row.Fence, left, term.Until)
}
