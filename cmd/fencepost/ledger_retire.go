package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/ledger"
)

func (m Main) ledgerRetireCommand() *cobra.Command {
	var file string
	var confirm int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "retire [TRUST-SET]",
		Short: "Forget the rows of a trust set that is no more",
		Long: `Forget the rows of a trust set whose last anchor was removed from the
configuration, so that nothing it signed can authenticate again. Without a
name: count the rows of each set. Without --confirm: say what would be done.

Make sure first that no secret of the set is in use under another name, in any
configuration with this ledger: a delivery that such a secret signed would be
evaluated and published once more. The name can't be used again.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, err := m.configuredPlace(file)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return m.listTrust(cmd.Context(), c, p, asJSON)
			}
			given := -1
			if cmd.Flags().Changed("confirm") {
				given = confirm
			}
			return m.retire(cmd.Context(), c, p, fencepost.TrustSetName(args[0]), given, asJSON)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().IntVar(&confirm, "confirm", 0, "do it, if this is the number of rows that it would forget")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// A trustView is a trust set's rows as --json prints them.
type trustView struct {
	TrustSet string `json:"trust_set"`
	Mark     string `json:"mark"`
	Done     int    `json:"done"`
	Open     int    `json:"open"`
	Other    int    `json:"bounded_or_unmarked"`
	Retired  bool   `json:"retired"`
}

func (m Main) listTrust(ctx context.Context, c *config.Config, p place, asJSON bool) error {
	var t ledger.Trust
	err := p.keep(ctx, func(l keeper) (err error) {
		t, err = l.Trust(ctx)
		return err
	})
	if err != nil {
		return err
	}
	names := map[ledger.TrustMark]string{}
	for _, set := range c.Trust {
		names[ledger.MarkOf(set.Name)] = string(set.Name)
	}
	views := []trustView{}
	for _, mark := range slices.SortedFunc(maps.Keys(t), func(a, b ledger.TrustMark) int { return bytes.Compare(a[:], b[:]) }) {
		r := t[mark]
		views = append(views, trustView{
			TrustSet: names[mark], Mark: mark.String(), Done: r.Retirable, Open: r.Held, Other: r.Other, Retired: r.Retired,
		})
	}
	if asJSON {
		return printJSON(m.Out, views)
	}
	rows := make([][]string, len(views))
	for i, v := range views {
		retired := "-"
		if v.Retired {
			retired = "retired"
		}
		rows[i] = []string{dash(v.TrustSet), v.Mark, strconv.Itoa(v.Done), strconv.Itoa(v.Open), strconv.Itoa(v.Other), retired}
	}
	return printTable(m.Out, []string{"TRUST SET", "MARK", "DONE", "OPEN", "BOUNDED OR UNMARKED", "RETIRED"}, rows)
}

// retire forgets the rows of a set, if confirm is how many there are.
func (m Main) retire(ctx context.Context, c *config.Config, p place, set fencepost.TrustSetName, confirm int, asJSON bool) error {
	mark := ledger.MarkOf(set)
	for _, live := range c.Trust {
		if live.Name == set {
			return fmt.Errorf("trust set %s has %d anchors in %s; remove it there, and restart every controller, before its rows are retired", set, len(live.Anchors), c.File)
		}
		if ledger.MarkOf(live.Name) == mark {
			return fmt.Errorf("trust set %s has the mark %s of %s, which is in use: their rows can't be told apart", set, mark, live.Name)
		}
	}
	retired, rows := 0, ledger.TrustRows{}
	err := p.keep(ctx, func(l keeper) error {
		t, err := l.Trust(ctx)
		if err != nil {
			return err
		}
		rows = t[mark]
		switch {
		case rows == ledger.TrustRows{}:
			return fmt.Errorf("the ledger has no rows of trust set %s; `fencepost ledger retire` lists the sets it knows", set)
		case rows.Held > 0:
			return &ledger.HeldError{Rows: rows.Held}
		case confirm < 0:
			return nil
		case confirm != rows.Retirable:
			return fmt.Errorf("trust set %s has %d rows to retire, not %d; look again", set, rows.Retirable, confirm)
		}
		retired, err = l.Retire(ctx, mark)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(m.Out, map[string]any{"trust_set": set, "mark": mark.String(), "rows": rows.Retirable, "retired": retired, "dry_run": confirm < 0})
	}
	if confirm < 0 {
		_, err = fmt.Fprintf(m.Out, "%d rows of trust set %s would be retired, and its name could not be used again; `fencepost ledger retire %s --confirm %d` does it\n", rows.Retirable, set, set, rows.Retirable)
		return err
	}
	_, err = fmt.Fprintf(m.Out, "%d rows of trust set %s are retired\n", retired, set)
	return err
}
