package fileledger

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// childEnv makes the test binary a process of its own over a ledger: it holds
// the role, then its arguments, separated by spaces.
const childEnv = "FENCEPOST_LEDGER_CHILD"

// runChild is what a child does; its result is the exit status.
func runChild(line string) int {
	args := strings.Fields(line)
	role, ok := map[string]func([]string) error{
		"cycles": childCycles, "history": childHistory,
	}[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown role %q\n", args[0])
		return 2
	}
	if err := role(args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A child is another process.
type child struct {
	tb  testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err strings.Builder
}

// spawn starts a child and waits until it says "ready".
func spawn(tb testing.TB, role string, args ...any) *child {
	tb.Helper()
	c := &child{tb: tb, cmd: exec.CommandContext(tb.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+strings.TrimSpace(role+" "+fmt.Sprintln(args...)))
	c.cmd.Stderr = &c.err
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	if got := c.line(); got != "ready" {
		tb.Fatalf("child says %q, want ready: %s", got, c.err.String())
	}
	return c
}

func (c *child) line() string {
	s, err := c.out.ReadString('\n')
	if err != nil && err != io.EOF {
		return err.Error()
	}
	return strings.TrimSpace(s)
}

// start lets the child begin.
func (c *child) start() {
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		c.tb.Fatal(err)
	}
}

// wait waits for the child's good end.
func (c *child) wait() {
	c.tb.Helper()
	if err := c.cmd.Wait(); err != nil {
		c.tb.Errorf("child: %v: %s", err, c.err.String())
	}
}

// ready tells the parent and waits for its word.
func ready() error {
	fmt.Println("ready")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	return err
}

// childCycles DIR SHARDS PREFIX N WORKERS takes N deliveries to done.
func childCycles(args []string) error {
	shards, err1 := strconv.Atoi(args[1])
	n, err2 := strconv.Atoi(args[3])
	workers, err3 := strconv.Atoi(args[4])
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return err
		}
	}
	tb := &childTB{}
	l, err := Open(tb.Context(), Config{Dir: args[0], Shards: shards, Volatile: true})
	if err != nil {
		return err
	}
	if err := l.CleanUp(tb.Context()); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	runCycles(tb, l, args[2], n, workers)
	if tb.err != nil {
		return tb.err
	}
	return l.Close()
}

// childTB is as much of a testing.TB as a child needs.
type childTB struct {
	testing.TB
	err error
}

func (t *childTB) Helper()                   {}
func (t *childTB) Context() context.Context  { return context.Background() }
func (t *childTB) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (t *childTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (t *childTB) Error(args ...any)         { t.err = fmt.Errorf("%s", fmt.Sprint(args...)) }
