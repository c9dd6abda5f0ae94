package remote_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source/remote"
)

const getRepository = "GET /repos/{owner}/{repo}"

func TestObserveFindsTheHead(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]option{"App": nil, "token": {withToken}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, options...)
			for range 2 {
				if o := b.observe(); o.Head != b.head() || !o.At.Equal(b.now.Now()) {
					t.Errorf("observed %v at %v, want %v", o.Head, o.At, b.head())
				}
				b.push(forgesim.Push{})
				b.push(forgesim.Push{Branch: "main-2"})
				b.now.advance(time.Minute)
			}
		})
	}
}

func TestAnUnchangedHeadCostsTwoRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.observe()
	before := len(b.forge.Journal())
	b.observe()
	var asked []string
	for _, e := range b.forge.Journal()[before:] {
		asked = append(asked, e.Operation)
		if e.Operation == getRepository && e.Status != http.StatusNotModified {
			t.Errorf("the identity was answered %d, want 304", e.Status)
		}
	}
	if want := []string{forgesim.GitFetch, getRepository}; !slices.Equal(asked, want) {
		t.Errorf("asked for %v, want %v", asked, want)
	}
}

// A change is what becomes of a source's repository or credential.
type change func(b *bench) error

func TestWhatEndsAnObservation(t *testing.T) {
	t.Parallel()
	replace := func(b *bench) error {
		_, err := b.forge.ImportRepository(b.t.Context(), forgesim.Import{
			Owner: "acme", Name: "handbook", Files: map[string]string{"evil": "evil"}, Public: true,
		})
		return err
	}
	for _, tc := range []struct {
		name    string
		options []option
		change  change
		want    fencepost.Reason
		// fresh is the reason where nothing was asked before; empty: not tried.
		fresh fencepost.Reason
	}{
		{"renamed", nil, func(b *bench) error { return b.repo.Rename("manual") }, fencepost.ReasonIdentity, fencepost.ReasonIdentity},
		{"renamed, by token", []option{withToken}, func(b *bench) error { return b.repo.Rename("manual") }, fencepost.ReasonIdentity, fencepost.ReasonIdentity},
		{"renamed in letter case alone", nil, func(b *bench) error { return b.repo.Rename("Handbook") }, fencepost.ReasonIdentity, ""},
		{"renamed, and the name taken", nil, func(b *bench) error { return errors.Join(b.repo.Rename("manual"), replace(b)) }, fencepost.ReasonIdentity, fencepost.ReasonIdentity},
		{"renamed, and the name taken, by token", []option{withToken}, func(b *bench) error { return errors.Join(b.repo.Rename("manual"), replace(b)) }, fencepost.ReasonIdentity, ""},
		{"transferred", nil, func(b *bench) error { return b.repo.Transfer("elsewhere") }, fencepost.ReasonIdentity, fencepost.ReasonIdentity},
		{"transferred, within reach of the token", []option{withToken}, func(b *bench) error {
			return errors.Join(b.repo.Transfer("elsewhere"), b.renewToken())
		}, fencepost.ReasonIdentity, ""},
		{"transferred, out of reach of the token", []option{withToken}, func(b *bench) error { return b.repo.Transfer("elsewhere") }, fencepost.ReasonCommitGone, fencepost.ReasonCommitGone},
		{"deleted", nil, func(b *bench) error { b.repo.Delete(); return nil }, fencepost.ReasonCommitGone, fencepost.ReasonCommitGone},
		{"deleted, by token", []option{withToken}, func(b *bench) error { b.repo.Delete(); return nil }, fencepost.ReasonCommitGone, fencepost.ReasonCommitGone},
		{"deleted and made anew", nil, func(b *bench) error { b.repo.Delete(); return replace(b) }, fencepost.ReasonIdentity, fencepost.ReasonCommitGone},
		{"made public", nil, func(b *bench) error { b.repo.SetPublic(true); return nil }, fencepost.ReasonIdentity, fencepost.ReasonIdentity},
		{"branch deleted", nil, func(b *bench) error { return b.repo.DeleteBranch(b.t.Context(), "main") }, fencepost.ReasonCommitGone, fencepost.ReasonCommitGone},

		{"token revoked", []option{withToken}, func(b *bench) error { b.forge.RevokeToken(b.person); return nil }, fencepost.ReasonCredential, ""},
		{"token revoked, repository public", []option{withToken}, func(b *bench) error {
			b.repo.SetPublic(true)
			b.forge.RevokeToken(b.person)
			return nil
		}, fencepost.ReasonCredential, fencepost.ReasonCredential},
		{"App suspended", nil, func(b *bench) error { b.inst.Suspend(true); return nil }, fencepost.ReasonCredential, fencepost.ReasonCredential},
		{"App uninstalled", nil, func(b *bench) error { b.inst.Uninstall(); return nil }, fencepost.ReasonCredential, fencepost.ReasonCredential},
		{"App may not read contents", nil, func(b *bench) error {
			b.inst.SetPermissions(forgesim.Permissions{"metadata": "read"})
			return nil
		}, fencepost.ReasonCredential, fencepost.ReasonCredential},
		{"taken out of the installation", nil, func(b *bench) error { b.inst.Remove(b.repo); return nil }, fencepost.ReasonCommitGone, fencepost.ReasonCommitGone},

		{"down", nil, func(b *bench) error { b.forge.SetDown(true); return nil }, fencepost.ReasonAcquisition, fencepost.ReasonProvider},
	} {
		for known, want := range map[string]fencepost.Reason{"seen before": tc.want, "never seen": tc.fresh} {
			if want == "" {
				continue
			}
			t.Run(tc.name+", "+known, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, tc.options...)
				if known == "seen before" {
					b.observe()
				}
				must(t, tc.change(b))
				before := len(b.forge.Journal())
				o, err := b.remote.Observe(t.Context())
				wantReason(t, err, want)
				if !o.Head.IsZero() {
					t.Errorf("with an error there is the head %v", o.Head)
				}
				b.wantNobodyElseAsked(before)
			})
		}
	}
}

func TestWhatFailsAnObservation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tc := range []struct {
		name   string
		on     string
		effect forgesim.Effect
		want   fencepost.Reason
	}{
		{"API down", getRepository, forgesim.DropRequest{}, fencepost.ReasonProvider},
		{"API fails", getRepository, forgesim.Fail{Code: 503}, fencepost.ReasonProvider},
		{"API answers nonsense", getRepository, forgesim.Garble{}, fencepost.ReasonProvider},
		{"API limits", getRepository, forgesim.SecondaryLimit{RetryAfter: time.Minute}, fencepost.ReasonRateLimited},
		{"API redirects elsewhere", getRepository, forgesim.Redirect{Location: "http://elsewhere.invalid/"}, fencepost.ReasonIdentity},
		{"git fails", forgesim.GitFetch, forgesim.Fail{Code: 502}, fencepost.ReasonAcquisition},
		{"git limits", forgesim.GitFetch, forgesim.Fail{Code: 429, RetryAfter: time.Minute}, fencepost.ReasonRateLimited},
		{"git breaks off", forgesim.GitFetch, forgesim.Truncate{Bytes: 20}, fencepost.ReasonAcquisition},
		{"git redirects", forgesim.GitFetch, forgesim.Redirect{Code: 301, Location: "http://elsewhere.invalid/x.git/git-upload-pack"}, fencepost.ReasonAcquisition},
		{"git refuses a credential that is good", forgesim.GitFetch, forgesim.Fail{Code: 403}, fencepost.ReasonCredential},
		{"git hides a repository that is there", forgesim.GitFetch, forgesim.Fail{Code: 404}, fencepost.ReasonCredential},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.push(forgesim.Push{}) // so that the answer is another one
			fault := b.forge.Inject(forgesim.Fault{On: tc.on, Times: -1, Effect: tc.effect})
			before := len(b.forge.Journal())
			_, err := b.remote.Observe(t.Context())
			wantReason(t, err, tc.want)
			b.wantNobodyElseAsked(before)
			fault.End()
			b.now.advance(time.Hour)
			b.observe()
		})
	}
}

// renewToken gives the person a token of the repository's present owner.
func (b *bench) renewToken() (err error) {
	b.person, err = b.repo.PersonalToken("mona", nil)
	return err
}

// wantNobodyElseAsked fails where a request was sent without the credential,
// or for another repository than under the one name.
func (b *bench) wantNobodyElseAsked(since int) {
	b.t.Helper()
	for _, e := range b.forge.Journal()[since:] {
		name := strings.HasPrefix(e.Path, "/acme/handbook.git/") || strings.HasPrefix(e.Path, forgesim.APIPrefix+"/repos/acme/handbook") ||
			strings.HasPrefix(e.Path, "/repos/acme/handbook") || strings.Contains(e.Path, "/app/installations/")
		if e.By == "anonymous" || !name {
			b.t.Errorf("%s %s was asked for by %s", e.Method, e.Path, e.By)
		}
	}
}

func TestAHeadIsBelievedOnlyOfTheRepositoryThatIsProvenAfterIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.observe()
	var moved error
	b.forge.Inject(forgesim.Fault{On: getRepository, Effect: forgesim.Before{Do: func(ctx context.Context) error {
		moved = b.repo.Rename("manual")
		_, err := b.forge.ImportRepository(ctx, forgesim.Import{Owner: "acme", Name: "handbook", Files: map[string]string{"evil": "evil"}})
		return errors.Join(moved, err)
	}}})
	_, err := b.remote.Observe(t.Context())
	wantReason(t, err, fencepost.ReasonCommitGone) // the stranger's is out of the App's reach
	must(t, moved)

	// The other way round: the stranger's repository had the name while the
	// head was read.
	other := newBench(t)
	must(t, other.repo.Rename("manual"))
	stranger, err := other.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "handbook", Files: map[string]string{"evil": "evil"}, Public: true})
	must(t, err)
	_, err = other.remote.Observe(t.Context())
	wantReason(t, err, fencepost.ReasonIdentity)
	stranger.Delete()
	must(t, other.repo.Rename("handbook"))
	if o := other.observe(); o.Head != other.head() {
		t.Errorf("observed %v after all was well again, want %v", o.Head, other.head())
	}
}

func TestWithoutACredentialNothingIsSent(t *testing.T) {
	t.Parallel()
	for name, credential := range map[string]func(context.Context) (string, fencepost.Secret, error){
		"unreadable": func(context.Context) (string, fencepost.Secret, error) {
			return "", fencepost.Secret{}, errors.New("open /var/lib/secrets/token: permission denied")
		},
		"empty": func(context.Context) (string, fencepost.Secret, error) {
			return "x-access-token", fencepost.Secret{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.repo.SetPublic(true)
			b.config.Repository.Visibility = remote.Public
			b.config.Credential = credential
			r := b.make(b.config)
			_, err := r.Observe(t.Context())
			wantReason(t, err, fencepost.ReasonCredential)
			if strings.Contains(err.Error(), "/var/lib") {
				t.Errorf("the error %q holds a path of the host", err)
			}
			if n := b.forge.Count(forgesim.GitAdvertise) + b.forge.Count(forgesim.GitFetch); n != 0 {
				t.Errorf("git was asked %d times", n)
			}
		})
	}
}

func TestAServerThatAsksForItIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.observe()
	for _, tc := range []struct {
		asks, waits time.Duration
	}{
		{40 * time.Second, 40 * time.Second},
		{0, time.Minute},
		{time.Hour, 10 * time.Minute},
	} {
		b.forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Effect: forgesim.Fail{Code: 429, RetryAfter: tc.asks}})
		_, err := b.remote.Observe(t.Context())
		wantReason(t, err, fencepost.ReasonRateLimited)
		before := len(b.forge.Journal())
		b.now.advance(tc.waits - time.Second)
		_, err = b.remote.Observe(t.Context())
		wantReason(t, err, fencepost.ReasonRateLimited)
		if n := len(b.forge.Journal()) - before; n != 0 {
			t.Errorf("asked to wait %v: %d requests before that", tc.asks, n)
		}
		b.now.advance(time.Second)
		b.observe()
	}
}

func TestYesterdaysHeadIsReportedAsItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	old := b.observe().Head
	frozen := b.repo.FreezeRefs()
	now := b.push(forgesim.Push{})
	if got := b.observe().Head; got != old {
		t.Errorf("observed %v, want the head of yesterday, %v", got, old)
	}
	frozen.End()
	if got := b.observe().Head; got != now {
		t.Errorf("observed %v, want %v", got, now)
	}
}

func TestConfigurationsThatAreNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, tc := range map[string]struct {
		change func(*remote.Config)
		want   error
	}{
		"no id":              {func(c *remote.Config) { c.Repository.ID = 0 }, fencepost.ErrMalformed},
		"no owner id":        {func(c *remote.Config) { c.Repository.OwnerID = 0 }, fencepost.ErrMalformed},
		"a way out":          {func(c *remote.Config) { c.Repository.FullName = "acme/.." }, fencepost.ErrMalformed},
		"a query":            {func(c *remote.Config) { c.Repository.FullName = "acme/handbook?x" }, fencepost.ErrMalformed},
		"a group of no name": {func(c *remote.Config) { c.Repository.FullName = "acme//b" }, fencepost.ErrMalformed},
		"a tag":              {func(c *remote.Config) { c.Ref = "refs/tags/v1" }, fencepost.ErrMalformed},
		"no git":             {func(c *remote.Config) { c.Git = nil }, fencepost.ErrMalformed},
		"a user in the URL":  {func(c *remote.Config) { c.Git = parseURL(t, "https://u:p@git.example") }, fencepost.ErrMalformed},
		"plain HTTP":         {func(c *remote.Config) { c.AllowHTTP = false }, fencepost.ErrMalformed},
		"no credential":      {func(c *remote.Config) { c.Credential = nil }, fencepost.ErrZeroValue},
		"no identity":        {func(c *remote.Config) { c.Identity = nil }, fencepost.ErrZeroValue},
		"no clock":           {func(c *remote.Config) { c.Now = nil }, fencepost.ErrZeroValue},
		"a budget below 0":   {func(c *remote.Config) { c.Budgets.Objects = -1 }, nil},
		"an ftp git":         {func(c *remote.Config) { c.Git = parseURL(t, "ftp://git.example") }, fencepost.ErrMalformed},
		"a query in the URL": {func(c *remote.Config) { c.Git = parseURL(t, "https://git.example?x") }, fencepost.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			c := b.config
			tc.change(&c)
			if _, err := remote.New(c); err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error %v, want one that matches %v", err, tc.want)
			}
		})
	}
}

func TestWhoReadsAsNobodySaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.repo.SetPublic(true)
	b.config.Anonymous = true
	if _, err := remote.New(b.config); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("anonymous with a credential: %v, want ErrZeroValue", err)
	}
	b.config.Credential, b.config.Repository.Visibility = nil, remote.Public
	b.remote = b.make(b.config)
	if o := b.observe(); o.Head != b.head() {
		t.Errorf("observed %v, want %v", o.Head, b.head())
	}
	b.config.Repository.Visibility = remote.AnyVisibility
	b.remote = b.make(b.config)
	b.observe()
}
