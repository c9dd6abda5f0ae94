package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/ops"
)

// A diagnosis is what --json prints.
type diagnosis struct {
	OK      bool `json:"ok"`
	Fail    int  `json:"fail"`
	Warn    int  `json:"warn"`
	Skipped int  `json:"skipped"`
	doctor.Report
}

func (m Main) doctorCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Ask the providers, the disk, the clock, the sandbox; say what is wrong and the mend",
		Long: `Look at all that the configuration rests on, and name for each thing what was
seen, and the mend where it is wrong: secrets and keys, the data directory and its
disk, the ledger or the database, the sandbox, the clock, and the provider's side
of each gate and each source. Run it as the service's user; a controller may be
running meanwhile. Nothing is changed at a provider.

It ends with 1 where something fails; warnings alone end with 0.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.doctor(cmd.Context(), file, asJSON) },
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) doctor(ctx context.Context, file string, asJSON bool) error {
	c, err := config.LoadWithoutSecrets(file)
	if err != nil {
		return err
	}
	secrets, err := config.TrySecrets(file, m.LookupEnv)
	if err != nil {
		return err
	}
	b := thisBuild()
	report, err := app.Examine(ctx, app.Options{
		Config: c, LookupEnv: m.LookupEnv, Now: m.Now, Entry: m.Entry, Log: slog.New(slog.DiscardHandler),
		Build: ops.Build{Version: b.Version, Revision: b.Revision, Go: b.Go},
	}, secrets)
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if err := m.printDiagnosis(report, asJSON); err != nil {
		return err
	}
	if !report.Healthy() {
		return errSilent
	}
	return nil
}

func (m Main) printDiagnosis(r doctor.Report, asJSON bool) error {
	d := diagnosis{
		OK: r.Healthy(), Fail: r.Count(doctor.Fail), Warn: r.Count(doctor.Warn), Skipped: r.Count(doctor.Skipped), Report: r,
	}
	if asJSON {
		return printJSON(m.Out, d)
	}
	rows := make([][]string, len(r.Checks))
	for i, c := range r.Checks {
		seen := c.Seen
		if c.Want != "" && c.Status != doctor.OK {
			seen += " (want " + c.Want + ")"
		}
		rows[i] = []string{string(c.Status), c.Subject, c.Name, seen}
	}
	if err := printTable(m.Out, []string{"STATUS", "SUBJECT", "CHECK", "SEEN"}, rows); err != nil {
		return err
	}
	// The mends stand together, so that none is lost in a long table.
	for _, c := range r.Checks {
		if c.Mend != "" && (c.Status == doctor.Fail || c.Status == doctor.Warn) {
			fmt.Fprintf(m.Out, "\n%s: %s: %s\n  %s\n", c.Status, c.Subject, c.Name, c.Mend)
		}
	}
	_, err := fmt.Fprintf(m.Out, "\n%d checks: %d fail, %d warn, %d skipped\n", len(r.Checks), d.Fail, d.Warn, d.Skipped)
	return err
}
