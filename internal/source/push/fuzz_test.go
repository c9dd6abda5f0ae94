package push_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source/push"
)

func isMalformed(err error) bool { return errors.Is(err, fencepost.ErrMalformed) }

func FuzzGitHub(f *testing.F) {
	f.Add("push", []byte(onGitHub))
	f.Add("push", []byte(strings.ReplaceAll(onGitHub, `"deleted":false`, `"deleted":true`)))
	f.Add("push", []byte(strings.ReplaceAll(onGitHub, headSHA, zeroSHA)))
	f.Add("push", []byte(strings.ReplaceAll(onGitHub, "null", "nul")))
	f.Add("ping", []byte(`{"zen":"z","repository":null}`))
	f.Add("repository", []byte(`{"action":"renamed","repository":{"id":1296270,"owner":{"id":583230}},"installation":null}`))
	fuzz(f, push.GitHub, "X-GitHub-Event")
}

func FuzzGitea(f *testing.F) {
	f.Add("push", []byte(onGitea))
	f.Add("push", []byte(strings.ReplaceAll(onGitea, otherSHA, headSHA)))
	f.Add("push", []byte(strings.ReplaceAll(onGitea, `"sha1"`, `"sha256"`)))
	f.Add("delete", []byte(`{"ref":"main","ref_type":"branch","repository":{"id":1296270,"owner":{"id":583230}}}`))
	fuzz(f, push.Gitea, "X-Gitea-Event")
}

// fuzz holds that nothing is admitted that does not say, in these letters,
// what the policy names.
func fuzz(f *testing.F, of maker, header string) {
	a := admitter(f, of)
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		got, err := a.Admit(headers(header, kind), body)
		switch fencepost.ReasonOf(err) {
		case fencepost.ReasonNone:
			if kind != "push" || got.Commit.IsZero() || got.Body != sha256.Sum256(body) || !got.ID.IsZero() {
				t.Errorf("admitted %q as %+v", kind, got)
			}
			// Escapes can spell a text in other bytes, numbers have one form.
			for _, needed := range []string{"1296270", "583230"} {
				if !strings.Contains(string(body), needed) {
					t.Errorf("admitted without %s", needed)
				}
			}
		case fencepost.ReasonEventNotHandled, fencepost.ReasonMalformed, fencepost.ReasonUnauthorized:
			if got != (push.Push{}) {
				t.Errorf("refused with %+v", got)
			}
		default:
			t.Errorf("error %v", err)
		}
	})
}
