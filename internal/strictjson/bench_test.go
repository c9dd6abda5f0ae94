package strictjson_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencepost/fencepost/internal/strictjson"
)

// webhook is a text of the size and shape of a pull request's: objects of
// many short keys, most values URLs and numbers.
func webhook(size int) []byte {
	var b strings.Builder
	b.WriteString(`{"action":"synchronize","number":2,"repository":{"id":1296269,"full_name":"acme/docs","owner":{"id":1,"login":"acme"}},"installation":{"id":2},"lists":[`)
	for i := 0; b.Len() < size-400; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"node_id":"MDExOlB1bGxSZXF1ZXN0%012d","url":"https://api.example.com/repos/acme/docs/pulls/%d","html_url":"https://example.com/acme/docs/pull/%d","state":"open","locked":false,"title":"Update the README with new information.","assignee":null,"site_admin":false,"type":"User"}`,
			900_000_000+i, i, i, i)
	}
	b.WriteString(`],"pull_request":{"id":279147437,"head":{"sha":"ec26c3e57ca3a959ca5aad62de7213c562f8c821"},"merged":false}`)
	b.WriteString(`,"filler":"` + strings.Repeat("x", max(0, size-b.Len()-13)) + `"}`)
	return []byte(b.String())
}

type pullRequest struct {
	Action     string `json:"action"`
	Number     int64  `json:"number"`
	Repository struct {
		ID       int64  `json:"id"`
		FullName string `json:"full_name"`
		Owner    struct {
			ID int64 `json:"id"`
		} `json:"owner"`
	} `json:"repository"`
	Installation *struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	PullRequest struct {
		ID   int64 `json:"id"`
		Head struct {
			SHA string `json:"sha"`
		} `json:"head"`
	} `json:"pull_request"`
}

// cpuTime is what the process has computed so far: on a busy machine it says
// more than the time of day.
func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func BenchmarkWebhook(b *testing.B) {
	texts := map[string][]byte{"8KiB": webhook(8 << 10), "256KiB": webhook(256 << 10)}
	if name := os.Getenv("STRICTJSON_BENCH_FILE"); name != "" {
		file, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		texts = map[string][]byte{"file": file}
	}
	decoder := strictjson.NewDecoder[pullRequest](strictjson.Limits{})
	for size, text := range texts {
		run := func(name string, f func() error) {
			b.Run(size+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
				spent := cpuTime(b) - before
				b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(len(text))*float64(b.N)*1e3/float64(spent), "cpu-MB/s")
			})
		}
		run("check", func() error { return strictjson.Check(text, strictjson.Limits{}) })
		run("decode", func() error { _, err := decoder.Decode(text); return err })
		run("jsontext-valid", func() error {
			if !jsontext.Value(text).IsValid() {
				return fmt.Errorf("not valid")
			}
			return nil
		})
		run("jsonv2", func() error { var v pullRequest; return jsonv2.Unmarshal(text, &v) })
		run("encoding-json", func() error { var v pullRequest; return json.Unmarshal(text, &v) })
	}
}
