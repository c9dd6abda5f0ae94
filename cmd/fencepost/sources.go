package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

func (m Main) sourcesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "sources", Short: "How fresh each source is"}
	cmd.AddCommand(m.sourcesListCommand(), m.sourcesShowCommand())
	return cmd
}

func (m Main) sourcesListCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List sources: heads, ages, locks and alerts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return m.withState(cmd.Context(), file, func(c *config.Config, db *sourcedb.Store) error {
				return m.listSources(cmd.Context(), c, db, asJSON)
			})
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) sourcesShowCommand() *cobra.Command {
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show SOURCE",
		Short: "Show one source with its open run, its alerts and its last runs",
		Args:  takes("SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return m.withState(cmd.Context(), file, func(c *config.Config, db *sourcedb.Store) error {
				return m.showSource(cmd.Context(), c, db, fencepost.RouteName(args[0]), asJSON)
			})
		},
	}
	configFlag(cmd, &file)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// withState opens the state of a configuration's sources to read.
func (m Main) withState(ctx context.Context, file string, do func(*config.Config, *sourcedb.Store) error) (err error) {
	c, err := config.Load(file, m.LookupEnv)
	if err != nil {
		return err
	}
	if len(c.Sources) == 0 {
		return fmt.Errorf("%w: no source is configured in %s; docs/sources.md says how", errNothing, file)
	}
	o, err := app.StateOptions(c, m.LookupEnv, m.Now)
	if err != nil {
		return err
	}
	o.Existing = true
	db, err := store.Open(ctx, o)
	if err != nil {
		return fmt.Errorf("open the state of sources: %w; `fencepost serve` makes it", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return do(c, sourcedb.New(db, nil, sourcedb.Hooks{}))
}

// errNothing: what was asked for is not there.
var errNothing = errors.New("nothing to show")

// A sourceView is a source as --json prints it. Times that are not known are
// left out.
type sourceView struct {
	Source     string     `json:"source"`
	ID         string     `json:"id"`
	Configured bool       `json:"configured"`
	State      string     `json:"state"`
	Revision   string     `json:"revision"`
	Announced  *headView  `json:"announced,omitempty"`
	Observed   *headView  `json:"observed,omitempty"`
	Applied    *headView  `json:"applied,omitempty"`
	UnmetSince *time.Time `json:"unmet_since,omitempty"`
	// AgeSeconds is how long that was ago.
	AgeSeconds float64     `json:"age_seconds,omitempty"`
	Tried      *time.Time  `json:"tried,omitempty"`
	Trouble    string      `json:"trouble,omitempty"`
	NextCheck  *time.Time  `json:"next_check,omitempty"`
	FollowUp   *time.Time  `json:"follow_up_since,omitempty"`
	Lock       *lockView   `json:"lock,omitempty"`
	Run        string      `json:"run,omitempty"`
	Alerts     []alertView `json:"alerts"`
}

type headView struct {
	Commit string     `json:"commit"`
	At     *time.Time `json:"at,omitempty"`
}

type lockView struct {
	Owner    string    `json:"owner"`
	Fence    uint64    `json:"fence"`
	Run      string    `json:"run"`
	Acquired time.Time `json:"acquired"`
	Renewed  time.Time `json:"renewed"`
	Expires  time.Time `json:"expires"`
	// AgeSeconds is since it was acquired.
	AgeSeconds float64 `json:"age_seconds"`
}

type alertView struct {
	Code  string    `json:"code"`
	Since time.Time `json:"since"`
	Count int64     `json:"count"`
}

func viewSource(s sourcedb.State, now time.Time, configured bool) sourceView {
	v := sourceView{
		Source: string(s.Key), ID: s.ID.String(), Configured: configured, State: app.SourceState(s), Revision: s.Revision.String(),
		Announced: head(s.Announced, s.AnnouncedAt), Observed: head(s.Observed, s.ObservedAt), Applied: head(s.Applied, s.AppliedAt),
		UnmetSince: known(s.UnmetSince), Tried: known(s.TriedAt), Trouble: string(s.Trouble), NextCheck: known(app.NextLook(s)),
		FollowUp: known(s.FollowUpSince), Alerts: []alertView{},
	}
	if !s.UnmetSince.IsZero() {
		v.AgeSeconds = now.Sub(s.UnmetSince).Seconds()
	}
	if l := s.Lock; !l.Free() {
		v.Lock = &lockView{
			Owner: fmt.Sprintf("%x", l.Owner[:4]), Fence: l.Fence, Run: l.Run.String(), Acquired: l.Acquired, Renewed: l.Renewed,
			Expires: l.Expires, AgeSeconds: now.Sub(l.Acquired).Seconds(),
		}
	}
	if s.Run != nil {
		v.Run = s.Run.ID.String()
	}
	for _, a := range s.Alerts {
		v.Alerts = append(v.Alerts, alertView{Code: string(a.Code), Since: a.Since, Count: a.Raised})
	}
	return v
}

func head(c fencepost.CommitID, at time.Time) *headView {
	if c.IsZero() {
		return nil
	}
	return &headView{Commit: c.String(), At: known(at)}
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (m Main) listSources(ctx context.Context, c *config.Config, db *sourcedb.Store, asJSON bool) error {
	seen, err := db.Sources(ctx, "")
	if err != nil {
		return err
	}
	rows := make([][]string, 0, len(seen.Sources))
	for _, s := range seen.Sources {
		v := viewSource(s, seen.Now, isConfigured(c, s.ID))
		if asJSON {
			if err := printJSON(m.Out, v); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			v.Source, v.State, ageOf(v.UnmetSince, seen.Now),
			headText(s.Announced, s.AnnouncedAt, seen.Now), headText(s.Observed, s.ObservedAt, seen.Now),
			headText(s.Applied, s.AppliedAt, seen.Now), dash(app.Holder(s.Lock, seen.Now)), yes(s.FollowUp),
			untilText(app.NextLook(s), seen.Now), dash(alertText(s.Alerts)),
		})
	}
	if asJSON {
		return nil
	}
	return printTable(m.Out, []string{
		"SOURCE", "STATE", "BEHIND FOR", "ANNOUNCED", "OBSERVED", "APPLIED", "LOCK", "FOLLOW-UP", "NEXT LOOK", "ALERTS",
	}, rows)
}

func isConfigured(c *config.Config, id fencepost.SourceID) bool {
	for _, s := range c.Sources {
		if s.ID == id {
			return true
		}
	}
	return false
}

// shownRuns is how many runs `sources show` lists.
const shownRuns = 10

func (m Main) showSource(ctx context.Context, c *config.Config, db *sourcedb.Store, key fencepost.RouteName, asJSON bool) error {
	seen, err := db.Sources(ctx, key)
	if err != nil {
		return err
	}
	if len(seen.Sources) == 0 {
		return fmt.Errorf("%w: no source %q; `fencepost sources list` names those that are known", errNothing, key)
	}
	s := seen.Sources[0]
	runs, err := db.Runs(ctx, sourcedb.RunFilter{Source: s.ID}, shownRuns)
	if err != nil {
		return err
	}
	v := viewSource(s, seen.Now, isConfigured(c, s.ID))
	if asJSON {
		views := make([]runView, len(runs))
		for i, r := range runs {
			views[i] = viewRun(r, key)
		}
		return printJSON(m.Out, struct {
			sourceView
			Runs []runView `json:"runs"`
		}{v, views})
	}
	lines := [][2]string{
		{"source", v.Source + "  " + v.ID}, {"state", v.State}, {"revision", v.Revision},
		{"announced", headLine(s.Announced, s.AnnouncedAt, seen.Now)},
		{"observed", headLine(s.Observed, s.ObservedAt, seen.Now)},
		{"applied", headLine(s.Applied, s.AppliedAt, seen.Now)},
		{"behind for", ageOf(v.UnmetSince, seen.Now)},
		{"lock", dash(app.Holder(s.Lock, seen.Now))}, {"follow-up", yes(s.FollowUp)},
		{"next look", untilText(app.NextLook(s), seen.Now)}, {"last trouble", dash(v.Trouble)},
		{"alerts", dash(alertText(s.Alerts))},
	}
	for _, l := range lines {
		fmt.Fprintf(m.Out, "%-13s %s\n", l[0], l[1])
	}
	fmt.Fprintln(m.Out)
	return m.printRuns(runs, map[fencepost.SourceID]fencepost.RouteName{s.ID: key})
}

func headText(c fencepost.CommitID, at, now time.Time) string {
	if c.IsZero() {
		return "-"
	}
	if at.IsZero() {
		return app.Short(c)
	}
	return app.Short(c) + " " + roughly(now.Sub(at)) + " ago"
}

func headLine(c fencepost.CommitID, at, now time.Time) string {
	if c.IsZero() {
		return "-"
	}
	return c.String() + "  " + at.UTC().Format(time.RFC3339) + "  " + roughly(now.Sub(at)) + " ago"
}

func ageOf(since *time.Time, now time.Time) string {
	if since == nil {
		return "-"
	}
	return roughly(now.Sub(*since))
}

func untilText(at, now time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case !at.After(now):
		return "now"
	}
	return "in " + roughly(at.Sub(now))
}

// roughly is a duration in whole seconds, or shorter.
func roughly(d time.Duration) string {
	if d < 10*time.Second {
		return max(0, d).Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func yes(b bool) string {
	if b {
		return "pending"
	}
	return "-"
}

func alertText(alerts []sourcedb.Alert) string {
	names := make([]string, len(alerts))
	for i, a := range alerts {
		names[i] = string(a.Code)
	}
	return strings.Join(names, ",")
}

// countText is what a run did to the sink.
func countText(c source.Counts) string {
	return "+" + strconv.FormatInt(c.Added, 10) + " ~" + strconv.FormatInt(c.Changed, 10) + " -" + strconv.FormatInt(c.Removed, 10)
}
