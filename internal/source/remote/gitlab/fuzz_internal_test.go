package gitlab

import (
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source/remote"
)

// FuzzFacts holds that an answer gives all facts or an error of the provider.
func FuzzFacts(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"namespace":{"id":2,"kind":"group"},"path_with_namespace":"acme/docs","visibility":"internal","repository_object_format":"sha1"}`,
		`{"id":1,"namespace":{"id":2},"path_with_namespace":"acme/docs"}`,
		`{"id":1,"namespace":null,"path_with_namespace":"acme/docs","visibility":"public"}`,
		`{"id":1,"id":2,"namespace":{"id":2},"path_with_namespace":"acme/docs","visibility":"public"}`,
		`{"message":"404 Project Not Found"}`, `[]`, ``,
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
