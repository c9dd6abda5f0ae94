package main

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/internal/config"
)

// A checkedGate is what `check` says of a gate.
type checkedGate struct {
	Gate       string `json:"gate"`
	Provider   string `json:"provider"`
	Repository string `json:"repository"`
	Base       string `json:"base"`
	Check      string `json:"check"`
	Hook       string `json:"hook"`
	Trust      string `json:"trust"`
	Policy     string `json:"policy"`
}

// A checkedAnchor is what it says of a key.
type checkedAnchor struct {
	Trust  string    `json:"trust"`
	Anchor string    `json:"anchor"`
	From   time.Time `json:"from,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	// Now is "live", "not yet" or "over".
	Now string `json:"now"`
}

// A checked is the whole answer.
type checked struct {
	OK       bool            `json:"ok"`
	File     string          `json:"file"`
	DataDir  string          `json:"data_dir"`
	Gates    []checkedGate   `json:"gates"`
	Sources  []checkedSource `json:"sources"`
	Anchors  []checkedAnchor `json:"anchors"`
	Warnings []string        `json:"warnings"`
}

func (m Main) checkCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Validate the configuration, try its secrets, print the policy digests",
		Long: `Validate the configuration and print what it comes to: each gate and each source
with the digest of its policy, each source's freshness sums, each key with its
window. Two machines whose digests agree hold deliveries to the same rules. Every
fault is reported, one a line, with file, line, column, field and the mend.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := config.Load(file, m.LookupEnv)
			if err != nil {
				return err
			}
			return m.printChecked(c, asJSON)
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) printChecked(c *config.Config, asJSON bool) error {
	all := whatIsChecked(c, m.Now())
	if asJSON {
		return printJSON(m.Out, all)
	}
	if len(all.Gates) > 0 {
		rows := make([][]string, len(all.Gates))
		for i, g := range all.Gates {
			rows[i] = []string{g.Gate, g.Provider, g.Repository, g.Base, g.Check, g.Hook, g.Policy}
		}
		if err := printTable(m.Out, []string{"GATE", "PROVIDER", "REPOSITORY", "BASE", "CHECK", "HOOK", "POLICY"}, rows); err != nil {
			return err
		}
		fmt.Fprintln(m.Out)
	}
	if err := m.printSources(all.Sources); err != nil {
		return err
	}
	if len(all.Anchors) > 0 {
		rows := make([][]string, len(all.Anchors))
		for i, a := range all.Anchors {
			rows[i] = []string{a.Trust, a.Anchor, when(a.From), when(a.Until), a.Now}
		}
		if err := printTable(m.Out, []string{"TRUST", "KEY", "FROM", "UNTIL", "NOW"}, rows); err != nil {
			return err
		}
		fmt.Fprintln(m.Out)
	}
	for _, w := range all.Warnings {
		fmt.Fprintf(m.Err, "warning: %s\n", w)
	}
	_, err := fmt.Fprintf(m.Out, "%s is valid\n", c.File)
	return err
}

// entryOf is the path that a gate's sender posts to.
func entryOf(g config.Gate) string {
	if g.Provider == config.GitLab {
		return "/jobs/" + string(g.Route)
	}
	return "/hooks/" + string(g.Route)
}

func whatIsChecked(c *config.Config, now time.Time) checked {
	all := checked{
		OK: true, File: c.File, DataDir: c.DataDir,
		Gates: []checkedGate{}, Sources: checkedSources(c), Anchors: []checkedAnchor{}, Warnings: append([]string{}, c.Warnings...),
	}
	for _, g := range c.Gates {
		all.Gates = append(all.Gates, checkedGate{
			Gate: string(g.Route), Provider: string(g.Provider), Repository: g.Repository.FullName(), Base: g.Base,
			Check: g.Check, Hook: entryOf(g), Trust: string(g.Trust),
			Policy: "sha256:" + hex.EncodeToString(g.Digest[:]),
		})
	}
	for _, t := range c.Trust {
		live := false
		for _, a := range t.Anchors {
			k := checkedAnchor{Trust: string(t.Name), Anchor: string(a.ID), From: a.From, Until: a.Until, Now: "live"}
			switch {
			case now.Before(a.From):
				k.Now = "not yet"
			case !a.Until.IsZero() && !now.Before(a.Until):
				k.Now = "over"
			default:
				live = true
			}
			all.Anchors = append(all.Anchors, k)
		}
		if !live {
			all.Warnings = append(all.Warnings, fmt.Sprintf("%s: trust.%s: no key of it is live now, so every delivery is refused; add one", c.File, t.Name))
		}
	}
	return all
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(time.RFC3339)
}
