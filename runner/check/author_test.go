package check_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// workdir makes a working directory as the controller does.
func workdir(t *testing.T, req check.Request) (dir string, raw []byte) {
	t.Helper()
	dir = t.TempDir()
	req.Candidate.Root = filepath.Join(dir, "candidate")
	if err := os.Mkdir(req.Candidate.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	raw, err := req.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, check.RequestFile), raw)
	write(t, filepath.Join(dir, check.ReportFile), nil)
	write(t, filepath.Join(dir, check.ResultFile), nil)
	return dir, raw
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// future is a request whose deadline lies ahead of the real clock.
func future() check.Request {
	req := request()
	req.IssuedAt = check.Time(time.Now())
	req.Deadline = check.Time(time.Now().Add(time.Minute))
	return req
}

func TestRunLeavesAnAgreeingResult(t *testing.T) {
	t.Parallel()
	for _, want := range []check.Conclusion{check.ConclusionPass, check.ConclusionBlock} {
		dir, raw := workdir(t, future())
		before, err := os.Stat(filepath.Join(dir, check.ResultFile))
		if err != nil {
			t.Fatal(err)
		}
		got, err := check.Run(t.Context(), dir, func(context.Context, *check.Request) (check.Verdict, error) {
			return check.Verdict{Conclusion: want, Title: "A title", Report: map[string]int{"b": 2, "a": 1}}, nil
		})
		if err != nil || got != want {
			t.Fatalf("Run = %q, %v, want %q", got, err, want)
		}
		report := read(t, filepath.Join(dir, check.ReportFile))
		if string(report) != `{"a":1,"b":2}` {
			t.Errorf("report = %s", report)
		}
		result, err := check.DecodeResult(read(t, filepath.Join(dir, check.ResultFile)))
		if err != nil {
			t.Fatal(err)
		}
		wantResult := check.Result{
			Schema: check.ResultSchema, Run: "evl_abc.7", RequestSHA256: check.DigestOf(raw),
			ReportSHA256: check.DigestOf(report), Conclusion: want, Title: "A title",
		}
		if result != wantResult {
			t.Errorf("result = %+v, want %+v", result, wantResult)
		}
		after, err := os.Stat(filepath.Join(dir, check.ResultFile))
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("result.json was replaced, not written into (%v)", err)
		}
	}
}

func TestCheckThatCannotDecideWritesNoResult(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		judge check.Func
		want  error
	}{
		"error":      {func(context.Context, *check.Request) (check.Verdict, error) { return check.Pass("x", ""), boom }, boom},
		"panic":      {func(context.Context, *check.Request) (check.Verdict, error) { panic("oh") }, check.ErrPanicked},
		"no verdict": {func(context.Context, *check.Request) (check.Verdict, error) { return check.Verdict{}, nil }, fencepost.ErrMalformed},
		"long title": {func(context.Context, *check.Request) (check.Verdict, error) {
			return check.Pass(strings.Repeat("a", 121), ""), nil
		}, fencepost.ErrTooLarge},
		"long report": {func(context.Context, *check.Request) (check.Verdict, error) {
			return check.Pass("x", "").WithReport(strings.Repeat("a", check.MaxReportBytes)), nil
		}, fencepost.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, _ := workdir(t, future())
			got, err := check.Run(t.Context(), dir, c.judge)
			if got != "" || !errors.Is(err, c.want) {
				t.Errorf("Run = %q, %v, want no conclusion and %v", got, err, c.want)
			}
			if b := read(t, filepath.Join(dir, check.ResultFile)); len(b) != 0 {
				t.Errorf("result.json holds %s", b)
			}
		})
	}
}

func TestRunRefusesAnUnreadableRequest(t *testing.T) {
	t.Parallel()
	never := func(context.Context, *check.Request) (check.Verdict, error) {
		t.Error("judge was called")
		return check.Pass("x", ""), nil
	}
	dir := t.TempDir()
	if _, err := check.Run(t.Context(), dir, never); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing request: %v", err)
	}
	write(t, filepath.Join(dir, check.RequestFile), []byte(`{}`))
	if _, err := check.Run(t.Context(), dir, never); !errors.Is(err, fencepost.ErrMalformed) {
		t.Errorf("malformed request: %v", err)
	}
	write(t, filepath.Join(dir, check.RequestFile), make([]byte, check.MaxRequestBytes+1))
	if _, err := check.Run(t.Context(), dir, never); !errors.Is(err, fencepost.ErrTooLarge) {
		t.Errorf("oversized request: %v", err)
	}
}

func TestContextEndsBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	req := future()
	dir, _ := workdir(t, req)
	_, err := check.Run(t.Context(), dir, func(ctx context.Context, got *check.Request) (check.Verdict, error) {
		end, ok := ctx.Deadline()
		if want := time.Time(got.Deadline).Add(-check.FinishMargin); !ok || !end.Equal(want) {
			t.Errorf("context ends %v, want %v", end, want)
		}
		return check.Pass("x", ""), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCandidateCannotBeLeftThroughItsRoot(t *testing.T) {
	t.Parallel()
	dir, _ := workdir(t, future())
	write(t, filepath.Join(dir, "outside"), []byte("secret"))
	if err := os.Symlink("../outside", filepath.Join(dir, "candidate", "link")); err != nil {
		t.Fatal(err)
	}
	_, err := check.Run(t.Context(), dir, func(_ context.Context, req *check.Request) (check.Verdict, error) {
		tree, err := req.OpenCandidate()
		if err != nil {
			return check.Verdict{}, err
		}
		defer tree.Close()
		for _, name := range []string{"link", "../outside"} {
			if b, err := tree.ReadFile(name); err == nil {
				t.Errorf("%s read %q from outside the tree", name, b)
			}
		}
		return check.Pass("x", ""), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestExitStatusAgreesWithTheConclusion(t *testing.T) {
	t.Parallel()
	for c, want := range map[check.Conclusion]int{check.ConclusionPass: 0, check.ConclusionBlock: 1, "": 2, "neutral": 2} {
		if got := c.ExitStatus(); got != want {
			t.Errorf("%q exits %d, want %d", c, got, want)
		}
	}
}
