package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/receipt"
)

func (m Main) deliveriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deliveries",
		Short: "What happened to each delivery of a gate",
	}
	cmd.AddCommand(m.deliveriesListCommand(), m.deliveriesShowCommand())
	return cmd
}

func (m Main) deliveriesListCommand() *cobra.Command {
	var (
		file   string
		asJSON bool
		since  time.Duration
		filter receipt.Filter
		route  string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List deliveries, the newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter.Route = fencepost.RouteName(route)
			if since > 0 {
				filter.Since = m.Now().Add(-since)
			}
			return m.listDeliveries(cmd.Context(), file, filter, asJSON)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().StringVar(&filter.Gate, "gate", "", "only those of this gate")
	cmd.Flags().StringVar(&route, "route", "", "only those of this route")
	cmd.Flags().DurationVar(&since, "since", 0, "only those received within this time, such as 24h")
	cmd.Flags().IntVar(&filter.Limit, "limit", receipt.DefaultLimit, "at most this many")
	return cmd
}

func (m Main) deliveriesShowCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show DELIVERY",
		Short: "Show a delivery's receipt, from its first byte to what was published",
		Args:  takes("DELIVERY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := fencepost.ParseDeliveryID(args[0])
			if err != nil {
				return usage(err)
			}
			return m.showDelivery(cmd.Context(), file, id, asJSON)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// receipts is the journal below the configuration's data directory.
func (m Main) receipts(file string) (durable.FS, error) {
	c, err := config.LoadWithoutSecrets(file)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.DataDir, "receipts")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no journal below %s; `fencepost serve` makes one", c.DataDir)
	}
	return durable.OS(dir), nil
}

func (m Main) listDeliveries(ctx context.Context, file string, f receipt.Filter, asJSON bool) error {
	journal, err := m.receipts(file)
	if err != nil {
		return err
	}
	list, damages, err := receipt.List(ctx, journal, f)
	if err != nil {
		return err
	}
	m.warnOfDamage(damages)
	if asJSON {
		for _, s := range list {
			if err := printJSON(m.Out, s); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, len(list))
	for i, s := range list {
		rows[i] = []string{
			s.Received.UTC().Format(time.RFC3339), string(s.Delivery), s.Gate, dash(s.Subject),
			string(s.State), dash(s.Conclusion), dash(string(s.Reason)), string(s.Anchor),
			strconv.Itoa(s.Claims), strconv.Itoa(s.Replays),
		}
	}
	return printTable(m.Out, []string{
		"RECEIVED", "DELIVERY", "GATE", "SUBJECT", "STATE", "CONCLUSION", "REASON", "KEY", "CLAIMS", "REPLAYS",
	}, rows)
}

func (m Main) showDelivery(ctx context.Context, file string, id fencepost.DeliveryID, asJSON bool) error {
	journal, err := m.receipts(file)
	if err != nil {
		return err
	}
	r, damages, err := receipt.Show(ctx, journal, id)
	if errors.Is(err, receipt.ErrNotFound) {
		return fmt.Errorf("%w; `fencepost deliveries list` names those that are known; of pushes to a source, `fencepost runs list`", err)
	}
	if err != nil {
		return err
	}
	m.warnOfDamage(damages)
	if asJSON {
		return printJSON(m.Out, r)
	}
	first := r.Events[0]
	fmt.Fprintf(m.Out, "delivery  %s\nreceived  %s\n\n", r.Delivery, first.At.UTC().Format(time.RFC3339Nano))
	rows := make([][]string, len(r.Events))
	for i, e := range r.Events {
		rows[i] = []string{
			"+" + e.At.Sub(first.At).Round(100*time.Microsecond).String(), string(e.Kind), took(e.Took),
			fence(e.Fence), dash(string(e.Reason)), facts(e),
		}
	}
	return printTable(m.Out, []string{"AT", "EVENT", "TOOK", "FENCE", "REASON", "FACTS"}, rows)
}

func (m Main) warnOfDamage(damages []receipt.Damage) {
	for _, d := range damages {
		fmt.Fprintf(m.Err, "warning: the journal is damaged: %s; what stood there is not shown\n", oneLine(d))
	}
}

// facts writes an event's details in one line.
func facts(e receipt.Event) string {
	var parts []string
	for _, f := range []receipt.Detail{
		{Name: "route", Value: string(e.Route)}, {Name: "gate", Value: e.Gate}, {Name: "key", Value: string(e.Anchor)},
	} {
		if f.Value != "" {
			parts = append(parts, f.Name+"="+f.Value)
		}
	}
	if e.Kind == receipt.Claimed && e.Evaluation != "" {
		parts = append(parts, "evaluation="+e.Evaluation, "attempt="+strconv.Itoa(e.Attempt))
	}
	var off []string
	protections := 0
	for _, d := range e.Details {
		value := d.Value
		if name, ok := strings.CutPrefix(d.Name, "protection."); ok {
			protections++
			if value != "on" {
				off = append(off, name)
			}
			continue
		}
		if strings.ContainsAny(value, " \t") {
			value = strconv.Quote(value)
		}
		parts = append(parts, d.Name+"="+value)
	}
	if protections > 0 {
		parts = append(parts, fmt.Sprintf("protections=%d/%d", protections-len(off), protections))
	}
	if len(off) > 0 {
		parts = append(parts, "off="+strings.Join(off, ","))
	}
	return strings.Join(parts, " ")
}

func took(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(100 * time.Microsecond).String()
}

func fence(n uint64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatUint(n, 10)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
