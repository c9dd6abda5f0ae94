package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A parcel is one delivery as a provider makes it, to be altered and signed.
type parcel struct {
	event, id string
	body      []byte
}

// altered is the parcel with another id and a field changed: path leads to it.
func (p parcel) altered(t *testing.T, id string, value any, path ...string) parcel {
	t.Helper()
	var body map[string]any
	decoder := json.NewDecoder(bytes.NewReader(p.body))
	decoder.UseNumber()
	if err := decoder.Decode(&body); err != nil {
		t.Fatal(err)
	}
	at := body
	for _, name := range path[:len(path)-1] {
		at = at[name].(map[string]any)
	}
	at[path[len(path)-1]] = value
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return parcel{p.event, id, text}
}

// A sender is the provider's side of one source with manual delivery.
type sender struct {
	// push moves a branch and returns the delivery that tells of it.
	push func(t *testing.T, p forgesim.Push) (commit string, made parcel)
	// sign makes the signed request.
	sign func(t *testing.T, p parcel, to string) *http.Request
	// hold lets the next fetch wait until release is called.
	hold func() (held <-chan struct{}, release func())
}

func githubSender(f *world.Field) sender {
	hook := f.Hooks["handbook"]
	return sender{
		push: func(t *testing.T, p forgesim.Push) (string, parcel) {
			t.Helper()
			commit := pushTo(t, f, p)
			for _, d := range f.Forge.TakeOutbox() {
				if d.Event == "push" {
					return commit, parcel{d.Event, d.GUID, d.Body}
				}
			}
			t.Fatal("no push was made")
			return "", parcel{}
		},
		sign: func(t *testing.T, p parcel, to string) *http.Request {
			t.Helper()
			req, err := f.Forge.Request(t.Context(), forgesim.Delivery{Event: p.event, GUID: p.id, HookID: hook.ID(), Body: p.body}, to)
			if err != nil {
				t.Fatal(err)
			}
			return req
		},
		hold: func() (<-chan struct{}, func()) {
			held, free := make(chan struct{}), make(chan struct{})
			f.Forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Effect: forgesim.Before{Do: func(ctx context.Context) error {
				close(held)
				select {
				case <-free:
				case <-ctx.Done():
				}
				return nil
			}}})
			return held, sync.OnceFunc(func() { close(free) })
		},
	}
}

// giteaField makes a field whose source is of a Gitea: the rest is as at
// GitHub.
func giteaField(t *testing.T, config world.FieldConfig) (*world.Field, sender) {
	t.Helper()
	f := fallowField(t, handbook(config))
	forge, err := gitea.New(t.Context(), gitea.Config{Dir: filepath.Join(f.Dir, "gitea"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	r, err := forge.CreateRepository(t.Context(), gitea.Create{Owner: world.Owner, Name: "handbook", ID: 77, OwnerID: 78, Files: edition(0)})
	if err != nil {
		t.Fatal(err)
	}
	hook := r.AddHook(gitea.HookConfig{Secret: []byte(f.Secret)})
	server, err := forge.Start(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	was := f.Repositories["handbook"]
	for from, to := range map[string]string{
		"provider: github":     "provider: gitea",
		"api: " + f.Server.API: "api: " + server.API,
		"git: " + f.Server.Git: "git: " + server.Git,
		fmt.Sprintf("{id: %d, owner_id: %d, name: %s}", was.ID(), was.OwnerID(), was.FullName()): fmt.Sprintf("{id: %d, owner_id: %d, name: %s}", r.ID(), r.OwnerID(), r.FullName()),
	} {
		rewrite(t, f.ConfigFile(0), from, to)
	}
	token := forge.NewToken("reader", "read:repository")
	if err := os.WriteFile(filepath.Join(f.Dir, "secrets", "read-handbook"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return f, sender{
		push: func(t *testing.T, p forgesim.Push) (string, parcel) {
			t.Helper()
			commit, err := r.Push(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range forge.TakeOutbox() {
				if d.Event == "push" {
					return commit, parcel{d.Event, d.UUID, d.Body}
				}
			}
			t.Fatal("no push was made")
			return "", parcel{}
		},
		sign: func(t *testing.T, p parcel, to string) *http.Request {
			t.Helper()
			req, err := forge.Request(t.Context(), gitea.Delivery{Event: p.event, UUID: p.id, Hook: hook, Body: p.body}, to)
			if err != nil {
				t.Fatal(err)
			}
			return req
		},
		hold: func() (<-chan struct{}, func()) {
			held, free := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(held) })
			forge.Interfere(func(r *http.Request) *gitea.Answer {
				if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
					once()
					select {
					case <-free:
					case <-r.Context().Done():
					}
				}
				return nil
			})
			return held, sync.OnceFunc(func() { close(free) })
		},
	}
}

// calm are timings under which nothing is looked at but for a webhook.
var calm = strings.NewReplacer("target: 5m", "target: 14m", "reconcile: 2s", "reconcile: 5m", "alert_after: 30s", "alert_after: 8m").Replace(swift)

// Every answer of a source's route, by a process of its own (DESIGN §4, §9).
func TestAnswersOfASourceRoute(t *testing.T) {
	t.Parallel()
	t.Run("github", func(t *testing.T) {
		t.Parallel()
		f := fallowField(t, handbook(world.FieldConfig{Manual: true, Timings: calm}))
		answersOfARoute(t, f, githubSender(f))
	})
	t.Run("gitea", func(t *testing.T) {
		t.Parallel()
		f, s := giteaField(t, world.FieldConfig{Manual: true, Timings: calm})
		answersOfARoute(t, f, s)
	})
}

// rows count what a delivery may write.
func (l ledger) written() map[string]int64 {
	l.t.Helper()
	n := map[string]int64{}
	for _, table := range []string{"source_deliveries", "source_runs", "source_requests", "source_jobs", "source_alerts"} {
		n[table] = l.count("select count(*) from " + table)
	}
	n["announcements"] = l.count("select sum(announcements) from sources")
	return n
}

func answersOfARoute(t *testing.T, f *world.Field, s sender) {
	route := f.HookURL(0, "handbook")
	// Senders are named by id: the first push tells it.
	_, told := s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(1)}})
	var who struct {
		Sender struct {
			ID    int64
			Login string
		}
	}
	if err := json.Unmarshal(told.body, &who); err != nil || who.Sender.ID == 0 {
		t.Fatalf("sender %+v, %v", who.Sender, err)
	}
	rewrite(t, f.ConfigFile(0), "any_writer: true",
		fmt.Sprintf("senders: [{id: %d, login: %s}]\n    unannounced_heads: accept", who.Sender.ID, who.Sender.Login))
	if _, err := f.Controllers[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	l := lookInto(t, f)
	send := func(t *testing.T, p parcel, to string) (int, world.Answer) {
		t.Helper()
		return exchange(t, f, s.sign(t, p, to))
	}
	want := func(t *testing.T, p parcel, status int, outcome string) world.Answer {
		t.Helper()
		got, a := send(t, p, route)
		if text := strings.TrimSpace(a.Outcome + " " + string(a.Reason)); got != status || text != outcome {
			t.Errorf("answered %d %s, want %d %s", got, text, status, outcome)
		}
		return a
	}
	l.awaitQuiet("handbook")

	commit, pushed := s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(2)}})
	first := want(t, pushed, 202, "accepted")
	l.awaitApplied("handbook", commit)
	if again := want(t, pushed, 200, "replayed"); again.Delivery != first.Delivery {
		t.Errorf("the same bytes are delivery %s, were %s", again.Delivery, first.Delivery)
	}
	if again := want(t, parcel{pushed.event, "another-id", pushed.body}, 200, "replayed"); again.Delivery != first.Delivery {
		t.Errorf("the same bytes under another id are delivery %s, were %s", again.Delivery, first.Delivery)
	}
	want(t, parcel{pushed.event, pushed.id, append(bytes.Clone(pushed.body), '\n')}, 409, "rejected delivery_conflict")
	wantNoRowOfTheRefused(t, f, l, s, pushed, send)

	runs := len(l.runs("handbook"))
	commit, pushed = s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(3)}})
	fiveCopies(t, f, s, pushed, route)
	l.awaitApplied("handbook", commit)
	if n := len(l.runs("handbook")) - runs; n != 1 {
		t.Errorf("five copies made %d runs, want one: %s", n, l.story("handbook"))
	}

	// While a run is under way, two more pushes make one follow-up.
	runs = len(l.runs("handbook"))
	held, release := s.hold()
	defer release()
	_, pushed = s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(4)}})
	want(t, pushed, 202, "accepted")
	<-held
	_, pushed = s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(5)}})
	want(t, pushed, 200, "coalesced")
	commit, pushed = s.push(t, forgesim.Push{Change: forgesim.Change{Files: edition(6)}})
	want(t, pushed, 200, "coalesced")
	release()
	l.awaitApplied("handbook", commit)
	if n := len(l.runs("handbook")) - runs; n != 2 {
		t.Errorf("a run and its follow-up are %d runs, want two: %s", n, l.story("handbook"))
	}
	l.wantSound()
	_, tr, err := served(f.Served("handbook"))
	if err != nil || tr["README.md"] != "100644 edition 6\n" {
		t.Errorf("served is %q, %v", tr["README.md"], err)
	}
}

// wantNoRowOfTheRefused sends what must be refused, or ignored, and demands
// that nothing of it is written down.
func wantNoRowOfTheRefused(
	t *testing.T, f *world.Field, l ledger, s sender, pushed parcel,
	send func(*testing.T, parcel, string) (int, world.Answer),
) {
	t.Helper()
	before := l.written()
	const other = "0123456789abcdef0123456789abcdef01234567"
	for _, tc := range []struct {
		name   string
		parcel parcel
		status int
		want   string
	}{
		{"another branch", pushed.altered(t, "1", "refs/heads/other", "ref"), 200, "ignored event_not_handled"},
		{"a tag", pushed.altered(t, "2", "refs/tags/main", "ref"), 200, "ignored event_not_handled"},
		{"another repository", pushed.altered(t, "3", 4711, "repository", "id"), 403, "rejected unauthorized"},
		{"another owner", pushed.altered(t, "4", 4711, "repository", "owner", "id"), 403, "rejected unauthorized"},
		{"another name", pushed.altered(t, "5", "acme/other", "repository", "full_name"), 403, "rejected unauthorized"},
		{"another sender", pushed.altered(t, "6", 4711, "sender", "id"), 403, "rejected unauthorized"},
		{"a sender of another login", pushed.altered(t, "7", "mallory", "sender", "login"), 403, "rejected unauthorized"},
		{"heads that contradict", pushed.altered(t, "8", other, "head_commit", "id"), 403, "rejected unauthorized"},
		{"a head that is none", pushed.altered(t, "9", strings.Repeat("0", 40), "after"), 400, "rejected malformed"},
		{"a short head", pushed.altered(t, "10", other[:10], "after"), 400, "rejected malformed"},
		{"no repository", pushed.altered(t, "11", nil, "repository"), 400, "rejected malformed"},
		{"not JSON", parcel{pushed.event, "12", []byte("{")}, 400, "rejected malformed"},
		{"two objects", parcel{pushed.event, "13", []byte("{}{}")}, 400, "rejected malformed"},
		{"a name twice", parcel{pushed.event, "14", []byte(`{"ref":"a","ref":"b"}`)}, 400, "rejected malformed"},
	} {
		status, a := send(t, tc.parcel, f.HookURL(0, "handbook"))
		if text := strings.TrimSpace(a.Outcome + " " + string(a.Reason)); status != tc.status || text != tc.want {
			t.Errorf("%s: answered %d %s, want %d %s", tc.name, status, text, tc.status, tc.want)
		}
	}
	wantRefusedUnread(t, f, s, pushed)
	if diff := cmp.Diff(before, l.written()); diff != "" {
		t.Errorf("rows before and after (-before +after):\n%s", diff)
	}
}

// wantRefusedUnread sends what is refused before anything of it is read.
func wantRefusedUnread(t *testing.T, f *world.Field, s sender, pushed parcel) {
	t.Helper()
	route := f.HookURL(0, "handbook")
	forged := s.sign(t, pushed, route)
	for name := range forged.Header {
		if value := forged.Header.Get(name); strings.Contains(name, "Signature") && value != "" {
			last := map[bool]string{true: "1", false: "0"}[strings.HasSuffix(value, "0")]
			forged.Header.Set(name, value[:len(value)-1]+last)
		}
	}
	status, wrong := exchange(t, f, forged)
	if status != 401 || wrong.Reason != "unauthenticated" {
		t.Errorf("a forged delivery was answered %d %s", status, wrong)
	}
	if status, unknown := exchange(t, f, s.sign(t, pushed, f.HookURL(0, "nowhere"))); status != 401 || unknown != wrong {
		t.Errorf("an unknown route was answered %d %s, a forged delivery 401 %s", status, unknown, wrong)
	}
	twice := s.sign(t, pushed, route)
	for name, values := range twice.Header {
		if strings.Contains(name, "Signature") {
			twice.Header[name] = append(values, values...)
		}
	}
	if status, a := exchange(t, f, twice); status != 401 {
		t.Errorf("two signatures were answered %d %s", status, a)
	}
	kind := s.sign(t, pushed, route)
	kind.Header.Set("Content-Type", "text/plain")
	if status, a := exchange(t, f, kind); status != http.StatusUnsupportedMediaType {
		t.Errorf("text was answered %d %s", status, a)
	}
	got := s.sign(t, pushed, route)
	got.Method = http.MethodPut
	if status, a := exchange(t, f, got); status != http.StatusMethodNotAllowed {
		t.Errorf("PUT was answered %d %s", status, a)
	}
}

// fiveCopies sends the same delivery five times at once: each is answered as
// the same delivery, one of them as new.
func fiveCopies(t *testing.T, f *world.Field, s sender, pushed parcel, route string) {
	t.Helper()
	const copies = 5
	answers := make([]world.Answer, copies)
	requests := make([]*http.Request, copies)
	for i := range requests {
		requests[i] = s.sign(t, pushed, route)
	}
	var all sync.WaitGroup
	for i, req := range requests {
		all.Go(func() {
			resp, err := f.Client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&answers[i]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	outcomes := map[string]int{}
	for _, a := range answers {
		outcomes[a.Outcome]++
		if a.Delivery != answers[0].Delivery || a.Delivery == "" {
			t.Errorf("one copy is delivery %s, another %s", a.Delivery, answers[0].Delivery)
		}
	}
	if diff := cmp.Diff(map[string]int{"accepted": 1, "replayed": copies - 1}, outcomes); diff != "" {
		t.Errorf("outcomes of five copies (-want +got):\n%s", diff)
	}
}
