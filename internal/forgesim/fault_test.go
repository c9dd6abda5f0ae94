package forgesim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

const createOperation = "POST /repos/{owner}/{repo}/check-runs"

func TestFaultsMeetTheRequestsTheyName(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fault := b.forge.Inject(forgesim.Fault{
		On: "GET /repos/{owner}/{repo}/pulls*", Repository: b.repo.ID(), Skip: 1, Times: 2, Effect: forgesim.Fail{Code: 502},
	})
	b.get("/repos/acme/docs")
	for i, want := range []int{200, 502, 502, 200} {
		r, err := b.ask("GET", "/repos/acme/docs/pulls", b.token, "")
		must(t, err)
		if r.status != want {
			t.Errorf("request %d answered %d, want %d", i, r.status, want)
		}
	}
	if fault.Met() != 2 {
		t.Errorf("the fault met %d requests, want 2", fault.Met())
	}
	b.forge.Inject(forgesim.Fault{On: "GET /app", Times: -1, Effect: forgesim.Fail{Code: 503, RetryAfter: 1500 * time.Millisecond}})
	for range 3 {
		r := b.wantAs(b.jwt(), 503, "GET", "/app", "")
		if r.header.Get("Retry-After") != "2" {
			t.Errorf("Retry-After %q, want 2, rounded up", r.header.Get("Retry-After"))
		}
	}
	b.forge.Calm()
	b.wantAs(b.jwt(), 200, "GET", "/app", "")
	other := b.forge.Inject(forgesim.Fault{Repository: 7, Effect: forgesim.Fail{Code: 500}})
	b.get("/repos/acme/docs")
	other.End()
	journal := b.forge.Journal()
	if faults := journal[2].Faults; len(faults) != 1 || faults[0] != "Fail" {
		t.Errorf("the journal has faults %v, want Fail", faults)
	}
}

func TestALostAnswerLeavesTheWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server, err := b.forge.Start(t.Context())
	must(t, err)
	defer server.Close()
	head := b.repo.Ref("refs/heads/main")
	for _, transport := range []struct {
		name string
		url  string
		http *http.Client
	}{
		{"in process", "http://forge.invalid" + forgesim.APIPrefix, b.http},
		{"over a socket", server.API, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}},
	} {
		for _, test := range []struct {
			name   string
			effect forgesim.Effect
			made   int
		}{
			{"request dropped", forgesim.DropRequest{}, 0},
			{"answer dropped", forgesim.DropAnswer{}, 1},
		} {
			t.Run(transport.name+"/"+test.name, func(t *testing.T) {
				before := len(b.repo.CheckRuns(head))
				b.forge.Inject(forgesim.Fault{On: createOperation, Effect: test.effect})
				b.http = transport.http
				r, err := b.ask("POST", transport.url+"/repos/acme/docs/check-runs", b.token, createRun("c", head, "e"))
				if err == nil {
					t.Fatalf("answered %d, want a closed connection", r.status)
				}
				if transport.name == "in process" && !errors.Is(err, forgesim.ErrDropped) {
					t.Errorf("error %v, want ErrDropped", err)
				}
				if made := len(b.repo.CheckRuns(head)) - before; made != test.made {
					t.Errorf("%d runs were made, want %d", made, test.made)
				}
			})
		}
		t.Run(transport.name+"/truncated", func(t *testing.T) {
			b.forge.Inject(forgesim.Fault{Effect: forgesim.Truncate{}})
			b.http = transport.http
			r, err := b.ask("GET", transport.url+"/repos/acme/docs", b.token, "")
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(r.body) == 0 {
				t.Errorf("error %v after %d bytes, want ErrUnexpectedEOF after some", err, len(r.body))
			}
		})
		t.Run(transport.name+"/garbled", func(t *testing.T) {
			b.forge.Inject(forgesim.Fault{Effect: forgesim.Garble{}})
			b.http = transport.http
			r, err := b.ask("GET", transport.url+"/repos/acme/docs", b.token, "")
			must(t, err)
			if json.Valid(r.body) || r.status != 200 {
				t.Errorf("answered %d with valid JSON", r.status)
			}
		})
	}
	b.http.CloseIdleConnections()
}

func TestStaleReads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	list := "?app_id=12345&check_name=c&filter=all"
	if n := len(b.runs(head, list)); n != 0 {
		t.Fatalf("%d runs before any", n)
	}
	b.want(201, "POST", "/repos/acme/docs/check-runs", createRun("c", head, "e"))
	b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/commits/{ref}/check-runs", Effect: forgesim.Stale{}})
	if n := len(b.runs(head, list)); n != 0 {
		t.Errorf("a stale list shows %d runs, want none as before", n)
	}
	if n := len(b.runs(head, list)); n != 1 {
		t.Errorf("the next list shows %d runs, want 1", n)
	}
	b.forge.Inject(forgesim.Fault{Effect: forgesim.HideRuns{N: 1}})
	if n := len(b.runs(head, "?per_page=7")); n != 0 {
		t.Errorf("a list that hides the newest shows %d runs", n)
	}
	pr := b.open("change")
	old := b.pollPull(pr)["head"].(map[string]any)["sha"]
	_, err := pr.Push(t.Context(), files("more"))
	must(t, err)
	b.forge.Inject(forgesim.Fault{Effect: forgesim.Stale{}})
	if got := b.get("/repos/acme/docs/pulls/1").object(t)["head"].(map[string]any)["sha"]; got != old {
		t.Errorf("a stale request has head %v, want the old %v", got, old)
	}
}

func TestRateLimitFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, test := range []struct {
		name   string
		effect forgesim.Effect
		status int
		header map[string]string
	}{
		{"primary", forgesim.PrimaryLimit{In: 30 * time.Second}, 403, map[string]string{
			"X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1796040030", "Retry-After": "",
		}},
		{"primary as 429", forgesim.PrimaryLimit{Code: 429}, 429, map[string]string{"X-Ratelimit-Remaining": "0"}},
		{"secondary", forgesim.SecondaryLimit{RetryAfter: 7 * time.Second}, 403, map[string]string{
			"Retry-After": "7", "X-Ratelimit-Remaining": "4997",
		}},
		{"secondary without Retry-After", forgesim.SecondaryLimit{Code: 429}, 429, map[string]string{"Retry-After": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.forge.Inject(forgesim.Fault{On: createOperation, Effect: test.effect})
			r := b.want(test.status, "POST", "/repos/acme/docs/check-runs", createRun("c", b.repo.Ref("refs/heads/main"), "e"))
			for name, want := range test.header {
				if got := r.header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		})
	}
	if n := len(b.repo.CheckRuns("")); n != 0 {
		t.Errorf("limited requests made %d runs", n)
	}
}

func TestNotYet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.repo.Ref("refs/heads/main")
	for _, test := range []struct {
		method, path, body string
		not, then          int
	}{
		{"POST", "/repos/acme/docs/check-runs", createRun("c", head, "e"), 422, 201},
		{"GET", "/repos/acme/docs/git/commits/" + head, "", 404, 200},
		{"GET", "/repos/acme/docs/commits/" + head + "/check-runs", "", 422, 200},
	} {
		b.forge.Inject(forgesim.Fault{Times: 2, Effect: forgesim.NotYet{}})
		b.want(test.not, test.method, test.path, test.body)
		b.want(test.not, test.method, test.path, test.body)
		b.want(test.then, test.method, test.path, test.body)
	}
}

func TestATokenExpiresInMidFlow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.Inject(forgesim.Fault{On: createOperation, Effect: forgesim.ExpireToken{}})
	b.get("/repos/acme/docs")
	b.want(401, "POST", "/repos/acme/docs/check-runs", createRun("c", b.repo.Ref("refs/heads/main"), "e"))
	b.want(401, "GET", "/repos/acme/docs", "")
	b.token = b.inst.Token(b.repo)
	b.get("/repos/acme/docs")
	b.forge.RevokeTokens()
	b.want(401, "GET", "/repos/acme/docs", "")
}

func TestRedirectFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.Inject(forgesim.Fault{Effect: forgesim.Redirect{Location: "http://elsewhere.invalid/x"}})
	r := b.want(302, "GET", "/repos/acme/docs", "")
	if got := r.header.Get("Location"); got != "http://elsewhere.invalid/x" {
		t.Errorf("Location %q", got)
	}
}

func TestTheWorldMovesBetweenTwoCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	var moved string
	b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/pulls/{pull_number}", Effect: forgesim.Before{
		Do: func(ctx context.Context) (err error) {
			moved, err = pr.Push(ctx, files("more"))
			return err
		},
	}})
	if got := b.get("/repos/acme/docs/pulls/1").object(t)["head"].(map[string]any)["sha"]; got != moved || moved == "" {
		t.Errorf("the answer has head %v, want %s", got, moved)
	}
	closed := b.forge.Inject(forgesim.Fault{On: createOperation, Effect: forgesim.After{Do: pr.Close}})
	b.want(201, "POST", "/repos/acme/docs/check-runs", createRun("c", moved, "e"))
	if pr.State() != "closed" || closed.Met() != 1 {
		t.Errorf("the request is %s after the call, want closed", pr.State())
	}
	b.forge.Inject(forgesim.Fault{Effect: forgesim.Before{Do: func(context.Context) error { return errors.New("no") }}})
	b.want(500, "GET", "/repos/acme/docs", "")
}

func TestDelaysArePassedByTheClientsClock(t *testing.T) {
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		b.t = t // its context is the bubble's
		b.forge.Inject(forgesim.Fault{Effect: forgesim.Delay{For: time.Minute}})
		b.forge.Inject(forgesim.Fault{Effect: forgesim.Delay{For: time.Second}})
		start := time.Now()
		b.get("/repos/acme/docs")
		if got := time.Since(start); got != 61*time.Second {
			t.Errorf("the answer took %v, want both delays", got)
		}
		b.forge.Inject(forgesim.Fault{On: createOperation, Effect: forgesim.Delay{For: time.Hour}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, "POST", "http://forge.invalid"+forgesim.APIPrefix+"/repos/acme/docs/check-runs",
			strings.NewReader(createRun("c", b.repo.Ref("refs/heads/main"), "e")))
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+b.token)
		request.Header.Set("User-Agent", "test")
		request.Header.Set("Content-Type", "application/json")
		if _, err := do(b.http, request); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want DeadlineExceeded", err)
		}
		if n := len(b.repo.CheckRuns("")); n != 1 {
			t.Errorf("%d runs, want the one of the request that gave up", n)
		}
	})
}

func TestHostilityIsTheSameForASeed(t *testing.T) {
	t.Parallel()
	statuses := func(seed uint64) (all []int) {
		b := newBench(t, func(c *forgesim.Config) { c.Hostility = forgesim.Hostile(seed) })
		for range 100 {
			r, err := b.ask("GET", "/repos/acme/docs/git/ref/heads/main", b.token, "")
			must(t, err)
			all = append(all, r.status)
		}
		return all
	}
	one, again, other := statuses(1), statuses(1), statuses(2)
	count := 0
	same := true
	for i := range one {
		if one[i] != again[i] {
			t.Fatalf("request %d answered %d, then %d", i, one[i], again[i])
		}
		same = same && one[i] == other[i]
		if one[i] >= 500 {
			count++
		}
	}
	if count == 0 || count > 15 || same {
		t.Errorf("%d of 100 failed, the same for another seed: %v", count, same)
	}
}

func TestHostileWritesAreDoneAndAnswered502(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.Hostility = forgesim.Hostility{Seed: 1, LostWrite: 0.3} })
	head := b.repo.Ref("refs/heads/main")
	lost := 0
	for range 20 {
		r, err := b.ask("POST", "/repos/acme/docs/check-runs", b.token, createRun("c", head, "e"))
		must(t, err)
		if r.status == http.StatusBadGateway {
			lost++
		}
	}
	if n := len(b.repo.CheckRuns(head)); n != 20 || lost == 0 || lost == 20 {
		t.Errorf("%d runs were made and %d answers lost, want all 20 and some", n, lost)
	}
}

func TestHostileListsHideTheNewestRun(t *testing.T) {
	t.Parallel()
	hidden := false
	b := newBench(t, func(c *forgesim.Config) { c.Hostility = forgesim.Hostility{Seed: 3, HiddenReads: 1} })
	head := b.repo.Ref("refs/heads/main")
	for i := range 20 {
		b.want(201, "POST", "/repos/acme/docs/check-runs", createRun("c", head, "e"))
		n := len(b.runs(head, "?filter=all"))
		hidden = hidden || n == i
		if after := len(b.runs(head, "?filter=all")); after != i+1 {
			t.Errorf("the second list shows %d runs, want %d", after, i+1)
		}
	}
	if !hidden {
		t.Error("no list hid a run")
	}
}
