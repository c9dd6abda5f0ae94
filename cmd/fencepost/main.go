// Command fencepost turns one signed Git event into exactly one fenced run
// over exactly the commit it names, and one result that is published once or
// not at all.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/runner"
	_ "github.com/fencepost/fencepost/runner/early" // sandbox processes start in half the time
)

func main() { os.Exit(run()) }

func run() int {
	entry := runner.Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m := Main{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		LookupEnv: os.LookupEnv,
		Now:       clock.System().Now,
		Terminal:  isTerminal(os.Stderr),
		Entry:     entry,
	}
	return m.Run(ctx, os.Args[1:])
}

// isTerminal reports whether f is a character device, which is near enough
// for the choice between progress and silence.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
