package gitea

import (
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source/remote"
)

// FuzzFacts holds that an answer gives all facts or an error of the provider.
func FuzzFacts(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"owner":{"id":2,"login":"acme"},"full_name":"acme/docs","private":true,"object_format_name":"sha1","extra":[1,null]}`,
		`{"id":1,"owner":{"id":2},"full_name":"acme/docs","private":false}`,
		`{"id":1,"owner":null,"full_name":"acme/docs","private":false}`,
		`{"id":1,"id":2,"owner":{"id":2},"full_name":"acme/docs","private":false}`,
		`{"id":9223372036854775808,"owner":{"id":2},"full_name":"acme/docs","private":false}`,
		`{"message":"not found","url":"u"}`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeFacts("get", body)
		switch {
		case err == nil:
		case fencepost.ReasonOf(err) != fencepost.ReasonProvider:
			t.Errorf("reason %q", fencepost.ReasonOf(err))
		case got != remote.Facts{}:
			t.Errorf("an error, and still the facts %+v", got)
		}
	})
}
