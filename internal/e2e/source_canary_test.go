package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// Invariant 16 for sources: known secrets, personal fields and content go in
// at every edge, at debug level, through successes and failures; then every
// output is searched for them, each row of each table first.
func TestNoSecretOrContentOfASourceReachesAnyOutput(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		canariesOfASource(t, "")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		canariesOfASource(t, postgres.Database(t))
	})
}

func canariesOfASource(t *testing.T, database string) {
	canaries := map[string]string{
		"file content": "CANARY-CONTENT-77e0", "path": "canary-path-5b1c", "commit message": "CANARY-MESSAGE-20d4",
		"sender": "canary-sender-41aa", "header value": "CANARY-HEADER-90c3", "delivery id": "canary-delivery-8812",
		"refused body": "CANARY-BODY-7d1f", "provider's text": "CANARY-PROVIDER-3e3e",
	}
	heard := hearAlerts(t)
	config := handbook(world.FieldConfig{
		Args: []string{"--debug"}, Manual: true,
		YAML: "source_work: {batch: 16}\nalerts: {alertmanager: " + heard.url + ", allow_http: true}\n",
		Sources: []world.FieldSource{{
			Key: "handbook", Repository: "handbook", YAML: "    fetch: {file: 64KiB}\n",
		}},
	})
	if database != "" {
		config.Databases = []string{database}
		u, err := url.Parse(database)
		if err != nil {
			t.Fatal(err)
		}
		canaries["database password"], _ = u.User.Password()
	}
	f := newField(t, config)
	canaries["webhook secret"], canaries["read token"] = f.Secret, f.Tokens["handbook"]
	canaries["basic credential"] = "x-access-token:" + f.Tokens["handbook"]
	canaries["directory"] = f.Dir
	l := lookInto(t, f)
	push := func(files map[string]string) string {
		t.Helper()
		return pushTo(t, f, forgesim.Push{Actor: canaries["sender"], Change: forgesim.Change{Files: files, Message: canaries["commit message"]}})
	}

	// A success, a head that is behind, and content that is refused.
	commit := push(map[string]string{canaries["path"] + "/a.md": canaries["file content"]})
	for _, d := range f.Forge.TakeOutbox() {
		d.GUID = canaries["delivery id"]
		req, err := f.Forge.Request(t.Context(), d, f.HookURL(0, "handbook"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Canary", canaries["header value"])
		if status, a := exchange(t, f, req); status != 202 && status != 200 {
			t.Errorf("answered %d %s", status, a)
		}
	}
	l.awaitApplied("handbook", commit)
	refuseBodies(t, f, canaries)
	began := time.Now()
	push(map[string]string{canaries["path"] + "/large.md": strings.Repeat(canaries["file content"], 8<<10)})
	deliverTo(t, f, f.HookURL(0, "handbook"))
	l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonContent)
	began = time.Now()
	pushTo(t, f, forgesim.Push{To: commit})
	pushTo(t, f, forgesim.Push{Actor: canaries["sender"], Change: forgesim.Change{
		Files: map[string]string{canaries["path"] + "/link": "/etc/" + canaries["path"]}, Modes: map[string]string{canaries["path"] + "/link": "120000"},
	}})
	deliverTo(t, f, f.HookURL(0, "handbook"))
	l.awaitEnd("handbook", began, source.Failed, fencepost.ReasonContent)
	// The provider says things that must not travel.
	f.Forge.Inject(forgesim.Fault{Times: -1, Effect: forgesim.Redirect{Location: "http://" + canaries["provider's text"] + ".invalid/"}})
	l.awaitAlert("handbook", source.AlertProvider, true)
	f.Forge.Calm()
	f.Forge.RevokeToken(f.Tokens["handbook"])
	l.awaitAlert("handbook", source.AlertCredential, true)
	await(t, "an alert at the Alertmanager", func() bool { return bytes.Contains(heard.all(), []byte("handbook")) })

	outputs := map[string][]byte{}
	for _, path := range []string{"/metrics", "/", "/readyz", "/healthz"} {
		outputs["GET "+path] = fetchPage(t, f, path)
	}
	shownBySources(t, f, l, outputs)
	dumpTables(t, l, outputs)
	if err := f.Controllers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	outputs["posted alerts"] = heard.all()
	collectField(t, f, outputs)
	if len(outputs["serve.log"]) == 0 || len(outputs) < 20 {
		t.Fatalf("only %d outputs were found", len(outputs))
	}
	for what, canary := range canaries {
		if len(canary) < 8 {
			t.Fatalf("%s is %q: too short to look for", what, canary)
		}
		for name, output := range outputs {
			for form, text := range forms(canary) {
				if at := bytes.Index(output, []byte(text)); at >= 0 {
					t.Errorf("%s (%s) stands in %s: …%q…", what, form, name, output[max(0, at-80):min(len(output), at+len(text)+40)])
				}
			}
		}
	}
	// What is searched is what is written: the run that the search must find.
	run := l.runs("handbook")[0].ID.String()
	for _, name := range []string{"table source_runs", "table river_job", "serve.log", "fencepost runs list"} {
		if !bytes.Contains(outputs[name], []byte(run)) {
			t.Errorf("run %s is not in %s: %d bytes", run, name, len(outputs[name]))
		}
	}
}

// refuseBodies sends what is refused with texts in it that must not travel.
func refuseBodies(t *testing.T, f *world.Field, canaries map[string]string) {
	t.Helper()
	for _, body := range []string{
		canaries["refused body"], `{"repository":"` + canaries["refused body"] + `"}`, `{"` + canaries["refused body"] + `":1}`,
	} {
		for _, event := range []string{"push", canaries["header value"]} {
			req, err := f.Forge.Request(t.Context(), forgesim.Delivery{
				Event: event, GUID: canaries["delivery id"], HookID: f.Hooks["handbook"].ID(), Body: []byte(body),
			}, f.HookURL(0, "handbook"))
			if err != nil {
				t.Fatal(err)
			}
			if status, a := exchange(t, f, req); status/100 == 5 || a.Outcome == "accepted" {
				t.Errorf("answered %d %s", status, a)
			}
			req, err = http.NewRequestWithContext(t.Context(), http.MethodPost, f.HookURL(0, "handbook"), strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
			if status, a := exchange(t, f, req); status != http.StatusUnauthorized {
				t.Errorf("a forged delivery was answered %d %s", status, a)
			}
		}
	}
}

// fetchPage reads a page of the operations listener.
func fetchPage(t *testing.T, f *world.Field, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.OpsURL(0)+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil || len(body) == 0 {
		t.Fatalf("GET %s: %d bytes, %v", path, len(body), err)
	}
	return body
}

// shownBySources runs what shows a person how sources stand.
func shownBySources(t *testing.T, f *world.Field, l ledger, outputs map[string][]byte) {
	t.Helper()
	commands := [][]string{{"sources", "list"}, {"sources", "show", "handbook"}, {"runs", "list"}, {"check"}}
	for _, run := range l.runs("handbook") {
		commands = append(commands, []string{"runs", "show", run.ID.String()})
	}
	for _, args := range commands {
		for _, more := range [][]string{nil, {"--json"}} {
			if args[0] == "check" && more != nil {
				continue
			}
			cmd := exec.CommandContext(t.Context(), fencepostBinary, slices.Concat(args, []string{"--config", f.ConfigFile(0)}, more)...)
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Errorf("%v: %v\n%s", cmd.Args, err, out)
			}
			// The file that the user named may be named again.
			outputs[strings.Join(slices.Concat([]string{"fencepost"}, args, more), " ")] = bytes.ReplaceAll(out, []byte(f.ConfigFile(0)), nil)
		}
	}
}

// dumpTables reads every row of every table.
func dumpTables(t *testing.T, l ledger, outputs map[string][]byte) {
	t.Helper()
	query := "select name from sqlite_master where type = 'table'"
	if l.db.Kind() == store.Postgres {
		query = "select table_name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'"
	}
	err := l.db.Read(t.Context(), "dump", func(ctx context.Context, tx *store.Tx) error {
		var tables []string
		err := tx.Each(ctx, query, nil, func(scan func(...any) error) error {
			tables = append(tables, "")
			return scan(&tables[len(tables)-1])
		})
		for _, table := range tables {
			text, dumpErr := dumpTable(ctx, tx.Raw(), table)
			if dumpErr != nil {
				return fmt.Errorf("%s: %w", table, dumpErr)
			}
			outputs["table "+table] = text
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(outputs["table sources"]) == 0 || len(outputs["table source_deliveries"]) == 0 {
		t.Error("tables are empty")
	}
}

func dumpTable(ctx context.Context, tx *sql.Tx, table string) ([]byte, error) {
	rows, err := tx.QueryContext(ctx, `select * from "`+table+`"`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		for i, v := range values {
			switch v := (*v.(*any)).(type) {
			case []byte:
				fmt.Fprintf(&text, "%s=%s ", columns[i], v)
			default:
				fmt.Fprintf(&text, "%s=%v ", columns[i], v)
			}
		}
		text.WriteByte('\n')
	}
	return text.Bytes(), rows.Err()
}

// collectField reads the log, and every file of the data directory with its
// name: the bytes of SQLite, what is free in them included.
func collectField(t *testing.T, f *world.Field, outputs map[string][]byte) {
	t.Helper()
	log, err := os.ReadFile(f.Controllers[0].Log)
	if err != nil {
		t.Fatal(err)
	}
	outputs["serve.log"] = log
	err = filepath.WalkDir(f.DataDir(0), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(f.DataDir(0), name)
		if err != nil {
			return err
		}
		outputs["name of "+relative] = []byte(relative)
		if d.IsDir() {
			return nil
		}
		outputs[relative], err = os.ReadFile(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An alertListener is an Alertmanager as far as posting to it goes.
type alertListener struct {
	url string

	mu     sync.Mutex
	posted bytes.Buffer
}

func hearAlerts(t *testing.T) *alertListener {
	t.Helper()
	a := &alertListener{}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.url = "http://" + l.Addr().String()
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil || r.URL.Path != "/api/v2/alerts" || !json.Valid(body) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintf(&a.posted, "%v %s\n", r.Header, body)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return a
}

func (a *alertListener) all() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return bytes.Clone(a.posted.Bytes())
}
