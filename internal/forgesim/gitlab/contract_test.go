package gitlab_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
)

// Fields of contracts/gitlab.md, by section.
var (
	claimFields = map[string]string{ // §5
		"iss": "string", "sub": "string", "aud": "string", "jti": "string", "iat": "int", "nbf": "int", "exp": "int",
		"namespace_id": "string", "namespace_path": "string", "project_id": "string", "project_path": "string",
		"user_id": "string", "user_login": "string", "user_email": "string", "user_access_level": "string",
		"pipeline_id": "string", "job_id": "string", "pipeline_source": "string", "ref": "string", "ref_type": "string", "ref_path": "string",
		"ref_protected": "string", "runner_id": "int", "runner_environment": "string", "sha": "string", "project_visibility": "string",
		"ci_config_ref_uri": "string|null", "ci_config_sha": "string|null",
		"job_project_id": "string", "job_project_path": "string", "job_namespace_id": "string", "job_namespace_path": "string",
		"source_project_id": "string", "source_project_path": "string", "source_namespace_id": "string", "source_namespace_path": "string",
		"job_source": "string", "job_config.url": "string", "job_config.sha": "string",
	}
	carFields = map[string]string{ // §7
		"id": "int", "merge_request.id": "int", "merge_request.iid": "int", "merge_request.project_id": "int", "merge_request.title": "string",
		"merge_request.state": "string", "user": "object", "pipeline.id": "int", "pipeline.iid": "int", "pipeline.project_id": "int",
		"pipeline.ref": "string", "pipeline.sha": "string", "pipeline.source": "string", "pipeline.status": "string",
		"target_branch": "string", "status": "string", "created_at": "string", "updated_at": "string", "merged_at": "null|string", "duration": "null|int",
	}
	projectFields = map[string]string{ // §8
		"id": "int", "path_with_namespace": "string", "namespace.id": "int", "namespace.kind": "string", "namespace.full_path": "string",
		"http_url_to_repo": "string", "default_branch": "string", "visibility": "string", "archived": "bool", "merge_method": "string",
		"squash_option": "string", "only_allow_merge_if_pipeline_succeeds": "bool", "allow_merge_on_skipped_pipeline": "bool",
		"merge_pipelines_enabled": "bool", "merge_trains_enabled": "bool", "merge_trains_skip_train_allowed": "bool",
		"merge_train_enforcement": "string", "ci_config_path": "string", "ci_id_token_sub_claim_components": "array",
		"repository_object_format": "string", "ci_allow_fork_pipelines_to_run_in_parent_project": "bool",
	}
	requestFields = map[string]string{
		"id": "int", "iid": "int", "project_id": "int", "source_project_id": "int", "target_project_id": "int", "source_branch": "string",
		"target_branch": "string", "sha": "string", "merge_commit_sha": "null|string", "squash_commit_sha": "null", "state": "string",
		"diff_refs.base_sha": "string", "diff_refs.head_sha": "string", "diff_refs.start_sha": "string", "draft": "bool", "has_conflicts": "bool",
		"detailed_merge_status": "string", "merge_status": "string", "head_pipeline": "null|object", "prepared_at": "string",
		"merge_error": "null", "user.can_merge": "bool",
	}
	pipelineFields = map[string]string{
		"id": "int", "iid": "int", "project_id": "int", "status": "string", "source": "string", "ref": "string", "sha": "string",
		"before_sha": "string", "tag": "bool", "user": "object", "detailed_status": "object", "created_at": "string", "updated_at": "string",
	}
	jobFields = map[string]string{
		"id": "int", "name": "string", "status": "string", "stage": "string", "ref": "string", "allow_failure": "bool", "failure_reason": "null|string",
		"pipeline.id": "int", "pipeline.project_id": "int", "pipeline.ref": "string", "pipeline.sha": "string", "pipeline.status": "string",
		"commit.id": "string", "user": "object", "runner.id": "int", "project": "object", "created_at": "string", "started_at": "string",
	}
	protectedFields = map[string]string{
		"id": "int", "name": "string", "push_access_levels[].id": "int", "push_access_levels[].access_level": "int",
		"push_access_levels[].access_level_description": "string", "push_access_levels[].user_id": "null", "push_access_levels[].group_id": "null",
		"push_access_levels[].deploy_key_id": "null", "merge_access_levels[].access_level": "int", "unprotect_access_levels": "array",
		"allow_force_push": "bool", "code_owner_approval_required": "bool",
	}
	branchFields = map[string]string{
		"name": "string", "commit.id": "string", "commit.parent_ids": "array", "protected": "bool", "default": "bool", "can_push": "bool",
		"merged": "bool", "developers_can_push": "bool", "developers_can_merge": "bool",
	}
	commitFields = map[string]string{
		"id": "string", "parent_ids": "array", "message": "string", "author_name": "string", "author_email": "string", "committer_name": "string",
	}
	hookFields = map[string]string{ // §1, §3, trap 19
		"id": "int", "url": "string", "push_events": "bool", "merge_requests_events": "bool", "alert_status": "string",
		"disabled_until": "null|string", "token_present": "bool", "signing_token_present": "bool",
	}
	pushFields = map[string]string{ // §4
		"object_kind": "string", "event_name": "string", "before": "string", "after": "string", "ref": "string", "ref_protected": "bool",
		"checkout_sha": "string|null", "user_id": "int", "user_username": "string", "user_name": "string", "user_email": "string",
		"project_id": "int", "project.id": "int", "project.path_with_namespace": "string", "project.git_http_url": "string",
		"project.git_ssh_url": "string", "project.web_url": "string", "project.default_branch": "string", "project.visibility_level": "int",
		"project.namespace": "string", "project.name": "string", "repository.name": "string", "repository.git_http_url": "string",
		"commits": "array", "total_commits_count": "int",
	}
	pushedCommitFields = map[string]string{
		"commits[].id": "string", "commits[].message": "string", "commits[].title": "string", "commits[].timestamp": "string", "commits[].url": "string",
		"commits[].author": "object", "commits[].added": "array", "commits[].modified": "array", "commits[].removed": "array",
	}
	hookRequestFields = map[string]string{
		"object_kind": "string", "event_type": "string", "user.id": "int", "user.username": "string", "user.name": "string", "user.email": "string",
		"project.id": "int", "object_attributes.id": "int", "object_attributes.iid": "int", "object_attributes.action": "string",
		"object_attributes.state": "string", "object_attributes.source_branch": "string", "object_attributes.target_branch": "string",
		"object_attributes.source_project_id": "int", "object_attributes.target_project_id": "int", "object_attributes.last_commit.id": "string",
		"object_attributes.merge_status": "string", "object_attributes.detailed_merge_status": "string", "object_attributes.merge_commit_sha": "null|string",
		"object_attributes.draft": "bool", "object_attributes.work_in_progress": "bool", "object_attributes.source": "object",
		"object_attributes.target": "object", "object_attributes.updated_at": "string", "changes": "object", "labels": "array",
		"assignees": "array", "reviewers": "array",
	}
	// What other forges' events have and these have not.
	absentFields = []string{"created", "deleted", "forced", "head_commit", "sender", "pusher", "owner"}
)

func TestAnswersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.open("change", "a.md")
	car := b.join(m)
	pipe := car.Pipeline()
	hold(t, "project", b.get(""), projectFields)
	hold(t, "request", b.get("/merge_requests/1"), requestFields)
	hold(t, "car", b.get("/merge_trains/merge_requests/1"), carFields)
	for _, path := range []string{"/merge_trains?scope=active&sort=asc", "/merge_trains/main"} {
		hold(t, "cars", map[string]any{"all": b.get(path)}, map[string]string{"all[].id": "int", "all[].pipeline.id": "int"})
	}
	hold(t, "pipeline", b.get(fmt.Sprintf("/pipelines/%d", pipe.ID())), pipelineFields)
	hold(t, "job", b.get(fmt.Sprintf("/jobs/%d", pipe.Job("fencepost").ID())), jobFields)
	hold(t, "protected branch", b.get("/protected_branches/main"), protectedFields)
	hold(t, "protected branches", map[string]any{"all": b.get("/protected_branches")}, map[string]string{"all[].name": "string"})
	hold(t, "branch", b.get("/repository/branches/main"), branchFields)
	commit := b.get("/repository/commits/" + pipe.SHA())
	hold(t, "commit", commit, commitFields)
	for _, absent := range []string{"tree", "tree_id"} {
		if _, there := commit.(map[string]any)[absent]; there {
			t.Errorf("a commit has %s", absent)
		}
	}
	hold(t, "tree", map[string]any{"all": b.get("/repository/tree?ref=main")}, map[string]string{
		"all[].id": "string", "all[].name": "string", "all[].type": "string", "all[].path": "string", "all[].mode": "string",
	})
	hold(t, "merge ref", b.get("/merge_requests/1/merge_ref"), map[string]string{"commit_id": "string"})
	_, err := b.docs.AddHook(gitlab.HookConfig{URL: "http://127.0.0.1:1/"})
	must(t, err)
	hold(t, "hooks", map[string]any{"all": b.get("/hooks")}, prefixed("all[].", hookFields))
}

func prefixed(prefix string, fields map[string]string) map[string]string {
	out := map[string]string{}
	for name, kind := range fields {
		out[prefix+name] = kind
	}
	return out
}

func TestOlderServersSayLess(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version gitlab.Version
		absent  []string
	}{
		{gitlab.Version{Major: 18, Minor: 2}, []string{"job_project_id", "job_source", "job_config", "source_project_id"}},
		{gitlab.Version{Major: 18, Minor: 8}, []string{"job_source", "job_config", "source_project_id"}},
		{gitlab.Version{Major: 19, Minor: 3}, []string{"source_project_id"}},
		{gitlab.Version{Major: 19, Minor: 4}, nil},
	} {
		t.Run(tc.version.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *gitlab.Config) { c.Version = tc.version })
			claims := b.join(b.open("change", "a.md")).Pipeline().Job("fencepost").Claims(audience)
			for _, name := range []string{"job_project_id", "job_source", "job_config", "source_project_id"} {
				if _, there := claims[name]; there == slices.Contains(tc.absent, name) {
					t.Errorf("%s is there: %v", name, there)
				}
			}
			_, there := b.get("").(map[string]any)["merge_train_enforcement"]
			if want := tc.version.Major == 19 && tc.version.Minor >= 3; there != want {
				t.Errorf("merge_train_enforcement is there: %v", there)
			}
		})
	}
}

func TestTokensAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.RotateKey()
	m := b.open("change", "a.md")
	job := b.join(m).Pipeline().Job("fencepost")
	text, err := job.Token(audience)
	must(t, err)
	parts := strings.Split(text, ".")
	header, payload := part(t, parts[0]), part(t, parts[1])
	hold(t, "claims", payload, claimFields)
	for name, want := range map[string]any{
		"iss": "http://gitlab.invalid", "aud": audience, "pipeline_source": "merge_request_event", "ref": "change", "ref_protected": "false",
		"sha": job.Pipeline().SHA(), "job_source": "pipeline_execution_policy", "ci_config_ref_uri": nil, "runner_id": 1.0,
		"job_id": fmt.Sprint(job.ID()), "pipeline_id": fmt.Sprint(job.Pipeline().ID()), "job_project_id": fmt.Sprint(b.docs.ID()),
		"iat": float64(b.now.Load()), "nbf": float64(b.now.Load() - 5), "exp": float64(b.now.Load() + 300),
		"sub": "project_path:acme/handbooks/docs:ref_type:branch:ref:change",
	} {
		if payload[name] != want {
			t.Errorf("%s is %v, want %v", name, payload[name], want)
		}
	}
	commit := b.policies.Ref("refs/heads/main")
	if config := payload["job_config"].(map[string]any); config["sha"] != commit ||
		config["url"] != "http://gitlab.invalid/acme/policies/-/blob/"+commit+"/.gitlab/security-policies/policy.yml" {
		t.Errorf("job_config is %v", config)
	}
	keys := b.forge.Keys()
	if len(keys) != 2 || header["kid"] != keys[1].ID || header["alg"] != "RS256" || len(maps.Collect(maps.All(header))) != 3 {
		t.Errorf("the header is %v", header)
	}
	verify(t, text, keys[1])
	if again, _ := job.Token(audience); again != text {
		t.Error("one run of a job has two tokens")
	}
	must(t, job.Finish(t.Context(), nil))
	if _, err := job.Token("another"); err == nil {
		t.Error("an ended job gets a token")
	}
}

func skip(_ string, err error) error { return err }

func part(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(text)
	must(t, err)
	var o map[string]any
	must(t, json.Unmarshal(raw, &o))
	return o
}

// verify verifies a token with a published key, and the key's name.
func verify(t *testing.T, token string, k gitlab.JWK) {
	t.Helper()
	n, err := base64.RawURLEncoding.DecodeString(k.N)
	must(t, err)
	e, err := base64.RawURLEncoding.DecodeString(k.E)
	must(t, err)
	key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	at := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.DecodeString(token[at+1:])
	must(t, err)
	sum := sha256.Sum256([]byte(token[:at]))
	if err := rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature); err != nil {
		t.Errorf("the token's signature: %v", err)
	}
	// The members in the order of RFC 7638, §3.3, without blanks.
	name := sha256.Sum256([]byte(`{"e":"` + k.E + `","kty":"RSA","n":"` + k.N + `"}`))
	if k.ID != base64.RawURLEncoding.EncodeToString(name[:]) {
		t.Errorf("the key is called %s", k.ID)
	}
}

func TestTheIssuerPublishesItsKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.forge.Keys()[0].ID
	second := b.forge.RotateKey()
	published := func() []string {
		_, _, body := b.do("GET", "/oauth/discovery/keys", "")
		var got struct{ Keys []map[string]string }
		must(t, json.Unmarshal([]byte(body), &got))
		var ids []string
		for _, k := range got.Keys {
			if k["kty"] != "RSA" || k["use"] != "sig" || k["alg"] != "RS256" || k["n"] == "" || k["e"] == "" {
				t.Errorf("a key is %v", k)
			}
			ids = append(ids, k["kid"])
		}
		return ids
	}
	if got := published(); !slices.Equal(got, []string{first, second}) {
		t.Errorf("published are %v", got)
	}
	b.forge.RetireKey(first)
	if got := published(); !slices.Equal(got, []string{second}) {
		t.Errorf("published are %v", got)
	}
	_, _, body := b.do("GET", "/.well-known/openid-configuration", "")
	if !strings.Contains(body, `"issuer":"http://gitlab.invalid"`) || !strings.Contains(body, `"jwks_uri":"http://gitlab.invalid/oauth/discovery/keys"`) {
		t.Errorf("the discovery document is %s", body)
	}
}

func TestWebhooksAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must(t, skipHook(b.docs.AddHook(gitlab.HookConfig{Pushes: true, Requests: true})))
	before := b.main()
	head, err := b.docs.Push(t.Context(), forgesim.Push{Change: texts("x"), Actor: "mona"})
	must(t, err)
	m := b.open("change", "a.md")
	must(t, skip(m.Push(t.Context(), texts("b.md"))))
	must(t, m.Close(t.Context()))
	must(t, b.docs.DeleteBranch(t.Context(), "change"))
	out := b.forge.TakeOutbox()
	var told []string
	for _, d := range out {
		var o map[string]any
		must(t, json.Unmarshal(d.Body, &o))
		if d.Event == "Push Hook" {
			told = append(told, "push")
			hold(t, "push", o, pushFields)
			if o["after"] != strings.Repeat("0", 40) {
				hold(t, "push", o, pushedCommitFields)
			}
			for _, name := range absentFields {
				if _, there := o[name]; there {
					t.Errorf("a push has %s", name)
				}
			}
			continue
		}
		hold(t, "merge request", o, hookRequestFields)
		attributes := o["object_attributes"].(map[string]any)
		told = append(told, attributes["action"].(string))
		if _, there := attributes["oldrev"]; there != (attributes["action"] == "update") {
			t.Errorf("%v has oldrev: %v", attributes["action"], there)
		}
	}
	if want := []string{"push", "push", "open", "push", "update", "close", "push"}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	var first, last map[string]any
	must(t, json.Unmarshal(out[0].Body, &first))
	must(t, json.Unmarshal(out[len(out)-1].Body, &last))
	if first["before"] != before || first["after"] != head || first["checkout_sha"] != head || first["user_username"] != "mona" ||
		first["ref"] != "refs/heads/main" || first["ref_protected"] != true || first["project"].(map[string]any)["path_with_namespace"] != "acme/handbooks/docs" {
		t.Errorf("the first push says %v", first)
	}
	if last["checkout_sha"] != nil || last["ref"] != "refs/heads/change" {
		t.Errorf("the push that deletes says %v", last)
	}
}

func skipHook(_ *gitlab.Hook, err error) error { return err }
