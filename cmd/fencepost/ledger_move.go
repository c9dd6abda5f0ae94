package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

func (m Main) ledgerMigrateCommand() *cobra.Command {
	var file, from, to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate --from PLACE --to PLACE",
		Short: "Move the ledger from files to a database, or back",
		Long: `Move the ledger from files to a database, or back.

No controller may run. All rows are copied and read back, and the digests of
both ends compared; until then the ledger goes on where it was, and nothing is
lost by an interruption: say it again. With the last step the old place is
marked as moved, and is refused for good.

A PLACE is ` + placeUsage + `: files
are those of the data directory, database is the one in the configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadWithoutSecrets(file)
			if err != nil {
				return err
			}
			if from == "" || to == "" {
				return usagef("ledger migrate needs --from and --to, each %s", placeUsage)
			}
			src, err := m.place(c, from)
			if err != nil {
				return err
			}
			dst, err := m.place(c, to)
			if err != nil {
				return err
			}
			return m.ledgerMigrate(cmd.Context(), src, dst, asJSON)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().StringVar(&from, "from", "", "where the ledger is")
	cmd.Flags().StringVar(&to, "to", "", "where it goes")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) ledgerMigrate(ctx context.Context, from, to place, asJSON bool) (err error) {
	src, closeSource, err := from.hold(ctx)
	if err != nil {
		return fmt.Errorf("the ledger at %s: %w", from.text, err)
	}
	defer func() { err = errors.Join(err, closeSource()) }()
	dst, closeTarget, err := to.receive(ctx)
	if err != nil {
		return fmt.Errorf("the place %s: %w", to.text, err)
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	move, err := ledger.Migrate(ctx, src, dst)
	if err != nil {
		return fmt.Errorf("move from %s to %s: %w", from.text, to.text, err)
	}
	if asJSON {
		return m.printMove(move, nil)
	}
	_, err = fmt.Fprintf(m.Out, "moved %s\nnow configure %s, and start `fencepost serve`\n", move, to.text)
	return err
}

func (m Main) printMove(move ledger.Move, more map[string]any) error {
	all := map[string]any{
		"rows": move.Rows, "digest": hex.EncodeToString(move.Digest[:]),
		"from": hex.EncodeToString(move.From[:]), "to": hex.EncodeToString(move.To[:]),
	}
	for k, v := range more {
		all[k] = v
	}
	return printJSON(m.Out, all)
}

func (m Main) ledgerBackupCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the ledger into a new directory, for safe keeping",
		Long: `Copy the ledger into a new directory, for safe keeping. A controller may be
running meanwhile: each row is as it was at some moment of the copy. The copy
is read back and compared before it has its name.`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, p, err := m.configuredPlace(file)
			if err != nil {
				return err
			}
			return m.ledgerBackup(cmd.Context(), p, args[0], asJSON)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) ledgerBackup(ctx context.Context, from place, dir string, asJSON bool) (err error) {
	to := from.file
	to.Dir = dir
	dst, err := fileledger.ReceiveCopy(ctx, to)
	if err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	var move ledger.Move
	err = from.keep(ctx, func(l keeper) error {
		move, err = copyLive(ctx, l, dst)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("copy to %s: %w", dir, err), dst.Discard())
	}
	if err := dst.Arrive(ctx, move); err != nil {
		return err
	}
	if asJSON {
		return m.printMove(move, map[string]any{"dir": dir})
	}
	_, err = fmt.Fprintf(m.Out, "copied %s\n", move)
	return err
}

// copyLive copies a ledger that goes on meanwhile. Fences that it hands out
// until the last row is read must be below those of the copy: so that one is
// ahead from the beginning. A row above is refused when the copy is read back.
func copyLive(ctx context.Context, l keeper, dst *fileledger.Incoming) (ledger.Move, error) {
	rows, head := l.Snapshot(ctx)
	h, err := head()
	if err != nil {
		return ledger.Move{}, err
	}
	h.Fence += ledger.CopyFences
	return ledger.Copy(ctx, h, func(yield func(ledger.Row, error) bool) {
		for r, err := range rows {
			if !yield(r, err) {
				return
			}
		}
		// Rows that were cleaned up before they were read are not new, either.
		after, err := head()
		if err != nil {
			yield(ledger.Row{}, err)
			return
		}
		dst.CloseThrough(after.Closed)
	}, dst)
}

func (m Main) ledgerRestoreCommand() *cobra.Command {
	var file, to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "restore DIR",
		Short: "Bring the ledger back from a copy",
		Long: `Bring the ledger back from a copy, or from the directory of another ledger that
nobody has open. What was there before must be gone: move it away, do not
delete it.

A copy is old: what came after it is not known, and would be taken for new.
Fences go on where none can have been handed out before. docs/operations.md
says what that means.`,
		Args: takes("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.LoadWithoutSecrets(file)
			if err != nil {
				return err
			}
			p, err := m.place(c, cmp.Or(to, configured(c)))
			if err != nil {
				return err
			}
			return m.ledgerRestore(cmd.Context(), args[0], p, asJSON)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().StringVar(&to, "to", "", "where it goes, if not where the configuration has it: "+placeUsage)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) ledgerRestore(ctx context.Context, dir string, to place, asJSON bool) (err error) {
	src, err := fileledger.Hold(ctx, dir)
	if err != nil {
		return fmt.Errorf("the copy in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	left, err := src.Moved(ctx)
	if err != nil {
		return err
	}
	if !left.IsZero() {
		return fmt.Errorf("the ledger in %s: %w: it goes on as ledger %s", dir, ledger.ErrMoved, hex.EncodeToString(left.To[:]))
	}
	dst, closeTarget, err := to.receive(ctx)
	if err != nil {
		return fmt.Errorf("the place %s: %w", to.text, err)
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	h, err := src.Head(ctx)
	if err != nil {
		return err
	}
	h.Fence = ledger.Ahead(h.Fence, m.Now())
	move, err := ledger.Copy(ctx, h, src.Rows(ctx), dst)
	if err == nil {
		err = dst.Arrive(ctx, move)
	}
	if err != nil {
		return fmt.Errorf("restore from %s to %s: %w", dir, to.text, err)
	}
	if asJSON {
		return m.printMove(move, map[string]any{"fences_above": h.Fence})
	}
	_, err = fmt.Fprintf(m.Out, "restored %s\nfences go on above %d\n", move, h.Fence)
	return err
}
