package webhook_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

const fuzzKey = "the one secret of a"

var (
	githubForm   = regexp.MustCompile(`\Asha256=[0-9a-f]{64}\z`)
	giteaForm    = regexp.MustCompile(`\A[0-9a-f]{64}\z`)
	stampForm    = regexp.MustCompile(`\A[1-9][0-9]{0,15}\z`)
	idForm       = regexp.MustCompile(`\A[!-\-/-~]{1,256}\z`)
	standardForm = regexp.MustCompile(`\A[^ ,]+,[^ ]+( [^ ,]+,[^ ]+){0,15}\z`)
	v1Form       = regexp.MustCompile(`\A[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=\z`)
)

func fuzzMAC(text string) []byte {
	h := hmac.New(sha256.New, []byte(fuzzKey))
	h.Write([]byte(text))
	return h.Sum(nil)
}

// checkVerdict holds what a scheme said against what an independent reading
// of the rules says.
func checkVerdict(t *testing.T, ev fencepost.Evidence, err error, want bool) {
	t.Helper()
	if (err == nil) != want {
		t.Fatalf("err = %v, want accepted %v", err, want)
	}
	if err == nil {
		if ev.Anchor != "a" || ev.TrustSet != "acme" || ev.Replay == nil {
			t.Fatalf("evidence %+v", ev)
		}
		return
	}
	refusal, ok := errors.AsType[*webhook.Refusal](err)
	if !ok || refusal.MACs != 1 || refusal.Cause == 0 || ev.Anchor != "" || ev.Replay != nil {
		t.Fatalf("refusal %+v with evidence %+v", refusal, ev)
	}
}

func FuzzHexSignature(f *testing.F) {
	good := hex.EncodeToString(fuzzMAC("body"))
	for _, v := range []string{"", good, "sha256=" + good, "sha256=" + strings.ToUpper(good), "sha256=", "sha1=" + good, "sha256=" + good + "\n", "\u2113" + good} {
		f.Add(v, "", []byte("body"))
		f.Add(v, v, []byte("body"))
	}
	k := ring(f, webhook.Anchor{ID: "a", Secret: secret(fuzzKey)})
	f.Fuzz(func(t *testing.T, value, second string, body []byte) {
		right := hex.EncodeToString(fuzzMAC(string(body)))
		for name, s := range hexSchemes(k) {
			form := giteaForm
			if name == "github" {
				form = githubForm
			}
			pairs := []fencepost.Header{{Name: s.header, Value: value}}
			if second != "" {
				pairs = append(pairs, fencepost.Header{Name: s.header, Value: second})
			}
			ev, err := s.verifier.Verify(fencepost.NewHeaders(pairs), body, now)
			checkVerdict(t, ev, err, second == "" && form.MatchString(value) && strings.HasSuffix(value, right))
		}
	})
}

func FuzzStandardWebhooks(f *testing.F) {
	sign := func(id, stamp, body string) string {
		return "v1," + base64.StdEncoding.EncodeToString(fuzzMAC(id+"."+stamp+"."+body))
	}
	good := sign("msg_1", "1793880000", "body")
	for _, list := range []string{good, good + " " + good, "v1a,x " + good, good + " ", "v1,", "", strings.Repeat("v2,x ", 15) + good, strings.Repeat("v2,x ", 16) + good, "v1,AA= " + good} {
		f.Add("msg_1", "1793880000", list, []byte("body"))
	}
	f.Add("msg.1", "1", sign("msg.1", "1", ""), []byte(""))
	f.Add("m", "01", sign("m", "01", ""), []byte(""))
	f.Add("m", "+1", sign("m", "+1", ""), []byte(""))
	s := webhook.StandardWebhooks{Keys: ring(f, webhook.Anchor{ID: "a", Secret: secret(fuzzKey)})}
	f.Fuzz(func(t *testing.T, id, stamp, list string, body []byte) {
		want := idForm.MatchString(id) && stampForm.MatchString(stamp) && standardForm.MatchString(list)
		matched := false
		for _, entry := range strings.Split(list, " ") {
			if v, ok := strings.CutPrefix(entry, "v1,"); ok {
				want = want && v1Form.MatchString(v)
				matched = matched || entry == sign(id, stamp, string(body))
			}
		}
		ev, err := s.Verify(fencepost.NewHeaders([]fencepost.Header{
			{Name: "webhook-id", Value: id}, {Name: "webhook-timestamp", Value: stamp}, {Name: "webhook-signature", Value: list},
		}), body, now)
		checkVerdict(t, ev, err, want && matched)
		if err == nil && (ev.SignedAt.IsZero() || ev.SignedAt.Location() != time.UTC) {
			t.Fatalf("signed at %v", ev.SignedAt)
		}
	})
}

// FuzzHeaders gives every scheme any header sequence, one pair a line: no
// scheme accepts one that was not signed.
func FuzzHeaders(f *testing.F) {
	good := hex.EncodeToString(fuzzMAC("body"))
	f.Add("X-Hub-Signature-256: sha256=" + good + "x\nX-Gitea-Signature: ")
	f.Add("webhook-id: a\nwebhook-timestamp: 1\nwebhook-signature: v1,AAAA\nwebhook-id: b")
	f.Add("x-hub-signature-256\nX-HUB-SIGNATURE-256: sha256=\n: \n\n")
	f.Add("X-Forgejo-Signature: " + strings.Repeat("0", 64) + "\nX-Gogs-Signature:\t" + good)
	k := ring(f, webhook.Anchor{ID: "a", Secret: secret(fuzzKey)}, webhook.Anchor{ID: "b"})
	f.Fuzz(func(t *testing.T, lines string) {
		var pairs []fencepost.Header
		for line := range strings.SplitSeq(lines, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			pairs = append(pairs, fencepost.Header{Name: name, Value: value})
		}
		h := fencepost.NewHeaders(pairs)
		if h.Len() != len(pairs) || h.Digest() != fencepost.NewHeaders(h.All()).Digest() {
			t.Fatal("the canonical order is not stable")
		}
		for name, v := range verifiers(k, 5) {
			ev, err := v.Verify(h, []byte("a body that nobody signed"), now)
			refusal, ok := errors.AsType[*webhook.Refusal](err)
			if !ok || refusal.MACs != 5 || ev.Anchor != "" {
				t.Fatalf("%s: evidence %+v, err = %v", name, ev, err)
			}
		}
		webhook.IsJSON(h)
	})
}

func FuzzParseStandardSecret(f *testing.F) {
	f.Add([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	f.Add([]byte("whsec_\n"))
	f.Add([]byte("whsec_" + strings.Repeat("A", 31) + "="))
	f.Fuzz(func(t *testing.T, text []byte) {
		original := string(text)
		key, err := webhook.ParseStandardSecret(text)
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) || key.Len() != 0 {
				t.Fatalf("%d bytes, err = %v", key.Len(), err)
			}
			return
		}
		if again := "whsec_" + base64.StdEncoding.EncodeToString(key.Reveal()); again != original {
			t.Fatalf("%q is a second spelling of %q", original, again)
		}
	})
}
