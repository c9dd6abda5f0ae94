package sqlledger

import (
	"context"

	"github.com/fencepost/fencepost"
)

// checkDurable refuses a server whose answers are not durable. Its errors are
// [SettingError]s.
func (l *Ledger) checkDurable(ctx context.Context) error {
	const op = "ledger.open"
	bad, err := l.db.Undurable(ctx, op)
	if err != nil {
		return err
	}
	for _, s := range bad {
		if s.Server && l.cfg.Volatile {
			continue
		}
		return &fencepost.Error{
			Op: op, Reason: fencepost.ReasonUnavailable, Err: &SettingError{Setting: s.Name, Value: s.Value, Mend: s.Mend},
		}
	}
	return nil
}
