package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/ingress/loadgen"
	"github.com/fencepost/fencepost/webhook"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	table := newWorld(t, ingress.Config{}, fixedClock).table(t, nil)
	good := ingress.Options{Table: table, Now: fixedClock}
	with := func(change func(*ingress.Options)) ingress.Options {
		o := good
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		options ingress.Options
		want    error
		text    string
	}{
		"no table":              {with(func(o *ingress.Options) { o.Table = nil }), fencepost.ErrZeroValue, "table"},
		"no clock":              {with(func(o *ingress.Options) { o.Now = nil }), fencepost.ErrZeroValue, "clock"},
		"negative body":         {with(func(o *ingress.Options) { o.Config.MaxBody = -1 }), fencepost.ErrMalformed, "max body"},
		"budget below a body":   {with(func(o *ingress.Options) { o.Config.BodyMemory = 1 << 20 }), fencepost.ErrMalformed, "body memory"},
		"negative headers":      {with(func(o *ingress.Options) { o.Config.MaxHeaders = -1 }), fencepost.ErrMalformed, "max headers"},
		"negative header bytes": {with(func(o *ingress.Options) { o.Config.MaxHeaderBytes = -1 }), fencepost.ErrMalformed, "max header bytes"},
		"negative connections":  {with(func(o *ingress.Options) { o.Config.MaxConnections = -1 }), fencepost.ErrMalformed, "max connections"},
		"stall after the end":   {with(func(o *ingress.Options) { o.Config.StallTimeout = time.Hour }), fencepost.ErrMalformed, "stall timeout"},
		"negative time":         {with(func(o *ingress.Options) { o.Config.IdleTimeout = -1 }), fencepost.ErrMalformed, "idle timeout"},
	} {
		if _, err := ingress.New(test.options); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: err = %v, want %v about %s", name, err, test.want, test.text)
		}
	}
}

func TestNewTableRefuses(t *testing.T) {
	t.Parallel()
	good := ingress.Route{Rule: unsigned, Verifier: webhook.Decoy{}, Admission: newPolicy(), Recorder: &memory{}}
	good.Rule.Route = "docs"
	with := func(change func(*ingress.Route)) []ingress.Route {
		r := good
		change(&r)
		return []ingress.Route{r}
	}
	name := func(name string) []ingress.Route {
		return with(func(r *ingress.Route) { r.Rule.Route = fencepost.RouteName(name) })
	}
	for what, test := range map[string]struct {
		decoy  fencepost.Verifier
		routes []ingress.Route
		want   error
	}{
		"nothing wrong":       {webhook.Decoy{}, []ingress.Route{good}, nil},
		"no routes":           {webhook.Decoy{}, nil, nil},
		"longest name":        {webhook.Decoy{}, name(strings.Repeat("a", 64)), nil},
		"no decoy":            {nil, []ingress.Route{good}, fencepost.ErrZeroValue},
		"a route twice":       {webhook.Decoy{}, []ingress.Route{good, good}, fencepost.ErrMalformed},
		"no name":             {webhook.Decoy{}, name(""), fencepost.ErrMalformed},
		"name too long":       {webhook.Decoy{}, name(strings.Repeat("a", 65)), fencepost.ErrMalformed},
		"name of dots":        {webhook.Decoy{}, name(".."), fencepost.ErrMalformed},
		"name with a slash":   {webhook.Decoy{}, name("a/b"), fencepost.ErrMalformed},
		"name to be escaped":  {webhook.Decoy{}, name("a b"), fencepost.ErrMalformed},
		"the unknown's name":  {webhook.Decoy{}, name("?"), fencepost.ErrMalformed},
		"no verifier":         {webhook.Decoy{}, with(func(r *ingress.Route) { r.Verifier = nil }), fencepost.ErrZeroValue},
		"no admission":        {webhook.Decoy{}, with(func(r *ingress.Route) { r.Admission = nil }), fencepost.ErrZeroValue},
		"no recorder":         {webhook.Decoy{}, with(func(r *ingress.Route) { r.Recorder = nil }), fencepost.ErrZeroValue},
		"no trust set":        {webhook.Decoy{}, with(func(r *ingress.Route) { r.Rule.TrustSet = "" }), fencepost.ErrZeroValue},
		"no signed-time rule": {webhook.Decoy{}, with(func(r *ingress.Route) { r.Rule.SignedTime = 0 }), fencepost.ErrZeroValue},
		"no window":           {webhook.Decoy{}, with(func(r *ingress.Route) { r.Rule.Window = fencepost.ReplayWindow{} }), fencepost.ErrMalformed},
	} {
		if _, err := ingress.NewTable(ingress.Decoys{Hooks: test.decoy}, test.routes...); !errors.Is(err, test.want) {
			t.Errorf("%s: err = %v, want %v", what, err, test.want)
		}
	}
}

// live runs w on a loopback port until the test's end.
func live(t testing.TB, w *world) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, ln) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return ln.Addr().String()
}

// Keys and routes are exchanged while requests come in: none is dropped, and
// once Swap says so the old keys can be zeroed.
func TestReloadUnderLoadDropsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, time.Now)
	secret := "the one secret of load"
	newTable := func() *ingress.Table {
		w.keys = keyring(t, webhook.Anchor{ID: "load"}, webhook.Anchor{ID: "other"})
		return w.table(t, nil)
	}
	w.Swap(newTable())
	address := live(t, w)
	const requests = 1500
	ended := make(chan struct{})
	var result loadgen.Result
	go func() {
		defer close(ended)
		var err error
		result, err = loadgen.Run(t.Context(), loadgen.Load{Address: address, Path: "/hooks/docs", Connections: 8, Requests: requests,
			Secret: []byte(secret), Body: []byte(`{"repository":{"id":1}`), Now: time.Now})
		if err != nil {
			t.Error(err)
		}
	}()
	swaps := 0
	for done := false; !done; swaps++ {
		old := w.keys
		<-w.Swap(newTable())
		old.Zero()
		select {
		case <-ended:
			done = true
		default:
		}
	}
	if diff := cmp.Diff(map[int]int{202: requests}, result.Statuses); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if swaps < 10 {
		t.Errorf("only %d reloads during the load", swaps)
	}
}

// Swap's channel closes only when the last request on the old table is done,
// and tables may come back.
func TestSwapWaitsForTheOldTablesRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ingress.Config{}, fixedClock)
		first, second := w.table(t, nil), w.table(t, nil)
		select {
		case <-w.Swap(first):
		default:
			t.Error("a table without requests is not done at once")
		}
		hold := make(chan struct{})
		w.recorder.before = func(context.Context) { <-hold }
		var wg sync.WaitGroup
		wg.Go(func() { w.send(t, w.docs(t, goodBody)) })
		synctest.Wait()
		done := w.Swap(second)
		again := w.Swap(first)
		synctest.Wait()
		select {
		case <-done:
			t.Error("done while a request has the table")
		default:
		}
		<-again
		close(hold)
		wg.Wait()
		<-done
	})
}

// 64 bodies of 25 MiB at once: they are never more in memory than the budget
// says, and none is refused that fits in time.
func TestManyLargestBodiesStayWithinTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("1.6 GB over loopback")
	}
	const (
		mib     = 1 << 20
		largest = 25 * mib
		memory  = 100 * mib
		clients = 64
	)
	w := newWorld(t, ingress.Config{BodyMemory: memory, BodyWait: time.Minute, WriteTimeout: 5 * time.Minute, BodyTimeout: 2 * time.Minute, StallTimeout: time.Minute}, time.Now)
	w.keys = keyring(t, anchorA)
	// One body for all, so that the test itself needs little memory.
	body := bytes.Repeat([]byte(" "), largest)
	signed, err := webhook.GitHub{Keys: w.keys}.Sign(webhook.Message{Body: body, At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("POST /hooks/docs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s: %s\r\n\r\n",
		largest, signed[0].Name, signed[0].Value)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	var mostBodies, mostHeap int64 // guarded by the recorder's lock
	w.recorder.answer = func() (ingress.Recording, error) {
		mostBodies, mostHeap = max(mostBodies, w.Stats().BodyBytes), max(mostHeap, heap())
		return ingress.Accepted, nil
	}
	w.Swap(w.tableOf(t, admitAll{}, nil))
	address := live(t, w)
	runtime.GC()
	before := heap()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			if status, err := post(t, address, head, body); status != 202 || err != nil {
				t.Errorf("client %d: status %d, err = %v", i, status, err)
			}
		})
	}
	wg.Wait()
	if grown := mostHeap - before; grown > memory+16*mib {
		t.Errorf("the heap grew by %d MiB, want at most the budget of %d MiB and a little", grown/mib, memory/mib)
	}
	if mostBodies > memory || mostBodies < largest {
		t.Errorf("at most %d MiB of bodies at once, budget %d MiB", mostBodies/mib, memory/mib)
	}
	if s := w.Stats(); s.BodyBytes != 0 || s.Waiting != 0 {
		t.Errorf("something is left over: %+v", s)
	}
}

// post sends one request and returns the status of its answer.
func post(t *testing.T, address, head string, body []byte) (int, error) {
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head); err != nil {
		return 0, err
	}
	if _, err := conn.Write(body); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

type admitAll struct{}

func (admitAll) Admit(fencepost.Headers, []byte) error { return nil }

// What ingress logs, counts and answers holds nothing of a request but what
// DESIGN §10 names.
func TestNothingOfARequestLeaksOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{MaxBody: 5000}, fixedClock)
	w.recorder.answer = nil
	const canary = "canary"
	var answers strings.Builder
	for i, body := range []string{
		goodBody[:len(goodBody)-1] + `,"canary":"canary"}`, `{"canary":1,"canary":2}`, `canary`, `{"repository":{"id":2,"canary":"canary"}}`,
		`{"repository":{"id":666},"canary":1}`, `{"repository":{"id":667},"canary":1}`, strings.Repeat("canary", 1000),
	} {
		for _, target := range []string{"/hooks/docs?canary=canary", "/hooks/canary", "/canary", "/hooks/lab"} {
			for _, spoil := range []func(*request){
				func(*request) {}, func(r *request) { r.header.Del("X-Hub-Signature-256") }, func(r *request) { r.header.Set("Content-Type", canary) },
				func(r *request) { r.method = "CANARY" }, func(r *request) { r.header["X-Canary"] = make([]string, 300) },
				func(r *request) { r.header.Set("X-Hub-Signature-256", canary) }, func(r *request) { r.header.Set("X-GitHub-Event", canary) },
			} {
				r := w.docs(t, body)
				r.target = target
				r.header.Set("X-Canary", canary)
				r.header.Set("Authorization", canary)
				spoil(r)
				hr := r.http(t.Context())
				hr.RemoteAddr = "canary:1"
				hr.Host = "canary.example"
				rec := httptest.NewRecorder()
				w.ServeHTTP(rec, hr)
				fmt.Fprintln(&answers, i, rec.Code, rec.Header(), rec.Body)
			}
		}
	}
	said := fmt.Sprintf("%+v", w.journal.answers())
	for name, out := range map[string]string{"log": w.log.String(), "answers": answers.String(), "observer": said} {
		if out == "" || strings.Contains(strings.ToLower(out), canary) || strings.Contains(out, "the one secret") || strings.Contains(out, "sha256") {
			t.Errorf("%s is empty or holds a canary:\n%.2000s", name, out)
		}
	}
	if !strings.Contains(w.log.String(), "handler panicked") || !strings.Contains(w.log.String(), "policy.Admit") {
		t.Error("the log does not say where the panic came from")
	}
}

// Refusals can be made without end: the log takes ten a second, and says what
// it left out.
func TestRefusalsDontFloodTheLog(t *testing.T) {
	t.Parallel()
	now := then
	w := newWorld(t, ingress.Config{}, func() time.Time { return now })
	refused := w.docs(t, goodBody)
	refused.header.Del("X-Hub-Signature-256")
	count := func(requests int) int {
		w.log.Reset()
		for range requests {
			w.send(t, refused)
		}
		return strings.Count(w.log.String(), "\n")
	}
	if got := count(100); got != 10 {
		t.Errorf("%d lines of 100 refusals, want 10", got)
	}
	now = now.Add(time.Second)
	if got := count(1); got != 1 || !strings.Contains(w.log.String(), `"suppressed":90`) {
		t.Errorf("a second later: %d lines, %s", got, w.log)
	}
}

func TestHTTP2IsNotSpoken(t *testing.T) {
	t.Parallel()
	address := live(t, newWorld(t, ingress.Config{}, time.Now))
	client := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	client.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("answered %s over %s", resp.Status, resp.Proto)
	}
	client.CloseIdleConnections()
}
