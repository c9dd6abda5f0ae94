package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/runner"
)

// Main is the program as a value: all that it takes from the process around
// it, so that a test can run it inside its own. Paths are relative to the
// process's working directory.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	// LookupEnv finds environment variables, for secret references.
	LookupEnv func(name string) (string, bool)
	// Now is the wall clock.
	Now func() time.Time
	// Terminal is set when a person reads Err: then long work shows how far
	// it is.
	Terminal bool
	// Entry is what [runner.Init] returned, the first thing in main.
	Entry runner.Entry
}

// Run runs one command line, without the program's name, and returns the
// exit code: 0 done, 1 failed or refused, 2 usage or configuration.
func (m Main) Run(ctx context.Context, args []string) int {
	root, begun := m.command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !*begun {
		// Whatever fails before a command begins is its command line.
		err = usage(err)
	}
	m.report(err)
	return exitCode(err)
}

// command builds the tree of commands. begun is set once a command's own
// work begins.
func (m Main) command() (root *cobra.Command, begun *bool) {
	begun = new(bool)
	root = &cobra.Command{
		Use:   "fencepost",
		Short: "One signed Git event, one fenced run, one result",
		Long: `Fencepost turns one signed Git event into exactly one fenced run over exactly
the commit it names, and one result that is published once or not at all.

Exit codes: 0 done, 1 the thing asked for failed or was refused, 2 usage or
configuration.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(m.In)
	root.SetOut(m.Out)
	root.SetErr(m.Err)
	root.AddCommand(
		m.tryCommand(), m.initCommand(), m.checkCommand(), m.doctorCommand(), m.serveCommand(), m.deliveriesCommand(), m.sourcesCommand(),
		m.runsCommand(), m.ledgerCommand(),
		m.fetchCommand(), m.webhookCommand(), m.gitlabJobCommand(), m.versionCommand(),
	)
	noteBegin(root, begun)
	return root, begun
}

// noteBegin makes each command below cmd set begun before its own work.
func noteBegin(cmd *cobra.Command, begun *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			*begun = true
			return run(c, args)
		}
	}
	for _, sub := range cmd.Commands() {
		noteBegin(sub, begun)
	}
}

// configFlag adds --config.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "fencepost.yaml", "the configuration file")
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, on *bool) {
	cmd.Flags().BoolVar(on, "json", false, "print JSON")
}
