package github_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
)

const canary = "ghs_CANARY_do_not_show"

// A double answers like GitHub as far as a test scripts it: what it does not
// script is 404.
type double struct {
	*httptest.Server
	mints, calls atomic.Int32
}

func newDouble(t *testing.T, mint, rest http.HandlerFunc) *double {
	t.Helper()
	d := &double{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/access_tokens") {
			d.mints.Add(1)
			mint(w, r)
			return
		}
		d.calls.Add(1)
		rest(w, r)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *double) lane(t *testing.T, edit ...func(*github.ClientConfig)) *github.Lane {
	t.Helper()
	config := github.ClientConfig{
		API: parseURL(t, d.URL+"/api/v3/"), AllowHTTP: true, Limits: quick(), Now: time.Now,
		App:       github.App{ID: 12345, Installation: 67890, Key: keyOf(pkcs1(appKey()))},
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	for _, e := range edit {
		e(&config)
	}
	client, err := github.NewClient(config)
	must(t, err)
	lane, err := github.NewLane(client, github.LaneConfig{
		Gate: "docs", Repository: github.Repository{ID: 1296269, OwnerID: 583231, Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: check, Git: parseURL(t, d.URL), AllowHTTP: true,
	})
	must(t, err)
	return lane
}

func tokenAnswer(edit ...string) string {
	return strings.NewReplacer(edit...).Replace(fmt.Sprintf(`{"token":%q,"expires_at":%q,
		"permissions":{"checks":"write","contents":"read","metadata":"read","pull_requests":"read","statuses":"read"},
		"repository_selection":"selected","repositories":[{"id":1296269}]}`, canary, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
}

func good(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, tokenAnswer())
}

// aSubject is enough to make a refresh begin.
func aSubject(t *testing.T) gate.Subject { return aVerdict(t).Subject }

func TestEveryRequestSaysWhoAndWhichVersion(t *testing.T) {
	t.Parallel()
	var seen http.Header
	d := newDouble(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		const want = `{"repository_ids":[1296269],"permissions":{"checks":"write","contents":"read","metadata":"read","pull_requests":"read","statuses":"read"}}`
		if string(body) != want || r.Method != http.MethodPost || r.URL.Path != "/api/v3/app/installations/67890/access_tokens" {
			t.Errorf("%s %s %s", r.Method, r.URL, body)
		}
		checkAppToken(t, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		good(w, r)
	}, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		http.Error(w, "{}", http.StatusNotFound)
	})
	_, err := d.lane(t).Refresh(t.Context(), aSubject(t))
	wantReason(t, err, fencepost.ReasonCredential)
	if seen.Get("X-GitHub-Api-Version") != "2022-11-28" || seen.Get("Accept") != "application/vnd.github+json" ||
		seen.Get("User-Agent") != "fencepost" {
		t.Errorf("headers %v", seen)
	}
}

func checkAppToken(t *testing.T, token string) {
	t.Helper()
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return &appKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired())
	if err != nil {
		t.Errorf("App token: %v", err)
		return
	}
	life := claims.ExpiresAt.Sub(claims.IssuedAt.Time)
	if claims.Issuer != "12345" || life != 10*time.Minute || time.Since(claims.IssuedAt.Time) < 59*time.Second {
		t.Errorf("claims %+v, life %v", claims, life)
	}
}

func TestATokenIsBelievedOnlyIfItIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit []string
	}{
		{"all repositories", []string{`"selected"`, `"all"`}},
		{"another repository", []string{`[{"id":1296269}]`, `[{"id":1296270}]`}},
		{"two repositories", []string{`[{"id":1296269}]`, `[{"id":1296269},{"id":5}]`}},
		{"no repositories", []string{`[{"id":1296269}]`, `[]`}},
		{"more than asked for", []string{`"contents":"read"`, `"contents":"write"`}},
		{"another permission", []string{`"contents":"read"`, `"contents":"read","administration":"write"`}},
		{"less than asked for", []string{`"checks":"write",`, ``}},
		{"empty", []string{canary, ""}},
		{"expired", []string{`"expires_at":"20`, `"expires_at":"19`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, tokenAnswer(tc.edit...))
			}, http.NotFound)
			_, err := d.lane(t).Refresh(t.Context(), aSubject(t))
			wantReason(t, err, fencepost.ReasonCredential)
			wantClean(t, err, canary)
			if d.calls.Load() != 0 {
				t.Error("the token was used")
			}
		})
	}
}

func TestATokenIsMadeOnceAndAnewBeforeItsEnd(t *testing.T) {
	t.Parallel()
	d := newDouble(t, good, http.NotFound)
	now := time.Now()
	lane := d.lane(t, func(c *github.ClientConfig) { c.Now = func() time.Time { return now } })
	for range 3 {
		_, _ = lane.Refresh(t.Context(), aSubject(t))
	}
	if n := d.mints.Load(); n != 1 {
		t.Fatalf("%d tokens", n)
	}
	now = now.Add(54 * time.Minute)
	_, _ = lane.Refresh(t.Context(), aSubject(t))
	if n := d.mints.Load(); n != 1 {
		t.Fatalf("%d tokens, six minutes before its end", n)
	}
	now = now.Add(2 * time.Minute)
	_, _ = lane.Refresh(t.Context(), aSubject(t))
	if n := d.mints.Load(); n != 2 {
		t.Fatalf("%d tokens, four minutes before its end", n)
	}
}

// A clock that is an hour wrong, and one that is days: GitHub refuses what they
// date, and says what time it is.
func TestAppTokensAreDatedByGitHubsClockWhereOursIsWrong(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ahead        time.Duration
		mints, calls int32
	}{
		{0, 1, 4}, {time.Hour, 2, 4}, {-time.Hour, 2, 4}, {20 * time.Second, 1, 4}, {25 * time.Hour, 8, 0}, {-25 * time.Hour, 8, 0},
	} {
		t.Run(tc.ahead.String(), func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, func(w http.ResponseWriter, r *http.Request) {
				var claims jwt.RegisteredClaims
				_, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &claims)
				if now := time.Now(); err != nil || claims.IssuedAt.After(now) || !claims.ExpiresAt.After(now) || claims.ExpiresAt.Sub(now) > 10*time.Minute {
					http.Error(w, "{}", http.StatusUnauthorized)
					return
				}
				good(w, r)
			}, http.NotFound)
			lane := d.lane(t, func(c *github.ClientConfig) { c.Now = func() time.Time { return time.Now().Add(tc.ahead) } })
			for range 2 {
				_, err := lane.Refresh(t.Context(), aSubject(t))
				wantReason(t, err, fencepost.ReasonCredential)
			}
			// A refresh makes two calls. A token that was made is used by both
			// refreshes; one that was refused is asked for once more by each call.
			if mints, calls := d.mints.Load(), d.calls.Load(); mints != tc.mints || calls != tc.calls {
				t.Errorf("%d tokens were asked for and %d calls made, want %d and %d", mints, calls, tc.mints, tc.calls)
			}
		})
	}
}

// Our clock is set right again after a wrong hour, and the token is refused anew.
func TestAppTokensAreDatedByOurClockOnceItIsRight(t *testing.T) {
	t.Parallel()
	var ahead, refused atomic.Int64
	d := newDouble(t, func(w http.ResponseWriter, r *http.Request) {
		var claims jwt.RegisteredClaims
		_, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &claims)
		if now := time.Now(); err != nil || claims.IssuedAt.After(now) || !claims.ExpiresAt.After(now) {
			refused.Add(1)
			http.Error(w, "{}", http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusCreated)
		// It is good for less than the margin, so that each refresh wants another.
		_, _ = io.WriteString(w, strings.Replace(tokenAnswer(), time.Now().Add(time.Hour).UTC().Format("15:04"), time.Now().Add(2*time.Minute).UTC().Format("15:04"), 1))
	}, http.NotFound)
	lane := d.lane(t, func(c *github.ClientConfig) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	for i, by := range []time.Duration{0, time.Hour, 0, -time.Hour, 0} {
		ahead.Store(int64(by))
		_, err := lane.Refresh(t.Context(), aSubject(t))
		wantReason(t, err, fencepost.ReasonCredential)
		if d.calls.Load() != int32(2*(i+1)) {
			t.Fatalf("step %d, by %v: no token was made", i, by)
		}
	}
	if refused.Load() == 0 {
		t.Error("no token was refused: nothing was shown")
	}
}

func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	d := newDouble(t, good, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
	})
	_, err := d.lane(t).Refresh(t.Context(), aSubject(t))
	wantReason(t, err, fencepost.ReasonCredential)
	wantClean(t, err, canary, "Bad credentials")
	if d.mints.Load() != 2 || d.calls.Load() != 2 {
		t.Errorf("%d tokens, %d calls", d.mints.Load(), d.calls.Load())
	}
}

func TestNothingIsSentElsewhere(t *testing.T) {
	t.Parallel()
	var stolen atomic.Int32
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen.Add(1)
		_, _ = io.WriteString(w, `{"id":1296269,"full_name":"acme/docs","owner":{"id":583231}}`)
	}))
	t.Cleanup(thief.Close)
	for _, tc := range []struct{ name, location string }{
		{"another host", thief.URL + "/api/v3/repositories/1296269"},
		{"outside of the API", "/repositories/1296269"},
		{"up and out", "/api/v3/../repositories/1296269"},
		{"with a user", strings.Replace(thief.URL, "http://", "http://user@", 1) + "/api/v3/x"},
		{"nowhere", ""},
		{"no URL", "http://[::1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, good, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", tc.location)
				w.WriteHeader(http.StatusMovedPermanently)
			})
			_, err := d.lane(t).Refresh(t.Context(), aSubject(t))
			wantReason(t, err, fencepost.ReasonProvider)
			if stolen.Load() != 0 {
				t.Error("the token went to another host")
			}
		})
	}
}

func TestPagesAreFollowedWithinTheAPIAndTheLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, link string
		calls      int32
	}{
		{"another host", `<http://evil.invalid/api/v3/app/hook/deliveries?cursor=2>; rel="next"`, 1},
		{"endless", `</api/v3/app/hook/deliveries?cursor=2>; rel="next"`, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, good, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Link", tc.link)
				_, _ = io.WriteString(w, `[]`)
			})
			_, err := d.lane(t).Log(t.Context(), time.Now().Add(-time.Hour))
			if tc.name == "endless" {
				must(t, err) // a log is read as far as it goes
			} else {
				wantReason(t, err, fencepost.ReasonProvider)
			}
			if n := d.calls.Load(); n != tc.calls {
				t.Errorf("%d calls, want %d", n, tc.calls)
			}
		})
	}
}

func TestAnAnswerHasABound(t *testing.T) {
	t.Parallel()
	d := newDouble(t, good, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":1296269,"x":"`)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
		_, _ = io.WriteString(w, `"}`)
	})
	_, err := d.lane(t, func(c *github.ClientConfig) { c.Limits.MaxAnswer = 64 << 10 }).Refresh(t.Context(), aSubject(t))
	wantReason(t, err, fencepost.ReasonProvider)
	if !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestASilentServerIsLeftInTime(t *testing.T) {
	t.Parallel()
	d := newDouble(t, good, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := d.lane(t, func(c *github.ClientConfig) {
		c.Limits.RequestTimeout, c.Limits.ReadAttempts = 100*time.Millisecond, 2
	}).Refresh(t.Context(), aSubject(t))
	wantReason(t, err, fencepost.ReasonProvider)
	if !errors.Is(err, context.DeadlineExceeded) || d.calls.Load() != 2 {
		t.Errorf("error %v after %d calls", err, d.calls.Load())
	}
}

func TestARepositoryIsItsIDs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, answer string
		want         fencepost.Reason
	}{
		{"another id", `{"id":1296270,"full_name":"acme/docs","owner":{"id":583231}}`, fencepost.ReasonIdentity},
		{"another owner", `{"id":1296269,"full_name":"acme/docs","owner":{"id":583232}}`, fencepost.ReasonIdentity},
		{"neither", `{}`, fencepost.ReasonIdentity},
		{"a name that leads elsewhere", `{"id":1296269,"full_name":"../../user","owner":{"id":583231}}`, fencepost.ReasonProvider},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, good, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.answer) })
			_, err := d.lane(t).Refresh(t.Context(), aSubject(t))
			wantReason(t, err, tc.want)
			if d.calls.Load() != 1 {
				t.Errorf("%d calls", d.calls.Load())
			}
		})
	}
}

func TestFindBelievesNoOtherAppsRun(t *testing.T) {
	t.Parallel()
	v := aVerdict(t)
	for app, want := range map[string]bool{`{"id":12345}`: true, `{"id":9}`: false, `null`: false} {
		d := newDouble(t, good, func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/check-runs") {
				_, _ = io.WriteString(w, `{"id":1296269,"full_name":"acme/docs","owner":{"id":583231}}`)
				return
			}
			// A server that does not mind the filters that it was given.
			shown := "2 files, 0 broken links\\n\\nEvaluation `" + v.Evaluation.String() + "` of delivery `" + string(v.Delivery) + "`. Evidence: `art_x`."
			_, _ = fmt.Fprintf(w, `{"total_count":1,"check_runs":[{"id":41000000001,"name":"fencepost/docs","head_sha":%q,"external_id":%q,
				"status":"completed","conclusion":"success","started_at":"2026-11-30T12:00:00Z","completed_at":"2026-11-30T12:00:01Z",
				"output":{"title":"All links lead somewhere","summary":"%s"},"app":%s}]}`, v.Subject.Head, v.Evaluation, shown, app)
		})
		lane := d.lane(t)
		document, err := lane.Compose(v)
		must(t, err)
		got, found, err := lane.Find(t.Context(), document)
		if found != want || err != nil || (want && got.ID != "41000000001") {
			t.Errorf("App %s: found %v %v, %v", app, found, got, err)
		}
	}
}

func TestErrorsHoldNothingOfTheExchange(t *testing.T) {
	t.Parallel()
	d := newDouble(t, good, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, `{"message":"PROVIDER TEXT about octocat","token":"`+canary+`"}`, http.StatusTeapot)
	})
	lane := d.lane(t)
	document, err := lane.Compose(aVerdict(t))
	must(t, err)
	_, refreshErr := lane.Refresh(t.Context(), aSubject(t))
	_, _, findErr := lane.Find(t.Context(), document)
	_, createErr := lane.Create(t.Context(), document)
	_, openErr := lane.Open(t.Context())
	d.Close()
	_, deadErr := lane.Refresh(t.Context(), aSubject(t))
	for _, err := range []error{refreshErr, findErr, createErr, openErr, deadErr} {
		if err == nil {
			t.Fatal("no error")
		}
		wantClean(t, err, canary, "PROVIDER TEXT", "octocat", "127.0.0.1", "acme")
	}
}

func TestAKeyThatIsNoneIsSaidSo(t *testing.T) {
	t.Parallel()
	const secret = "-----BEGIN NOTHING-----\nQ0FOQVJZ\n-----END NOTHING-----\n"
	for _, tc := range []struct {
		name string
		key  func(context.Context) (fencepost.Secret, error)
	}{
		{"not PEM", keyOf([]byte("CANARY"))},
		{"another block", keyOf([]byte(secret))},
		{"unresolved", func(context.Context) (fencepost.Secret, error) {
			return fencepost.Secret{}, errors.New("open /secret/path CANARY")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDouble(t, good, http.NotFound)
			_, err := d.lane(t, func(c *github.ClientConfig) { c.App.Key = tc.key }).Refresh(t.Context(), aSubject(t))
			wantReason(t, err, fencepost.ReasonCredential)
			wantClean(t, err, "CANARY", "Q0FOQVJZ", "/secret/path")
			if d.mints.Load() != 0 {
				t.Error("something was sent")
			}
		})
	}
}

func TestParseKeyTakesBothForms(t *testing.T) {
	t.Parallel()
	der, err := x509.MarshalPKCS8PrivateKey(appKey())
	must(t, err)
	for name, text := range map[string][]byte{
		"PKCS#1": pkcs1(appKey()),
		"PKCS#8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	} {
		key, err := github.ParseKey(fencepost.NewSecret(text))
		if err != nil || !key.Equal(appKey()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConfigurationIsRefusedWithItsMend(t *testing.T) {
	t.Parallel()
	ok := github.ClientConfig{
		API: parseURL(t, "https://api.github.com"), App: github.App{ID: 1, Installation: 2, Key: keyOf(nil)}, Now: time.Now,
	}
	for _, tc := range []struct {
		name string
		edit func(*github.ClientConfig)
		want error
	}{
		{"plain HTTP", func(c *github.ClientConfig) { c.API = parseURL(t, "http://api.github.com") }, fencepost.ErrMalformed},
		{"a user in the URL", func(c *github.ClientConfig) { c.API = parseURL(t, "https://u:p@api.github.com") }, fencepost.ErrMalformed},
		{"no App", func(c *github.ClientConfig) { c.App.ID = 0 }, fencepost.ErrMalformed},
		{"no key", func(c *github.ClientConfig) { c.App.Key = nil }, fencepost.ErrZeroValue},
		{"a limit out of range", func(c *github.ClientConfig) { c.Limits.ReadAttempts = 11 }, fencepost.ErrMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := ok
			tc.edit(&c)
			if _, err := github.NewClient(c); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
