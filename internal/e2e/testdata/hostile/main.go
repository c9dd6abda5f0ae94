// Command hostile is a check that does what the file "behaviour" of the
// candidate tells it to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/runner/check"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "linger" {
		time.Sleep(time.Hour)
		return
	}
	os.Exit(check.Main(context.Background(), judge))
}

func judge(ctx context.Context, req *check.Request) (check.Verdict, error) {
	tree, err := req.OpenCandidate()
	if err != nil {
		return check.Verdict{}, err
	}
	defer tree.Close()
	text, err := tree.ReadFile("behaviour")
	if err != nil {
		return check.Verdict{}, err
	}
	behaviour, argument, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	return behave(ctx, req, behaviour, argument)
}

func behave(ctx context.Context, req *check.Request, behaviour, argument string) (check.Verdict, error) {
	switch behaviour {
	case "pass":
		return check.Pass("All is well", argument), nil
	case "block":
		return check.Block("Not like this", argument), nil
	case "slow":
		d, err := time.ParseDuration(argument)
		if err != nil {
			return check.Verdict{}, err
		}
		select {
		case <-time.After(d):
			return check.Pass("Slow but sure", ""), nil
		case <-ctx.Done():
			return check.Verdict{}, ctx.Err()
		}
	case "crash":
		return check.Verdict{}, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "nothing":
		os.Exit(0)
	case "hang":
		time.Sleep(time.Hour)
	case "bomb":
		return bomb()
	case "oversized":
		return raw(check.ResultFile, strings.Repeat("x", check.MaxResultBytes+1))
	case "malformed":
		return raw(check.ResultFile, `{"schema":"fencepost.result/v1","schema":"twice"}`)
	case "disagree":
		// A valid passing result, and the exit status of a block.
		if _, err := check.Run(ctx, ".", pass); err != nil {
			return check.Verdict{}, err
		}
		os.Exit(check.ExitBlock)
	case "foreign":
		// The result of another run.
		result := check.Result{
			Schema: check.ResultSchema, Run: "evl_other.1", RequestSHA256: check.DigestOf(nil),
			ReportSHA256: check.DigestOf([]byte("null")), Conclusion: check.ConclusionPass, Title: "Not mine",
		}
		text, err := result.Encode()
		if err != nil {
			return check.Verdict{}, err
		}
		if _, err := raw(check.ReportFile, "null"); err != nil {
			return check.Verdict{}, err
		}
		if _, err := raw(check.ResultFile, string(text)); err != nil {
			return check.Verdict{}, err
		}
		os.Exit(check.ExitPass)
	case "replace":
		for _, name := range []string{check.ResultFile, check.ReportFile} {
			if err := os.Remove(name); err != nil {
				return check.Verdict{}, err
			}
		}
		return check.Pass("From files of my own", ""), nil
	case "linger":
		// A descendant in a session of its own outlives the program.
		cmd := exec.Command(os.Args[0], "linger")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return check.Verdict{}, err
		}
		return check.Pass("Somebody stays behind", ""), nil
	}
	return check.Verdict{}, fmt.Errorf("unknown behaviour %q", behaviour)
}

func pass(context.Context, *check.Request) (check.Verdict, error) {
	return check.Pass("All is well", ""), nil
}

// raw writes bytes into a file of the contract and leaves.
func raw(name, text string) (check.Verdict, error) {
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return check.Verdict{}, err
	}
	if name == check.ResultFile && !strings.HasPrefix(text, `{"schema":"fencepost.result/v1","run"`) {
		os.Exit(check.ExitPass)
	}
	return check.Verdict{}, nil
}

// bomb starts descendants until no more can be had, and never ends by itself.
func bomb() (check.Verdict, error) {
	for {
		cmd := exec.Command(os.Args[0], "linger")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}
