package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

func (m Main) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Look at the ledger: what it holds, whether every byte verifies",
	}
	cmd.AddCommand(
		m.ledgerSubcommand("stat", "Count what the ledger holds", m.ledgerStat),
		m.ledgerSubcommand("verify", "Read every byte that counts; change nothing", m.ledgerVerify),
		m.ledgerSubcommand("compact", "Write snapshots and remove the logs before them", m.ledgerCompact),
	)
	return cmd
}

type ledgerAction func(ctx context.Context, c fileledger.Config, asJSON bool) error

func (m Main) ledgerSubcommand(use, short string, do ledgerAction) *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ". A controller may be running meanwhile.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.LoadWithoutSecrets(file)
			if err != nil {
				return err
			}
			if _, err := os.Stat(app.Ledger(c.DataDir)); errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("no ledger below %s; `fencepost serve` makes one", c.DataDir)
			}
			return do(cmd.Context(), app.LedgerConfig(c, m.Now), asJSON)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// withLedger opens the ledger beside whoever else has it open.
func withLedger(ctx context.Context, c fileledger.Config, do func(*fileledger.Ledger) error) error {
	// Upkeep is the controller's.
	c.Maintain = -1
	l, err := fileledger.Open(ctx, c)
	if err != nil {
		return fmt.Errorf("open ledger: %w", err)
	}
	return errors.Join(do(l), l.Close())
}

func (m Main) ledgerStat(ctx context.Context, c fileledger.Config, asJSON bool) error {
	return withLedger(ctx, c, func(l *fileledger.Ledger) error {
		st, err := l.Stat(ctx)
		if err != nil {
			return fmt.Errorf("%w; `fencepost ledger verify` says more", err)
		}
		if asJSON {
			return printJSON(m.Out, map[string]any{
				"leased": st.Leased, "staged": st.Staged, "done": st.Done, "rows": st.Rows(), "capacity": c.Capacity,
				"bytes": st.Bytes, "segments": st.Segments, "lsn": st.LSN, "full_shards": st.Full,
			})
		}
		return printTable(m.Out, []string{"LEASED", "STAGED", "DONE", "ROWS", "CAPACITY", "BYTES", "SEGMENTS", "FULL SHARDS"}, [][]string{{
			strconv.Itoa(st.Leased), strconv.Itoa(st.Staged), strconv.Itoa(st.Done), strconv.Itoa(st.Rows()), strconv.Itoa(c.Capacity),
			strconv.FormatInt(st.Bytes, 10), strconv.Itoa(st.Segments), strconv.Itoa(st.Full),
		}})
	})
}

// A verifiedShard is what verify says of one shard.
type verifiedShard struct {
	Shard    int    `json:"shard"`
	Rows     int    `json:"rows"`
	Segments int    `json:"segments"`
	Torn     string `json:"torn,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (m Main) ledgerVerify(ctx context.Context, c fileledger.Config, asJSON bool) error {
	r, err := fileledger.Verify(ctx, c)
	if err != nil {
		return fmt.Errorf("verify ledger: %w", err)
	}
	shards := make([]verifiedShard, len(r.Shards))
	rows := make([][]string, len(r.Shards))
	for i, s := range r.Shards {
		v := verifiedShard{Shard: i, Rows: s.Leased + s.Staged + s.Done, Segments: s.Segments, Torn: s.Torn}
		if s.Err != nil {
			v.Error = oneLine(s.Err)
		}
		shards[i] = v
		rows[i] = []string{strconv.Itoa(i), strconv.Itoa(v.Rows), strconv.Itoa(v.Segments), dash(v.Torn), dash(v.Error)}
	}
	if asJSON {
		err = printJSON(m.Out, map[string]any{
			"ok": r.Err() == nil, "uuid": hex.EncodeToString(r.UUID[:]), "poisoned": r.Poisoned != nil, "shards": shards,
		})
	} else {
		err = printTable(m.Out, []string{"SHARD", "ROWS", "SEGMENTS", "TORN TAIL", "ERROR"}, rows)
	}
	return errors.Join(err, r.Err())
}

func (m Main) ledgerCompact(ctx context.Context, c fileledger.Config, asJSON bool) error {
	return withLedger(ctx, c, func(l *fileledger.Ledger) error {
		before, err := l.Stat(ctx)
		if err != nil {
			return err
		}
		if err := l.Compact(ctx); err != nil {
			return err
		}
		after, err := l.Stat(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(m.Out, map[string]any{"segments_before": before.Segments, "segments_after": after.Segments, "rows": after.Rows()})
		}
		_, err = fmt.Fprintf(m.Out, "%d rows, %d log segments (%d before)\n", after.Rows(), after.Segments, before.Segments)
		return err
	})
}
