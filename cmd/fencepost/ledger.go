package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

func (m Main) ledgerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Look at the ledger, move it, keep copies of it",
	}
	cmd.AddCommand(
		m.ledgerSubcommand("stat", "Count what the ledger holds, how fast it grows, and when it is full", m.ledgerStat),
		m.ledgerSubcommand("verify", "Read every byte that counts; change nothing", m.ledgerVerify),
		m.ledgerSubcommand("compact", "Write snapshots and remove the logs before them", m.ledgerCompact),
		m.ledgerMigrateCommand(), m.ledgerBackupCommand(), m.ledgerRestoreCommand(), m.ledgerRetireCommand(),
	)
	return cmd
}

type ledgerAction func(ctx context.Context, p place, asJSON bool) error

func (m Main) ledgerSubcommand(use, short string, do ledgerAction) *cobra.Command {
	var file, at string
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
			p, err := m.place(c, cmp.Or(at, configured(c)))
			if err != nil {
				return err
			}
			return do(cmd.Context(), p, asJSON)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().StringVar(&at, "at", "", "where the ledger is, if not where the configuration has it: "+placeUsage)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// A statView is what stat says, as --json prints it. What a kind of store does
// not have is null.
type statView struct {
	Store        string     `json:"store"`
	Leased       int        `json:"leased"`
	Staged       int        `json:"staged"`
	Done         int        `json:"done"`
	Rows         int        `json:"rows"`
	Capacity     int        `json:"capacity"`
	UsedPercent  float64    `json:"used_percent"`
	Oldest       *time.Time `json:"oldest"`
	OldestLeased *time.Time `json:"oldest_leased"`
	OldestStaged *time.Time `json:"oldest_staged"`
	PerDay       float64    `json:"per_day"`
	FullInDays   *float64   `json:"full_in_days"`
	NearFull     bool       `json:"near_full"`
	FullShards   int        `json:"full_shards"`
	Shards       int        `json:"shards"`
	Bytes        *int64     `json:"bytes"`
	Segments     *int       `json:"segments"`
	LSN          uint64     `json:"lsn"`
}

func (m Main) ledgerStat(ctx context.Context, p place, asJSON bool) error {
	st := statView{Store: p.kind}
	err := p.with(ctx, func(f *fileledger.Ledger, s *sqlledger.Ledger) error {
		if f != nil {
			c, err := f.Stat(ctx)
			if err != nil {
				return err
			}
			st.Leased, st.Staged, st.Done, st.Capacity = c.Leased, c.Staged, c.Done, c.Capacity
			st.FullShards, st.Shards, st.Bytes, st.Segments, st.LSN = c.Full, c.Shards, &c.Bytes, &c.Segments, c.LSN
			return m.ages(ctx, f, &st, p.fullWithin)
		}
		c, err := s.Stat(ctx)
		if err != nil {
			return err
		}
		st.Leased, st.Staged, st.Done, st.Capacity = c.Leased, c.Staged, c.Done, c.Capacity
		st.FullShards, st.Shards, st.LSN = c.Full, c.Parts, c.Fence
		return m.ages(ctx, s, &st, p.fullWithin)
	})
	if err != nil {
		return fmt.Errorf("%w; `fencepost ledger verify` says more", err)
	}
	if asJSON {
		return printJSON(m.Out, st)
	}
	return m.printStat(st)
}

// ages fills in what only all rows say.
func (m Main) ages(ctx context.Context, l keeper, st *statView, fullWithin time.Duration) error {
	now := m.Now()
	a, err := ledger.CountAges(l.Rows(ctx), now)
	if err != nil {
		return err
	}
	st.Rows = st.Leased + st.Staged + st.Done
	st.UsedPercent = float64(st.Rows) * 100 / float64(st.Capacity)
	st.Oldest, st.OldestLeased, st.OldestStaged = timeOrNull(a.Oldest), timeOrNull(a.OldestLeased), timeOrNull(a.OldestStaged)
	st.PerDay = a.PerDay(now)
	if left, ok := ledger.FullIn(st.Rows, st.Capacity, st.PerDay); ok {
		days := left.Hours() / 24
		st.FullInDays = &days
	}
	st.NearFull = st.FullShards > 0 || ledger.NearFull(st.Rows, st.Capacity, st.PerDay, fullWithin)
	return nil
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (m Main) printStat(st statView) error {
	oldest, full, bytes, segments := "-", "-", "-", "-"
	if st.Oldest != nil {
		oldest = st.Oldest.Format(time.DateOnly)
	}
	if st.FullInDays != nil {
		full = fmt.Sprintf("%.0f days", *st.FullInDays)
	}
	if st.Bytes != nil {
		bytes, segments = strconv.FormatInt(*st.Bytes, 10), strconv.Itoa(*st.Segments)
	}
	err := printTable(m.Out, []string{"LEASED", "STAGED", "DONE", "ROWS", "CAPACITY", "USED", "OLDEST", "PER DAY", "FULL IN", "BYTES", "SEGMENTS", "FULL SHARDS"}, [][]string{{
		strconv.Itoa(st.Leased), strconv.Itoa(st.Staged), strconv.Itoa(st.Done), strconv.Itoa(st.Rows), strconv.Itoa(st.Capacity),
		fmt.Sprintf("%.1f%%", st.UsedPercent), oldest, fmt.Sprintf("%.1f", st.PerDay), full, bytes, segments,
		fmt.Sprintf("%d of %d", st.FullShards, st.Shards),
	}})
	if err == nil && st.NearFull {
		_, err = fmt.Fprintln(m.Out, "near full: move it to one with a larger ledger.capacity, or retire what can't authenticate any more (docs/operations.md)")
	}
	return err
}

// A verifiedShard is what verify says of one shard, or of one part of a
// database.
type verifiedShard struct {
	Shard    int    `json:"shard"`
	Rows     int    `json:"rows"`
	Segments int    `json:"segments"`
	Frames   int64  `json:"frames"`
	Bytes    int64  `json:"bytes"`
	Torn     string `json:"torn,omitempty"`
	Error    string `json:"error,omitempty"`
}

func (m Main) ledgerVerify(ctx context.Context, p place, asJSON bool) error {
	if err := p.exists(); err != nil {
		return err
	}
	if p.kind != "files" {
		return m.verifyDatabase(ctx, p, asJSON)
	}
	r, err := fileledger.Verify(ctx, p.file)
	if err != nil {
		return fmt.Errorf("verify ledger: %w", err)
	}
	shards := make([]verifiedShard, len(r.Shards))
	sum := verifiedShard{}
	for i, s := range r.Shards {
		v := verifiedShard{
			Shard: i, Rows: s.Leased + s.Staged + s.Done, Segments: s.Segments, Frames: s.Frames, Bytes: s.Bytes, Torn: s.Torn,
		}
		if s.Err != nil {
			v.Error = oneLine(s.Err)
		}
		shards[i] = v
		sum.Rows, sum.Segments, sum.Frames, sum.Bytes = sum.Rows+v.Rows, sum.Segments+v.Segments, sum.Frames+v.Frames, sum.Bytes+v.Bytes
	}
	shut := ""
	if r.Shut != nil {
		shut = oneLine(r.Shut)
	}
	checked := fmt.Sprintf("checked: superblock, locks and %d shards: %d frames in %d segments behind the snapshots, %d rows, %d bytes",
		len(shards), sum.Frames, sum.Segments, sum.Rows, sum.Bytes)
	if asJSON {
		err = printJSON(m.Out, map[string]any{
			"ok": r.Err() == nil, "uuid": hex.EncodeToString(r.UUID[:]), "poisoned": r.Poisoned != nil, "shut": shut, "shards": shards,
			"checked": checked,
		})
	} else {
		err = m.printVerified(shards, checked, shut)
	}
	return errors.Join(err, r.Err())
}

func (m Main) printVerified(shards []verifiedShard, lines ...string) error {
	rows := make([][]string, len(shards))
	for i, v := range shards {
		rows[i] = []string{strconv.Itoa(v.Shard), strconv.Itoa(v.Rows), strconv.Itoa(v.Segments), dash(v.Torn), dash(v.Error)}
	}
	err := printTable(m.Out, []string{"SHARD", "ROWS", "SEGMENTS", "TORN TAIL", "ERROR"}, rows)
	for _, line := range lines {
		if err == nil && line != "" {
			_, err = fmt.Fprintln(m.Out, line)
		}
	}
	return err
}

func (m Main) verifyDatabase(ctx context.Context, p place, asJSON bool) error {
	db, err := p.database(ctx)
	if err != nil {
		return err
	}
	r, err := sqlledger.VerifyOn(ctx, db)
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("verify ledger: %w", err)
	}
	parts := make([]verifiedShard, len(r.Parts))
	rows := 0
	for i, s := range r.Parts {
		v := verifiedShard{Shard: s.Number, Rows: s.Leased + s.Staged + s.Done}
		if s.Err != nil {
			v.Error = oneLine(s.Err)
		}
		parts[i] = v
		rows += v.Rows
	}
	checked := fmt.Sprintf("checked: root, %d parts with their counters, and %d rows against their columns, places and fences", len(parts), rows)
	digest := ""
	if r.Err() == nil {
		digest = "digest of all rows: " + hex.EncodeToString(r.Digest[:])
	}
	if asJSON {
		err = printJSON(m.Out, map[string]any{
			"ok": r.Err() == nil, "uuid": hex.EncodeToString(r.Head.UUID[:]), "shards": parts, "checked": checked,
			"digest": hex.EncodeToString(r.Digest[:]),
		})
	} else {
		err = m.printVerified(parts, checked, digest)
	}
	return errors.Join(err, r.Err())
}

func (m Main) ledgerCompact(ctx context.Context, p place, asJSON bool) error {
	return p.with(ctx, func(f *fileledger.Ledger, s *sqlledger.Ledger) error {
		if f == nil {
			return m.compactDatabase(ctx, s, asJSON)
		}
		before, err := f.Stat(ctx)
		if err != nil {
			return err
		}
		if err := f.Compact(ctx); err != nil {
			return err
		}
		after, err := f.Stat(ctx)
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

// compactDatabase removes the rows that may go; the room is the database's to
// use again.
func (m Main) compactDatabase(ctx context.Context, l *sqlledger.Ledger, asJSON bool) error {
	before, err := l.Stat(ctx)
	if err != nil {
		return err
	}
	if err := l.CleanUp(ctx); err != nil {
		return err
	}
	after, err := l.Stat(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(m.Out, map[string]any{"rows_before": before.Rows(), "rows": after.Rows()})
	}
	_, err = fmt.Fprintf(m.Out, "%d rows (%d before); a database has no logs of ours to compact, and uses their room again by itself\n", after.Rows(), before.Rows())
	return err
}
