package webhook_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// BenchmarkGitLabJob verifies one token of an ordinary job, beside the bare
// verification of its signature by the standard library, with the digest of
// what is signed and without. Each is measured in turn with the others, in
// one loop: whatever else the machine does falls on all of them.
func BenchmarkGitLabJob(b *testing.B) {
	keys := jobKeys()
	text := jobToken(b, keys[1], jobPayload)
	h := authorization("Bearer " + text)
	one := jobScheme(b)
	one.Keys = jobRing(b, webhook.JobAnchor{ID: "a", Key: &keys[1].PublicKey})
	two := jobScheme(b)
	dot := strings.LastIndexByte(text, '.')
	signed := []byte(text[:dot])
	signature, err := base64.RawURLEncoding.DecodeString(text[dot+1:])
	if err != nil {
		b.Fatal(err)
	}
	digest := sha256.Sum256(signed)
	verify := func(g webhook.GitLabJob) func() error {
		return func() error { _, err := g.Verify(h, nil, now); return err }
	}
	steps := []struct {
		name string
		f    func() error
	}{
		{"bare", func() error {
			return rsa.VerifyPKCS1v15(&keys[1].PublicKey, crypto.SHA256, digest[:], signature)
		}},
		{"bare-and-digest", func() error {
			d := sha256.Sum256(signed)
			return rsa.VerifyPKCS1v15(&keys[1].PublicKey, crypto.SHA256, d[:], signature)
		}},
		{"one-key", verify(one)},
		{"two-keys", verify(two)},
		{"claims", func() error { _, err := webhook.JobClaimsOf(h); return err }},
	}
	// Rounds of a few of each, of which the least per call counts: a longer
	// one was disturbed.
	const calls = 20
	least := make([]float64, len(steps))
	for b.Loop() {
		for i, s := range steps {
			spent := stopwatch()
			for range calls {
				if err := s.f(); err != nil {
					b.Fatal(err)
				}
			}
			if each := float64(spent().Nanoseconds()) / calls; least[i] == 0 || each < least[i] {
				least[i] = each
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, s := range steps {
		b.ReportMetric(least[i]/1e3, s.name+"-µs")
	}
	b.ReportMetric(least[2]/least[0], "one-key/bare")
	b.ReportMetric(least[3]/least[0], "two-keys/bare")
}

// BenchmarkGitLabJobRefusal refuses at the same cost whatever it is for.
func BenchmarkGitLabJobRefusal(b *testing.B) {
	good := jobToken(b, jobKeys()[1], jobPayload)
	g := jobScheme(b)
	for name, v := range map[string]fencepost.Verifier{"scheme": g, "decoy": webhook.JobDecoy{Work: 2}} {
		for what, h := range map[string]fencepost.Headers{
			"nothing": {}, "malformed": authorization("Bearer x"), "altered": authorization("Bearer " + good[:len(good)-8] + "AAAAAAAA"),
			"beyond": authorization("Bearer " + good[:strings.LastIndexByte(good, '.')+1] + b64(strings.Repeat("\xff", 256))),
			"short":  authorization("Bearer " + good[:strings.LastIndexByte(good, '.')+1]),
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				for b.Loop() {
					if _, err := v.Verify(h, nil, now); err == nil {
						b.Fatal("accepted")
					}
				}
			})
		}
	}
}

// stopwatch starts, and returns what reads it.
func stopwatch() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
