package forgesim_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
)

// A receiver keeps what it is sent.
type receiver struct {
	mu       sync.Mutex
	requests []received
	status   int
	arrived  chan struct{}
}

type received struct {
	header http.Header
	body   []byte
}

func newReceiver(t *testing.T) (*receiver, string) {
	t.Helper()
	r := &receiver{status: http.StatusAccepted, arrived: make(chan struct{}, 1000)}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return r, server.URL + "/hooks/docs"
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, received{request.Header.Clone(), body})
	w.WriteHeader(r.status)
	io.WriteString(w, "noted")
	r.arrived <- struct{}{}
}

func (r *receiver) got() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// Every kind of webhook is held against its description, and where GitHub
// published one against examples.
func TestWebhooksKeepToTheDescription(t *testing.T) {
	t.Parallel()
	for _, user := range []bool{false, true} {
		t.Run(map[bool]string{false: "organization", true: "user"}[user], func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			spec := githubspec.Load(t)
			ctx := t.Context()
			repo, err := b.forge.ImportRepository(ctx, forgesim.Import{Owner: "some", Name: "docs", User: user})
			must(t, err)
			_, err = b.forge.App().Install(repo)
			must(t, err)
			b.forge.App().Ping()
			pr, err := repo.OpenPullRequest(ctx, forgesim.OpenPull{Head: "change", Change: files("a")})
			must(t, err)
			run, err := repo.CreateCheckRun(ctx, forgesim.NewCheckRun{Name: "c", HeadSHA: pr.Head(), Conclusion: "failure", Title: "t", Summary: "s"})
			must(t, err)
			must(t, repo.Rerequest(run))
			_, err = pr.Push(ctx, forgesim.Change{Files: map[string]string{"b": "b"}, Delete: []string{"a"}})
			must(t, err)
			_, err = pr.ForcePush(ctx, files("c"))
			must(t, err)
			_, err = repo.Push(ctx, forgesim.Push{Branch: "release", Change: files("d")})
			must(t, err)
			for _, do := range []func() error{
				func() error { return pr.SetTitle(ctx, "title") }, func() error { return pr.SetBase(ctx, "release") },
				func() error { return pr.SetDraft(ctx, true) }, func() error { return pr.SetDraft(ctx, false) },
				func() error { return pr.Close(ctx) }, func() error { return pr.Reopen(ctx) },
				func() error { return pr.Merge(ctx) }, func() error { return repo.DeleteBranch(ctx, "change") },
			} {
				must(t, do())
			}
			seen := map[string]bool{}
			for _, d := range b.forge.TakeOutbox() {
				seen[d.Event+" "+d.Action] = true
				request, err := b.forge.Request(ctx, d, "http://127.0.0.1:1/hook")
				must(t, err)
				request.Header.Set("X-Hub-Signature-256", "sha256=of-another-test")
				if err := spec.CheckWebhook(request.Header, d.Body); err != nil {
					t.Errorf("%v", err)
				}
				if unlike := spec.Compare(d.Event, d.Action, d.Body); unlike != nil && !unpublished(d, user) {
					t.Errorf("%s %s: %v", d.Event, d.Action, unlike)
				}
			}
			for _, want := range []string{
				"ping ", "push ", "pull_request opened", "pull_request synchronize", "pull_request edited", "pull_request closed",
				"pull_request reopened", "pull_request ready_for_review", "pull_request converted_to_draft",
				"check_run created", "check_run completed", "check_run rerequested",
			} {
				if !seen[want] {
					t.Errorf("no webhook %s was made", want)
				}
			}
		})
	}
}

// unpublished are the events without a published example of an App's hook, or
// of a user's repository.
func unpublished(d forgesim.Delivery, user bool) bool {
	return d.Event == "ping" || d.Event == "pull_request" && d.Action == "edited" || user && d.Action == "rerequested"
}

func TestWebhooksAreSigned(t *testing.T) {
	t.Parallel()
	secret := []byte("It's a Secret to Everybody")
	b := newBench(t, func(c *forgesim.Config) { c.App.HookSecret = secret })
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, secret)
	b.open("change")
	must(t, b.forge.Deliver(t.Context()))
	got := r.got()
	if len(got) != 2 {
		t.Fatalf("%d requests arrived, want push and pull_request", len(got))
	}
	for _, request := range got {
		mac := hmac.New(sha256.New, secret)
		mac.Write(request.body)
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); request.header.Get("X-Hub-Signature-256") != want {
			t.Errorf("signature %s, want %s", request.header.Get("X-Hub-Signature-256"), want)
		}
		if !strings.HasPrefix(request.header.Get("User-Agent"), "GitHub-Hookshot/") || request.header.Get("X-GitHub-Delivery") == "" {
			t.Errorf("headers %v lack GitHub's own", request.header)
		}
	}
	// The published vector.
	if got := forgesim.Sign(secret, []byte("Hello, World!")); got != "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" {
		t.Errorf("signature of the vector is %s", got)
	}
	b.forge.App().SetHook(url, nil)
	b.forge.App().Ping()
	must(t, b.forge.Deliver(t.Context()))
	if got := r.got()[2].header; got.Get("X-Hub-Signature-256") != "" {
		t.Errorf("a hook without a secret is signed: %v", got)
	}
}

func TestARedeliveryIsTheSameBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, []byte("first secret of the hook"))
	r.answer(http.StatusInternalServerError)
	b.open("change")
	must(t, b.forge.Deliver(t.Context()))
	first := b.forge.Deliveries()[1]
	r.answer(http.StatusAccepted)
	b.forge.App().SetHook(url, []byte("second secret of the hook"))
	b.wantAs(b.jwt(), 202, "POST", fmt.Sprintf("/app/hook/deliveries/%d/attempts", first.ID), "")
	must(t, b.forge.Deliver(t.Context()))
	got := r.got()
	again := got[len(got)-1]
	if !bytes.Equal(again.body, got[1].body) || again.header.Get("X-GitHub-Delivery") != first.GUID {
		t.Errorf("the redelivery has other bytes or GUID %s, want %s", again.header.Get("X-GitHub-Delivery"), first.GUID)
	}
	if want := "sha256=" + forgesim.Sign([]byte("second secret of the hook"), again.body); again.header.Get("X-Hub-Signature-256") != want {
		t.Errorf("the redelivery is not signed with the present secret")
	}
	log := b.wantAs(b.jwt(), 200, "GET", "/app/hook/deliveries", "").list(t)
	if len(log) != 3 || log[0]["redelivery"] != true || log[0]["status_code"] != 202.0 || log[1]["status_code"] != 500.0 {
		t.Errorf("the log is %v, want the redelivery with 202 before what failed", log)
	}
	one := b.wantAs(b.jwt(), 200, "GET", fmt.Sprintf("/app/hook/deliveries/%d", first.ID), "").object(t)
	if payload := one["request"].(map[string]any)["payload"].(map[string]any); payload["action"] != "opened" {
		t.Errorf("the log's payload is %v", payload["action"])
	}
	b.clock.Advance(72*time.Hour + time.Second)
	b.wantAs(b.jwt(), 422, "POST", fmt.Sprintf("/app/hook/deliveries/%d/attempts", first.ID), "")
	if err := b.forge.Redeliver(first.ID); !errors.Is(err, forgesim.ErrTooOld) {
		t.Errorf("redeliver: %v, want ErrTooOld", err)
	}
	b.wantAs(b.jwt(), 404, "POST", "/app/hook/deliveries/7/attempts", "")
}

func TestTheDeliveryLogIsReadByCursor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	for i := range 7 {
		r.answer(200 + 300*(i%2))
		b.forge.App().Ping()
		must(t, b.forge.Deliver(t.Context()))
	}
	// A receiver that is not there is neither a success nor a failure.
	b.forge.App().SetHook("http://127.0.0.1:1/hook", nil)
	b.forge.App().Ping()
	must(t, b.forge.Deliver(t.Context()))
	for status, want := range map[string]int{"": 8, "success": 4, "failure": 3} {
		query := "?per_page=3"
		if status != "" {
			query += "&status=" + status
		}
		var ids []int64
		for next := "/app/hook/deliveries" + query; next != ""; {
			page := b.wantAs(b.jwt(), 200, "GET", next, "")
			for _, id := range deliveryIDs(t, page.body) {
				if id < 1<<53 {
					t.Errorf("id %d fits a float", id)
				}
				ids = append(ids, id)
			}
			next = nextLink(page.header.Get("Link"))
		}
		if len(ids) != want || !slices.IsSortedFunc(ids, func(a, b int64) int { return int(b - a) }) {
			t.Errorf("status %q lists %v, want %d, newest first", status, ids, want)
		}
	}
	last := b.forge.Deliveries()[7]
	if last.StatusCode != 0 || last.Status == "OK" {
		t.Errorf("the unanswered delivery is %d %q", last.StatusCode, last.Status)
	}
	b.wantAs(b.jwt(), 400, "GET", "/app/hook/deliveries?cursor=x", "")
}

func TestDeliveringWithoutAHook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.App().Ping()
	if err := b.forge.Deliver(t.Context()); !errors.Is(err, forgesim.ErrNoHook) {
		t.Errorf("deliver: %v, want ErrNoHook", err)
	}
	if n := len(b.forge.Outbox()); n != 1 {
		t.Errorf("the outbox holds %d, want the ping still", n)
	}
}

func TestFormModeSignsTheForm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, url := newReceiver(t)
	secret := "secret of the form mode"
	b.wantAs(b.jwt(), 200, "PATCH", "/app/hook/config", fmt.Sprintf(`{"url":%q,"secret":%q,"content_type":"form"}`, url, secret))
	if shown := b.wantAs(b.jwt(), 200, "GET", "/app/hook/config", "").object(t); shown["secret"] != "********" {
		t.Errorf("the secret shows as %v", shown["secret"])
	}
	b.forge.App().Ping()
	must(t, b.forge.Deliver(t.Context()))
	got := r.got()[0]
	if !bytes.HasPrefix(got.body, []byte("payload=%7B")) || got.header.Get("X-Hub-Signature-256") != "sha256="+forgesim.Sign([]byte(secret), got.body) {
		t.Errorf("body %.20q… signed %s", got.body, got.header.Get("X-Hub-Signature-256"))
	}
	b.wantAs(b.jwt(), 422, "PATCH", "/app/hook/config", `{"content_type":"xml"}`)
}

func TestAStartedForgeDeliversByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	server, err := b.forge.Start(t.Context())
	must(t, err)
	b.open("change")
	for range 2 {
		<-r.arrived
	}
	must(t, server.Close())
	var payload map[string]any
	must(t, json.Unmarshal(r.got()[1].body, &payload))
	if link := payload["pull_request"].(map[string]any)["url"].(string); link != server.API+"/repos/acme/docs/pulls/1" {
		t.Errorf("the payload's link is %s, want one below %s", link, server.API)
	}
}

func TestHostileDeliveriesComeTwiceAndOutOfOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) {
		c.Hostility = forgesim.Hostility{Seed: 1, Duplicate: 0.3, Reorder: 0.5}
	})
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	for range 40 {
		b.forge.App().Ping()
	}
	made := b.forge.Outbox()
	must(t, b.forge.Deliver(t.Context()))
	got := r.got()
	guids := map[string]int{}
	ordered := true
	for i, request := range got {
		guid := request.header.Get("X-GitHub-Delivery")
		guids[guid]++
		ordered = ordered && i < len(made) && made[i].GUID == guid
	}
	if len(guids) != 40 || len(got) <= 40 || ordered {
		t.Errorf("%d requests of %d deliveries, in order: %v; want all, some twice, some overtaken", len(got), len(guids), ordered)
	}
}

// deliveryIDs reads the ids of a page without a float.
func deliveryIDs(t *testing.T, page []byte) []int64 {
	t.Helper()
	var items []struct {
		ID int64 `json:"id"`
	}
	must(t, json.Unmarshal(page, &items))
	var ids []int64
	for _, item := range items {
		ids = append(ids, item.ID)
	}
	return ids
}
