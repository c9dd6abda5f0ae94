package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
)

func (m Main) runsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "runs", Short: "What each run of a source did"}
	cmd.AddCommand(m.runsListCommand(), m.runsShowCommand())
	return cmd
}

func (m Main) runsListCommand() *cobra.Command {
	var (
		file, key, status string
		asJSON            bool
		limit             int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var filter sourcedb.RunFilter
			if status != "" {
				s, err := source.ParseStatus(status)
				if err != nil {
					return usage(fmt.Errorf("--status %q: want queued, running, complete, unchanged, coalesced, partial or failed", status))
				}
				filter.Status = s
			}
			return m.withState(cmd.Context(), file, func(_ *config.Config, db *sourcedb.Store) error {
				return m.listRuns(cmd.Context(), db, filter, fencepost.RouteName(key), limit, asJSON)
			})
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&key, "source", "", "only those of this source")
	cmd.Flags().StringVar(&status, "status", "", "only those with this status, such as failed")
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many")
	return cmd
}

func (m Main) runsShowCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show one run log",
		Args:  takes("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := fencepost.ParseRunID(args[0])
			if err != nil {
				return usage(err)
			}
			return m.withState(cmd.Context(), file, func(_ *config.Config, db *sourcedb.Store) error {
				return m.showRun(cmd.Context(), db, id, asJSON)
			})
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// A runView is a run log as --json prints it.
type runView struct {
	Run       string     `json:"run"`
	Source    string     `json:"source"`
	Revision  string     `json:"revision"`
	Trigger   string     `json:"trigger"`
	TriggerID string     `json:"trigger_id"`
	Status    string     `json:"status"`
	Reason    string     `json:"reason,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	Commit    string     `json:"commit,omitempty"`
	Head      string     `json:"head,omitempty"`
	Tree      string     `json:"tree,omitempty"`
	Recovers  string     `json:"recovers,omitempty"`
	Attempts  int        `json:"attempts"`
	Queued    *time.Time `json:"queued,omitempty"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	Started   *time.Time `json:"started,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Files     int64      `json:"files"`
	Added     int64      `json:"added"`
	Changed   int64      `json:"changed"`
	Removed   int64      `json:"removed"`
	Bytes     int64      `json:"bytes"`
	WireBytes int64      `json:"wire_bytes"`
	// Refused are entries that the sink refused, by their number in the order
	// of paths.
	Refused []refusalView `json:"refused,omitempty"`
}

type refusalView struct {
	Entry  int64  `json:"entry"`
	Reason string `json:"reason"`
}

func viewRun(r source.RunRow, key fencepost.RouteName) runView {
	v := runView{
		Run: r.ID.String(), Source: string(key), Revision: r.Revision.String(), Trigger: r.Trigger.Kind.String(), TriggerID: r.Trigger.ID,
		Status: r.Status.String(), Reason: string(r.Reason), Detail: r.Detail, Attempts: r.Attempts,
		Queued: known(r.QueuedAt), Started: known(r.StartedAt), Ended: known(r.EndedAt),
		Files: r.Counts.Files, Added: r.Counts.Added, Changed: r.Counts.Changed, Removed: r.Counts.Removed,
		Bytes: r.Counts.Bytes, WireBytes: r.Counts.Wire,
	}
	if r.Status == source.Queued {
		v.NotBefore = known(r.NotBefore)
	}
	if !r.Commit.IsZero() {
		v.Commit = r.Commit.String()
	}
	if !r.Head.IsZero() {
		v.Head = r.Head.String()
	}
	if !r.Tree.IsZero() {
		v.Tree = r.Tree.String()
	}
	if !r.Recovers.IsZero() {
		v.Recovers = r.Recovers.String()
	}
	for _, f := range r.Refused {
		v.Refused = append(v.Refused, refusalView{f.Entry, string(f.Reason)})
	}
	return v
}

// keysOf names the sources of runs.
func keysOf(ctx context.Context, db *sourcedb.Store) (map[fencepost.SourceID]fencepost.RouteName, error) {
	seen, err := db.Sources(ctx, "")
	if err != nil {
		return nil, err
	}
	keys := make(map[fencepost.SourceID]fencepost.RouteName, len(seen.Sources))
	for _, s := range seen.Sources {
		keys[s.ID] = s.Key
	}
	return keys, nil
}

func (m Main) listRuns(ctx context.Context, db *sourcedb.Store, f sourcedb.RunFilter, key fencepost.RouteName, limit int, asJSON bool) error {
	if limit < 1 || limit > sourcedb.MaxListed {
		return usage(fmt.Errorf("--limit must be 1 to %d", sourcedb.MaxListed))
	}
	keys, err := keysOf(ctx, db)
	if err != nil {
		return err
	}
	if key != "" {
		for id, k := range keys {
			if k == key {
				f.Source = id
			}
		}
		if f.Source.IsZero() {
			return fmt.Errorf("%w: no source %q; `fencepost sources list` names those that are known", errNothing, key)
		}
	}
	runs, err := db.Runs(ctx, f, limit)
	if err != nil {
		return err
	}
	if !asJSON {
		return m.printRuns(runs, keys)
	}
	for _, r := range runs {
		if err := printJSON(m.Out, viewRun(r, keys[r.Source])); err != nil {
			return err
		}
	}
	return nil
}

func (m Main) printRuns(runs []source.RunRow, keys map[fencepost.SourceID]fencepost.RouteName) error {
	rows := make([][]string, len(runs))
	for i, r := range runs {
		duration := "-"
		if !r.StartedAt.IsZero() && !r.EndedAt.IsZero() {
			duration = took(r.EndedAt.Sub(r.StartedAt))
		}
		rows[i] = []string{
			r.QueuedAt.UTC().Format(time.RFC3339), r.ID.String(), string(keys[r.Source]), r.Trigger.Kind.String(), r.Status.String(),
			dash(string(r.Reason)), dash(r.Detail), dash(app.Short(r.Head)), strconv.Itoa(r.Attempts), duration,
			strconv.FormatInt(r.Counts.Files, 10), countText(r.Counts),
		}
	}
	return printTable(m.Out, []string{
		"QUEUED", "RUN", "SOURCE", "BY", "STATUS", "REASON", "DETAIL", "HEAD", "ATTEMPTS", "TOOK", "FILES", "CHANGES",
	}, rows)
}

func (m Main) showRun(ctx context.Context, db *sourcedb.Store, id fencepost.RunID, asJSON bool) error {
	r, err := db.Run(ctx, id)
	if errors.Is(err, sourcedb.ErrUnknownRun) {
		return fmt.Errorf("%w; `fencepost runs list` names those that are known", err)
	}
	if err != nil {
		return err
	}
	keys, err := keysOf(ctx, db)
	if err != nil {
		return err
	}
	v := viewRun(r, keys[r.Source])
	if asJSON {
		return printJSON(m.Out, v)
	}
	stamp := func(t *time.Time) string {
		if t == nil {
			return "-"
		}
		return t.Format(time.RFC3339Nano)
	}
	for _, l := range [][2]string{
		{"run", v.Run}, {"source", v.Source}, {"revision", v.Revision}, {"asked for by", v.Trigger + "  " + v.TriggerID},
		{"recovers", dash(v.Recovers)}, {"status", v.Status}, {"reason", dash(v.Reason)}, {"detail", dash(v.Detail)},
		{"commit asked", dash(v.Commit)}, {"head proven", dash(v.Head)}, {"tree", dash(v.Tree)},
		{"attempts", strconv.Itoa(v.Attempts)}, {"queued", stamp(v.Queued)}, {"started", stamp(v.Started)}, {"ended", stamp(v.Ended)},
		{"files", strconv.FormatInt(v.Files, 10)}, {"changes", countText(r.Counts)},
		{"bytes", strconv.FormatInt(v.Bytes, 10)}, {"received", strconv.FormatInt(v.WireBytes, 10)},
	} {
		fmt.Fprintf(m.Out, "%-13s %s\n", l[0], l[1])
	}
	for _, f := range v.Refused {
		fmt.Fprintf(m.Out, "%-13s entry %d: %s\n", "refused", f.Entry, f.Reason)
	}
	return nil
}
