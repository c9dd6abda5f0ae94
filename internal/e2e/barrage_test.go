package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

const (
	// barrageControllers work over one data directory.
	barrageControllers = 3
	// barrageSenders deliver side by side, and barrageBacklog deliveries may wait
	// for their results.
	barrageSenders, barrageBacklog = 8, 64
	// barrageEvery is the mean time from one kill to the next.
	barrageEvery = time.Second
	// barragePatience bounds the wait for the next result.
	barragePatience = 5 * time.Minute
)

// Invariants 3, 5, 6 and 7, for long: several controllers over one data
// directory, each killed with SIGKILL at random, one about every second, while
// signed deliveries come in. What the provider saw and what the senders were
// told is held against the ledger by [audit], which shares nothing with what
// it judges.
func TestABarrageOfKills(t *testing.T) {
	t.Parallel()
	s := newBarrage(t, fromEnv(t, "FENCEPOST_BARRAGE_DELIVERIES", 20))
	began := time.Now()
	s.run()
	took := time.Since(began)
	verdict := audit(s.seen, s.told, booksOf(t, s.world.DataDir()))
	for _, text := range verdict.broken {
		t.Error(text)
	}
	t.Logf("%d deliveries in %v, %d kills (one each %v), %d starts failed: %s", s.deliveries, took.Round(time.Second),
		s.kills, (took / time.Duration(max(s.kills, 1))).Round(10*time.Millisecond), s.refused.Load(), verdict)
	t.Logf("processor: %s", s.processor())
	wantNothingAlive(t)
}

// A barrage is one run.
type barrage struct {
	t          *testing.T
	world      *world.World
	deliveries int
	kills      int
	refused    atomic.Int64 // starts

	mu sync.Mutex
	// seen is what the provider was sent, in the order of its arrival.
	seen []sight
	// told is what senders were answered.
	told []telling
	// results signals the first successful creation for each head.
	results map[string]chan struct{}
}

// A sight is one Check Run that the provider was asked to create, and made.
type sight struct {
	At                     time.Time
	Head, Evaluation, Body string
}

// A telling is what a sender was answered about a head's delivery.
type telling struct {
	Head     string
	Status   int
	Outcome  string
	Delivery fencepost.DeliveryID
}

func newBarrage(t *testing.T, deliveries int) *barrage {
	t.Helper()
	s := &barrage{t: t, deliveries: deliveries, results: map[string]chan struct{}{}}
	s.world = newWorld(t, s.config("provider: {write_interval: 0s}\nwork: {workers: 2}\nrunner: {concurrent: 2}\n"))
	return s
}

// config is that of a world that a barrage hears.
func (s *barrage) config(yaml string) world.Config {
	return world.Config{
		Manual: true, MergePolls: -1, RateLimit: 1000 + 200*s.deliveries, Observer: s.observe,
		// Healing would ask for what is only late here, and so hide a loss.
		YAML: "healing: {interval: 24h, grace: 24h, lookback: 1m, inspected: 1, redeliveries: 1}\n" + yaml,
	}
}

// observe is the provider's journal.
func (s *barrage) observe(r *http.Request, body []byte, status int, _ http.Header, _ []byte) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/check-runs") || status != http.StatusCreated {
		return
	}
	var run struct {
		Head     string `json:"head_sha"`
		External string `json:"external_id"`
	}
	at := time.Now()
	err := json.Unmarshal(body, &run)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.t.Errorf("the provider was sent %q", body)
	}
	s.seen = append(s.seen, sight{At: at, Head: run.Head, Evaluation: run.External, Body: string(body)})
	if done := s.results[run.Head]; done != nil {
		close(done)
		delete(s.results, run.Head)
	}
}

func (s *barrage) run() {
	ctx, calm := context.WithCancel(s.t.Context())
	defer calm()
	// Rooms are controllers, each of one owner at a time.
	rooms := []*world.Controller{s.world.Controller}
	for range barrageControllers - 1 {
		c, err := s.world.Beside(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		c.Within = barragePatience
		if _, err := c.Start(context.Background()); err != nil {
			s.t.Fatal(err)
		}
		rooms = append(rooms, c)
	}
	s.world.Controller.Within = barragePatience
	var killing sync.WaitGroup
	killing.Go(func() { s.kill(ctx, rooms) })
	work := make(chan signed)
	backlog := make(chan struct{}, barrageBacklog)
	var senders, waiters sync.WaitGroup
	for range barrageSenders {
		senders.Go(func() {
			for one := range work {
				s.deliver(one, rooms)
			}
		})
	}
	over := time.After(time.Duration(fromEnv(s.t, "FENCEPOST_BARRAGE_MINUTES", 10)) * time.Minute)
	for i := range s.deliveries {
		select {
		case backlog <- struct{}{}:
		case <-over:
			s.deliveries = i
		}
		if s.deliveries == i {
			break
		}
		one, done := s.open(i, "pass")
		waiters.Go(func() {
			select {
			case <-done:
			case <-time.After(barragePatience):
				// The audit says what is missing.
			}
			<-backlog
		})
		work <- one
	}
	close(work)
	senders.Wait()
	waiters.Wait()
	calm()
	killing.Wait()
	// What is published may not be completed yet.
	for _, c := range rooms {
		if err := c.Stop(); err != nil {
			s.t.Error(err)
		}
	}
	if _, err := rooms[0].Start(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	if err := s.idle(); err != nil {
		s.t.Error(err)
	}
	if err := rooms[0].Stop(); err != nil {
		s.t.Error(err)
	}
}

// idle waits until the last controller holds no delivery any more.
func (s *barrage) idle() error {
	_, err := world.Await(s.t.Context(), barragePatience, func() (struct{}, bool, error) {
		_, body := get(s.t, s.world, "/metrics")
		for line := range strings.Lines(body) {
			if text, ok := strings.CutPrefix(line, "fencepost_inbox_entries "); ok {
				return struct{}{}, strings.TrimSpace(text) == "0", nil
			}
		}
		return struct{}{}, false, nil
	})
	return err
}

// open makes a request, whose check does what it is told and whose delivery is
// not sent yet.
func (s *barrage) open(i int, what string) (signed, <-chan struct{}) {
	s.t.Helper()
	pr, err := s.world.Repository.OpenPullRequest(s.t.Context(), forgesim.OpenPull{
		Head:   "barrage-" + strconv.Itoa(i),
		Change: forgesim.Change{Files: map[string]string{"behaviour": what + "\n", "n": strconv.Itoa(i)}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.results[pr.Head()] = done
	s.mu.Unlock()
	for _, d := range s.world.Forge.TakeOutbox() {
		if d.Event == "pull_request" {
			return signed{pr: pr, delivery: d}, done
		}
	}
	s.t.Fatalf("no delivery for request #%d", pr.Number())
	return signed{}, nil
}

// deliver sends a delivery to any controller until one has answered for good.
func (s *barrage) deliver(one signed, rooms []*world.Controller) {
	for {
		a, err := s.post(one, rooms[rand.IntN(len(rooms))])
		if err == nil {
			s.mu.Lock()
			s.told = append(s.told, a)
			s.mu.Unlock()
			if a.Status != http.StatusServiceUnavailable {
				return
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-s.t.Context().Done():
			return
		}
	}
}

// post fails where there is no whole answer. What a lost answer promised
// nobody was told.
func (s *barrage) post(one signed, to *world.Controller) (telling, error) {
	req, err := s.world.Forge.Request(s.t.Context(), one.delivery, to.HookURL)
	if err != nil {
		return telling{}, err
	}
	resp, err := s.world.Client.Do(req)
	if err != nil {
		return telling{}, err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		return telling{}, err
	}
	a, err := world.ReadAnswer(body.Bytes())
	if err != nil {
		return telling{}, err
	}
	return telling{Head: one.pr.Head(), Status: resp.StatusCode, Outcome: a.Outcome, Delivery: a.Delivery}, nil
}

// kill kills one of the controllers that are ready, again and again, and
// starts it anew beside the others.
func (s *barrage) kill(ctx context.Context, rooms []*world.Controller) {
	ready := make(chan *world.Controller, len(rooms))
	for _, i := range rand.Perm(len(rooms)) {
		ready <- rooms[i]
	}
	var starts sync.WaitGroup
	defer starts.Wait()
	for {
		select {
		case <-time.After(time.Duration(rand.ExpFloat64() * float64(barrageEvery))):
		case <-ctx.Done():
			return
		}
		var victim *world.Controller
		select {
		case victim = <-ready:
		case <-ctx.Done():
			return
		}
		if err := victim.Kill(); err != nil {
			s.t.Error(err)
			return
		}
		s.kills++
		starts.Go(func() {
			if err := s.restart(context.WithoutCancel(ctx), victim); err != nil {
				s.t.Error(err)
				return
			}
			ready <- victim
		})
	}
}

// restart starts a controller again, as a service manager would: also after a
// start that failed, since another process may have been given its port while
// it was down, or the machine was too busy for the sandbox to prove itself.
func (s *barrage) restart(ctx context.Context, c *world.Controller) error {
	for waited := time.Duration(0); ; waited += time.Second {
		_, err := c.Start(ctx)
		if err == nil || waited > barragePatience || !strings.Contains(err.Error(), "ended before it was ready") {
			return err
		}
		s.refused.Add(1)
		s.t.Log(err)
		time.Sleep(time.Second)
	}
}

// processor is what the barrage has cost.
func (s *barrage) processor() string {
	var self, children syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return err.Error()
	}
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children); err != nil {
		return err.Error()
	}
	of := func(u syscall.Rusage) time.Duration {
		return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Round(time.Millisecond)
	}
	return fmt.Sprintf("forge and senders %v, controllers, programs and git %v", of(self), of(children))
}
