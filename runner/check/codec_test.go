package check_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

func commit(c string) fencepost.CommitID {
	id, err := fencepost.ParseCommitID(strings.Repeat(c, 40))
	if err != nil {
		panic(err)
	}
	return id
}

func tree(c string) fencepost.TreeID { return fencepost.TreeID{ObjectID: commit(c).ObjectID} }

func request() check.Request {
	issued := time.Date(2026, 3, 1, 12, 0, 0, 5_000_000, time.UTC)
	return check.Request{
		Schema: check.RequestSchema, Run: "evl_abc.7", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		Repository: check.Repository{Provider: "github", ID: "1296269", Name: "acme/docs"},
		Base:       check.Base{Ref: "refs/heads/main", Commit: commit("1"), Tree: tree("2")},
		Head:       check.Revision{Commit: commit("3"), Tree: tree("4")},
		Candidate:  check.Candidate{Commit: commit("5"), Tree: tree("6"), Root: "/candidate"},
		Action:     check.Action{Commit: commit("7"), Root: "/action", ProgramSHA256: check.DigestOf([]byte("program"))},
		IssuedAt:   check.Time(issued), Deadline: check.Time(issued.Add(90 * time.Second)),
		Evidence: []check.Evidence{{Name: "draft", Value: "false"}},
	}
}

func result() check.Result {
	return check.Result{
		Schema: check.ResultSchema, Run: "evl_abc.7",
		RequestSHA256: check.DigestOf([]byte("q")), ReportSHA256: check.DigestOf([]byte("r")),
		Conclusion: check.ConclusionBlock, Title: "2 broken links", Summary: "- `a.md`\n",
	}
}

func TestRequestHasOneCanonicalForm(t *testing.T) {
	t.Parallel()
	req := request()
	got, err := req.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"action":{"commit":"7777777777777777777777777777777777777777","program_sha256":"5f7afae77fc84e9e00d9d1c5ebb9f4ba67a0dc7dd6ca0dd8e7e7ed5cf0ab3d7b","root":"/action"},` +
		`"base":{"commit":"1111111111111111111111111111111111111111","ref":"refs/heads/main","tree":"2222222222222222222222222222222222222222"},` +
		`"candidate":{"commit":"5555555555555555555555555555555555555555","root":"/candidate","tree":"6666666666666666666666666666666666666666"},` +
		`"deadline":"2026-03-01T12:01:30.005Z","delivery":"dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa","evidence":[{"name":"draft","value":"false"}],` +
		`"head":{"commit":"3333333333333333333333333333333333333333","tree":"4444444444444444444444444444444444444444"},` +
		`"issued_at":"2026-03-01T12:00:00.005Z","repository":{"id":"1296269","name":"acme/docs","provider":"github"},"run":"evl_abc.7","schema":"fencepost.request/v1"}`
	want = strings.Replace(want, "5f7afae77fc84e9e00d9d1c5ebb9f4ba67a0dc7dd6ca0dd8e7e7ed5cf0ab3d7b", check.DigestOf([]byte("program")).String(), 1)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("canonical form (-want +got):\n%s", diff)
	}
	back, err := check.DecodeRequest(got)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := back.Encode(); err != nil || !bytes.Equal(again, got) {
		t.Errorf("decoded and encoded again: %s, %v", again, err)
	}
}

func TestRequestOutsideTheContractIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*check.Request)
		want  error
	}{
		"schema":             {func(r *check.Request) { r.Schema = "fencepost.request/v2" }, fencepost.ErrMalformed},
		"run empty":          {func(r *check.Request) { r.Run = "" }, fencepost.ErrMalformed},
		"run with a slash":   {func(r *check.Request) { r.Run = "a/b" }, fencepost.ErrMalformed},
		"delivery":           {func(r *check.Request) { r.Delivery = "dlv_x" }, fencepost.ErrMalformed},
		"provider empty":     {func(r *check.Request) { r.Repository.Provider = "" }, fencepost.ErrMalformed},
		"name over its cap":  {func(r *check.Request) { r.Repository.Name = strings.Repeat("a", 600) }, fencepost.ErrTooLarge},
		"ref with a newline": {func(r *check.Request) { r.Base.Ref = "refs/heads/a\nb" }, fencepost.ErrMalformed},
		"zero base commit":   {func(r *check.Request) { r.Base.Commit = fencepost.CommitID{} }, fencepost.ErrMalformed},
		"zero head tree":     {func(r *check.Request) { r.Head.Tree = fencepost.TreeID{} }, fencepost.ErrMalformed},
		"zero candidate":     {func(r *check.Request) { r.Candidate.Commit = fencepost.CommitID{} }, fencepost.ErrMalformed},
		"zero program":       {func(r *check.Request) { r.Action.ProgramSHA256 = check.Digest{} }, fencepost.ErrMalformed},
		"no root":            {func(r *check.Request) { r.Candidate.Root = "" }, fencepost.ErrMalformed},
		"no action root":     {func(r *check.Request) { r.Action.Root = "" }, fencepost.ErrMalformed},
		"deadline in past":   {func(r *check.Request) { r.Deadline = r.IssuedAt }, fencepost.ErrMalformed},
		"evidence null":      {func(r *check.Request) { r.Evidence = nil }, fencepost.ErrMalformed},
		"evidence name":      {func(r *check.Request) { r.Evidence[0].Name = "A" }, fencepost.ErrMalformed},
		"evidence control":   {func(r *check.Request) { r.Evidence[0].Value = "\x1b[2J" }, fencepost.ErrMalformed},
		"evidence value":     {func(r *check.Request) { r.Evidence[0].Value = strings.Repeat("a", 513) }, fencepost.ErrTooLarge},
		"much evidence":      {func(r *check.Request) { r.Evidence = make([]check.Evidence, 65) }, fencepost.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request()
			c.spoil(&req)
			if _, err := req.Encode(); !errors.Is(err, c.want) {
				t.Errorf("Encode: %v, want %v", err, c.want)
			}
		})
	}
}

func TestResultDecodesStrictly(t *testing.T) {
	t.Parallel()
	res := result()
	good, err := res.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := check.DecodeResult(good); err != nil || got != res {
		t.Fatalf("round trip: %+v, %v", got, err)
	}
	edit := func(old, new string) []byte {
		out := strings.Replace(string(good), old, new, 1)
		if out == string(good) {
			panic("nothing replaced: " + old)
		}
		return []byte(out)
	}
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"empty":               {nil, fencepost.ErrMalformed},
		"not an object":       {[]byte(`[]`), fencepost.ErrMalformed},
		"null":                {[]byte(`null`), fencepost.ErrMalformed},
		"two objects":         {append(bytes.Clone(good), good...), fencepost.ErrMalformed},
		"trailing byte":       {append(bytes.Clone(good), 'x'), fencepost.ErrMalformed},
		"torn":                {good[:len(good)-1], fencepost.ErrMalformed},
		"byte order mark":     {append([]byte("\ufeff"), good...), fencepost.ErrMalformed},
		"unknown field":       {edit(`{`, `{"extra":1,`), fencepost.ErrMalformed},
		"duplicate key":       {edit(`{`, `{"conclusion":"pass",`), fencepost.ErrMalformed},
		"key in other case":   {edit(`"title"`, `"Title"`), fencepost.ErrMalformed},
		"invalid UTF-8":       {edit(`2 broken`, "\xff"), fencepost.ErrMalformed},
		"lone surrogate":      {edit(`2 broken`, `\ud800`), fencepost.ErrMalformed},
		"summary missing":     {edit(`,"summary":"- `+"`a.md`"+`\n"`, ``), fencepost.ErrMalformed},
		"title null":          {edit(`"2 broken links"`, `null`), fencepost.ErrMalformed},
		"conclusion missing":  {edit(`"conclusion":"block",`, ``), fencepost.ErrMalformed},
		"conclusion unknown":  {edit(`"block"`, `"neutral"`), fencepost.ErrMalformed},
		"conclusion a number": {edit(`"block"`, `1`), fencepost.ErrMalformed},
		"schema":              {edit(`result/v1`, `result/v2`), fencepost.ErrMalformed},
		"digest in capitals":  {edit(res.ReportSHA256.String(), strings.ToUpper(res.ReportSHA256.String())), fencepost.ErrMalformed},
		"digest short":        {edit(res.ReportSHA256.String(), "00"), fencepost.ErrMalformed},
		"digest zero":         {edit(res.ReportSHA256.String(), strings.Repeat("0", 64)), fencepost.ErrMalformed},
		"title empty":         {edit(`2 broken links`, ``), fencepost.ErrMalformed},
		"title of two lines":  {edit(`2 broken links`, `a\nb`), fencepost.ErrMalformed},
		"title too long":      {edit(`2 broken links`, strings.Repeat("é", 121)), fencepost.ErrTooLarge},
		"title with escape":   {edit(`2 broken links`, `\u001b[31m`), fencepost.ErrMalformed},
		"title with C1":       {edit(`2 broken links`, `\u009b31m`), fencepost.ErrMalformed},
		"summary too long":    {edit(`- `, strings.Repeat("a", 8193)), fencepost.ErrTooLarge},
		"summary with NUL":    {edit(`- `, `\u0000`), fencepost.ErrMalformed},
		"over the file's cap": {bytes.Repeat([]byte(" "), check.MaxResultBytes+1), fencepost.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := check.DecodeResult(c.in)
			if !errors.Is(err, c.want) {
				t.Errorf("err = %v, want %v", err, c.want)
			}
			if got != (check.Result{}) {
				t.Errorf("a refused result came back as %+v", got)
			}
		})
	}
}

func TestTitleAtItsLimitIsAccepted(t *testing.T) {
	t.Parallel()
	res := result()
	res.Title = strings.Repeat("é", check.MaxTitleChars)
	res.Summary = strings.Repeat("\n", check.MaxSummaryBytes)
	b, err := res.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.DecodeResult(b); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsOfDecodingNeverQuoteTheProgram(t *testing.T) {
	t.Parallel()
	const canary = "ghp_canary"
	for _, in := range []string{`{"` + canary + `":1}`, `{"schema":"` + canary + `"}`, `{"schema":` + canary + `}`, canary} {
		if _, err := check.DecodeResult([]byte(in)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("DecodeResult(%q): %v", in, err)
		}
		if err := check.ValidReport([]byte(in + in)); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("ValidReport(%q): %v", in+in, err)
		}
	}
}

func TestReportIsOneBoundedValue(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		in   string
		want error
	}{
		"number":           {`1`, nil},
		"null":             {` null `, nil},
		"deep enough":      {nested(check.MaxReportDepth), nil},
		"full":             {`"` + strings.Repeat("a", check.MaxReportBytes-2) + `"`, nil},
		"empty":            {``, fencepost.ErrMalformed},
		"blank":            {"\n", fencepost.ErrMalformed},
		"two values":       {`1 2`, fencepost.ErrMalformed},
		"deep duplicate":   {`{"a":[{"b":1,"b":2}]}`, fencepost.ErrMalformed},
		"escaped twin key": {`{"a":1,"\u0061":2}`, fencepost.ErrMalformed},
		"too deep":         {nested(check.MaxReportDepth + 1), fencepost.ErrMalformed},
		"unclosed":         {`[1`, fencepost.ErrMalformed},
		"invalid UTF-8":    {"\"\xc3\"", fencepost.ErrMalformed},
		"too many values":  {`[` + strings.Repeat("1,", check.MaxReportValues) + `1]`, fencepost.ErrMalformed},
		"too large":        {`"` + strings.Repeat("a", check.MaxReportBytes-1) + `"`, fencepost.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := check.ValidReport([]byte(c.in)); !errors.Is(err, c.want) {
				t.Errorf("err = %v, want %v", err, c.want)
			}
		})
	}
}

func TestTimesHaveOneForm(t *testing.T) {
	t.Parallel()
	var got check.Time
	if err := got.UnmarshalText([]byte("2026-03-01T12:00:00.120Z")); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{"", "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.12Z", "2026-03-01T12:00:00.1200Z", "2026-03-01T12:00:00,120Z", "2026-03-01T12:00:00.120+00:00", "2026-03-01t12:00:00.120z", "2026-02-30T12:00:00.120Z"} {
		if err := got.UnmarshalText([]byte(in)); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%q: %v, want malformed", in, err)
		}
	}
}

func TestClipKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "…"}, {"abcdef", 5, "ab…"}, {"ééé", 5, "é…"}, {"日本語", 8, "日…"}, {"", 3, ""},
	} {
		if got := check.Clip(c.in, c.most); got != c.want || len(got) > c.most {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

func FuzzDecodeResult(f *testing.F) {
	res := result()
	good, err := res.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, s := range []string{``, `{}`, `{"schema":"fencepost.result/v1"}`, `{"a":1,"a":2}`, `"\ud800"`, `[[[[`, `{"title":null}`, `1e999`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := check.DecodeResult(in)
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrTooLarge) {
				t.Fatalf("untyped error %v", err)
			}
			if got != (check.Result{}) {
				t.Fatalf("refused, yet %+v", got)
			}
			return
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatalf("accepted, but not encodable: %v", err)
		}
		if back, err := check.DecodeResult(again); err != nil || back != got {
			t.Fatalf("round trip: %+v, %v, want %+v", back, err, got)
		}
	})
}

func FuzzValidReport(f *testing.F) {
	for _, s := range []string{``, `{}`, `[1,"a",null,{"b":[true]}]`, `{"a":1,"\u0061":2}`, `1 2`, `[[[[[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		err := check.ValidReport(in)
		if err != nil && !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrTooLarge) {
			t.Fatalf("untyped error %v", err)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	req := request()
	good, err := req.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"evidence":null}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := check.DecodeRequest(in)
		if err != nil {
			return
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatalf("accepted, but not encodable: %v", err)
		}
		if back, err := check.DecodeRequest(again); err != nil || !cmp.Equal(fmt.Sprint(back), fmt.Sprint(got)) {
			t.Fatalf("round trip: %+v, %v", back, err)
		}
	})
}
