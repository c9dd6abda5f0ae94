package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// idleArgs are a job's whose work is nothing.
type idleArgs struct {
	N int `json:"n"`
}

func (idleArgs) Kind() string { return "idle" }

type idleWorker struct{ river.WorkerDefaults[idleArgs] }

func (idleWorker) Work(context.Context, *river.Job[idleArgs]) error { return nil }

// openRiver migrates a database and makes a client for it.
func openRiver(ctx context.Context, url string, connections int, migrate bool, add func(*river.Workers), cfg river.Config) (*river.Client[pgxTx], *pgxpool.Pool, error) {
	poolConfig, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	poolConfig.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return nil, nil, err
	}
	driver := riverpgxv5.New(pool)
	if migrate {
		m, err := rivermigrate.New(driver, nil)
		if err != nil {
			return nil, nil, err
		}
		if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return nil, nil, err
		}
	}
	cfg.Workers = river.NewWorkers()
	add(cfg.Workers)
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	client, err := river.NewClient(driver, &cfg)
	return client, pool, err
}

// stallArgs are those of the one job of the scenario.
type stallArgs struct{}

func (stallArgs) Kind() string { return "stall" }

// A stallWorker says which attempt it is, and works until its process is told
// to end it: it does not look at its context, as a stopped process can't.
type stallWorker struct {
	river.WorkerDefaults[stallArgs]
	who  string
	said *bufio.Scanner
}

func (w stallWorker) Work(_ context.Context, job *river.Job[stallArgs]) error {
	fmt.Printf("%s works on attempt %d\n", w.who, job.Attempt)
	w.said.Scan()
	fmt.Printf("%s returns nil for attempt %d\n", w.who, job.Attempt)
	return nil
}

const riverChild = "FENCEPOST_BENCH_RIVER"

// riverConfig rescues what has run for two seconds.
func riverConfig(id string) river.Config {
	return river.Config{
		ID: id, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		RescueStuckJobsAfter: 2 * time.Second, FetchPollInterval: 200 * time.Millisecond, JobTimeout: time.Second,
		RetryPolicy: atOnce{},
	}
}

// atOnce tries again right away.
type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// childMain is the first worker, which is stopped while it works.
func childMain(url string) error {
	ctx := context.Background()
	add := func(w *river.Workers) {
		river.AddWorker(w, stallWorker{who: "the first worker", said: bufio.NewScanner(os.Stdin)})
	}
	client, pool, err := openRiver(ctx, url, 8, false, add, riverConfig("first"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := client.Start(ctx); err != nil {
		return err
	}
	time.Sleep(5 * time.Minute) // its parent ends it long before
	return errors.New("nobody ended this process")
}

// TestLateWorkerOfRiver stops a worker's process for longer than its job may
// run, lets another worker take the job, and lets the first one go on: which
// of them ends the row? It asserts only that the scenario took place, and
// tells what it saw.
func TestLateWorkerOfRiver(t *testing.T) {
	if os.Getenv("FENCEPOST_LATE") == "" {
		t.Skip("takes a minute; set FENCEPOST_LATE=1")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	url := server.Database(t)
	started, end := make(chan int, 1), make(chan struct{})
	defer close(end)
	add := func(w *river.Workers) { river.AddWorker(w, secondWorker{started: started, end: end}) }
	client, pool, err := openRiver(ctx, url, 8, true, add, riverConfig("second"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), riverChild+"="+url)
	child.Stderr = os.Stderr
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	if err := errors.Join(err1, err2, child.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	start := time.Now()
	say := func(format string, args ...any) {
		t.Logf("%5.1f s  %s", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	if _, err := client.Insert(ctx, stallArgs{}, nil); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	say("%s", lines.Text())
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	say("its process is stopped (SIGSTOP)")
	if err := client.Start(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case attempt := <-started:
		say("the second worker works on attempt %d", attempt)
	case <-ctx.Done():
		t.Fatal("nobody took the job over")
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	say("the first worker's process goes on (SIGCONT)")
	if _, err := fmt.Fprintln(in); err != nil {
		t.Fatal(err)
	}
	lines.Scan()
	say("%s", lines.Text())
	for range 100 {
		var state string
		var attempt int
		if err := pool.QueryRow(ctx, "select state::text, attempt from river_job").Scan(&state, &attempt); err != nil {
			t.Fatal(err)
		}
		if state == "completed" {
			say("the row is %s, attempt %d, and the second worker still works", state, attempt)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	say("the row was not ended by the first worker")
}

// A secondWorker tells that it works, and does so for longer than the
// scenario.
type secondWorker struct {
	river.WorkerDefaults[stallArgs]
	started chan<- int
	end     <-chan struct{}
}

func (w secondWorker) Work(_ context.Context, job *river.Job[stallArgs]) error {
	select {
	case w.started <- job.Attempt:
	default:
	}
	<-w.end
	return errors.New("the scenario is over")
}
