package sqlledger

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
)

// A durableSetting is one that a server must have for its answers to be kept.
type durableSetting struct {
	name string
	good []string
	mend string
	// server: it is the whole server's, and a trial may do without it.
	server bool
}

var durableSettings = []durableSetting{
	{"fsync", []string{"on"},
		"what it has stored is lost or damaged when its machine stops; set fsync = on in postgresql.conf and reload", true},
	{"full_page_writes", []string{"on"},
		"a page that is torn when its machine stops can't be repaired; set full_page_writes = on in postgresql.conf and reload", true},
	{"synchronous_commit", []string{"on", "remote_apply"},
		"it answers before a commit is on stable storage, here and on its synchronous standbys; leave synchronous_commit out of the connection string", false},
}

// checkDurable refuses a server whose answers are not durable. Its errors are
// [SettingError]s.
func (l *Ledger) checkDurable(ctx context.Context) error {
	if l.db.Kind() != store.Postgres {
		return nil
	}
	return l.db.Read(ctx, "ledger.open", func(ctx context.Context, tx *store.Tx) error {
		for _, s := range durableSettings {
			if err := l.checkSetting(ctx, tx, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *Ledger) checkSetting(ctx context.Context, tx *store.Tx, s durableSetting) error {
	var value string
	if _, err := tx.One(ctx, "select current_setting(?)", []any{s.name}, &value); err != nil {
		return err
	}
	if slices.Contains(s.good, value) || s.server && l.cfg.Volatile {
		return nil
	}
	return &fencepost.Error{
		Op: "ledger.open", Reason: fencepost.ReasonUnavailable, Err: &SettingError{Setting: s.name, Value: value, Mend: s.mend},
	}
}
