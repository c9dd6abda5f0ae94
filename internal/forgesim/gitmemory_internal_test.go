package forgesim

import (
	"bytes"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pkt is one packet of text of the git protocol.
func pkt(text string) string {
	const hex = "0123456789abcdef"
	n := len(text) + 5
	return string([]byte{hex[n>>12&15], hex[n>>8&15], hex[n>>4&15], hex[n&15]}) + text + "\n"
}

func TestGitAnswersFromMemoryWhatItAnsweredBefore(t *testing.T) {
	t.Parallel()
	for _, remember := range []bool{true, false} {
		f, err := New(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now, RememberGit: remember})
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.ImportRepository(t.Context(), Import{Owner: "acme", Name: "docs", Files: map[string]string{"a": "a"}, Public: true})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(method, path, body string) *recorder {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://forge.invalid/acme/docs.git/"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Git-Protocol", "version=2")
			if body != "" {
				req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
			}
			w := &recorder{header: http.Header{}}
			w.serve(f, req)
			return w
		}
		const refs, pack = "info/refs?service=git-upload-pack", "git-upload-pack"
		fetch := pkt("command=fetch") + "0001" + pkt("want "+r.Ref("refs/heads/main")) + pkt("deepen 1") + pkt("done") + "0000"
		list := pkt("command=ls-refs") + "0001" + "0000"
		caps, first, named := ask(http.MethodGet, refs, ""), ask(http.MethodPost, pack, fetch), ask(http.MethodPost, pack, list)
		if caps.status != http.StatusOK || named.status != http.StatusOK || !bytes.Contains(first.body.Bytes(), []byte("PACK")) {
			t.Fatalf("git answered %d, %d, %d: %q", caps.status, first.status, named.status, first.body.Bytes())
		}
		f.git.backend = filepath.Join(t.TempDir(), "nothing") // what is answered now is answered without git
		for _, tc := range []struct {
			what, method, path, body string
			want                     *recorder
			remembered               bool
		}{
			{"capabilities", http.MethodGet, refs, "", caps, remember},
			{"a fetch by id", http.MethodPost, pack, fetch, first, remember},
			{"where refs are", http.MethodPost, pack, list, named, false},
			{"another fetch", http.MethodPost, pack, fetch + "0000", first, false},
		} {
			got := ask(tc.method, tc.path, tc.body)
			same := got.status == tc.want.status && bytes.Equal(got.body.Bytes(), tc.want.body.Bytes()) &&
				got.header.Get("Content-Type") == tc.want.header.Get("Content-Type")
			if same != tc.remembered {
				t.Errorf("remember %v: %s: %d %q, answered as before %v", remember, tc.what, got.status, got.body.Bytes(), same)
			}
		}
	}
}
