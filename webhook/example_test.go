package webhook_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// A receiver on an ordinary net/http server. During a rotation the keyring
// holds the old secret and the new one.
func Example() {
	keys, err := webhook.NewKeyring("acme",
		webhook.Anchor{ID: "2026-q3", Secret: fencepost.NewSecret([]byte("an old secret of some length")),
			Until: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		webhook.Anchor{ID: "2026-q4", Secret: fencepost.NewSecret([]byte("a newer secret of some length"))})
	if err != nil {
		fmt.Println(err)
		return
	}
	hooks, err := webhook.NewHandler(webhook.Options{
		Rule:     fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone},
		Verifier: webhook.GitHub{Keys: keys},
		Now:      time.Now,
	}, func(w http.ResponseWriter, _ *http.Request, d webhook.Delivery) {
		// d.Key() is the same for every repeat of this delivery.
		fmt.Printf("%s by %s: %s\n", d.Route(), d.Anchor(), d.Body)
		w.WriteHeader(http.StatusNoContent)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/hooks/docs", hooks)
	server := httptest.NewServer(mux)
	defer server.Close()

	send := func(body string, headers []fencepost.Header) {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/hooks/docs", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		for _, h := range headers {
			r.Header.Add(h.Name, h.Value)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer response.Body.Close()
		fmt.Println(response.Status)
	}
	signature, err := webhook.GitHub{Keys: keys}.Sign(webhook.Message{Body: []byte(`{"zen":"Keep it logically awesome."}`), At: time.Now()})
	if err != nil {
		fmt.Println(err)
		return
	}
	send(`{"zen":"Keep it logically awesome."}`, signature)
	send(`{"zen":"Anything added dilutes everything else."}`, signature)
	// Output:
	// docs by 2026-q4: {"zen":"Keep it logically awesome."}
	// 204 No Content
	// 401 Unauthorized
}

// Verifying without a server, for instance in a queue's consumer.
func ExampleStandardWebhooks() {
	key, err := webhook.ParseStandardSecret([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := webhook.NewKeyring("acme", webhook.Anchor{ID: "signing-token", Secret: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	headers := fencepost.NewHeaders([]fencepost.Header{
		{Name: "webhook-id", Value: "msg_p5jXN8AQM9LWM0D4loKWxJek"},
		{Name: "webhook-timestamp", Value: "1614265330"},
		{Name: "webhook-signature", Value: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	})
	body := []byte(`{"test": 2432232314}`)
	received := time.Date(2021, 2, 25, 15, 2, 15, 0, time.UTC)

	proof, err := fencepost.Authenticate(
		fencepost.NewIngressCheck("docs", headers, body, received), webhook.StandardWebhooks{Keys: keys})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Accept judges the age of the signed time and derives the key under
	// which repeats are recognised.
	delivery, err := fencepost.Accept(proof, fencepost.RouteRule{
		Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeRequired, Window: fencepost.DefaultReplayWindow,
	}, headers, body)
	fmt.Println(delivery.Anchor(), delivery.Received().Sub(mustSignedAt(proof)), err)
	// Output: signing-token 5s <nil>
}

func mustSignedAt(p fencepost.Proof) time.Time {
	at, _ := p.SignedAt()
	return at
}

// A job of a merge train that proves itself to a gate. The key was pinned
// beforehand: it is never fetched for a request.
func ExampleGitLabJob() {
	// The instance's own, of which it publishes the other half.
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := webhook.NewJobKeyring("gitlab", webhook.JobAnchor{ID: "2026", Key: &private.PublicKey})
	if err != nil {
		fmt.Println(err)
		return
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"typ":"JWT","alg":"RS256","kid":"`+webhook.ThumbprintOf(&private.PublicKey).String()+`"}`)) + "." +
		encode([]byte(`{"iss":"https://gitlab.example.com","aud":"https://fencepost.example.com","jti":"235b3a54","runner_id":1,`+
			`"iat":1793879990,"nbf":1793879985,"exp":1793883590,"job_id":"302","pipeline_id":"574","pipeline_source":"merge_request_event",`+
			`"ref":"feature-1","sha":"714a629c0b401fdce83e847fc9589983fc6f46bc","job_project_id":"20","job_source":"pipeline_execution_policy"}`))
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, private, crypto.SHA256, digest[:])
	if err != nil {
		fmt.Println(err)
		return
	}

	scheme := webhook.GitLabJob{Issuer: "https://gitlab.example.com", Audience: "https://fencepost.example.com", Keys: keys}
	headers := fencepost.NewHeaders([]fencepost.Header{{Name: "Authorization", Value: "Bearer " + text + "." + encode(signature)}})
	hint := []byte(`{"merge_request":7}`)
	proof, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", headers, hint, time.Unix(1793880000, 0)), scheme)
	if err != nil {
		fmt.Println(err)
		return
	}
	claims, err := webhook.JobClaimsOf(headers)
	fmt.Println(proof, claims.ProjectID, claims.JobID, claims.Source, err)
	// Output: proof(route docs, anchor 2026) 20 302 pipeline_execution_policy <nil>
}
