package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/fencepost/fencepost/ledger/sqlledger"
)

// bareStore does what a ledger's operations need of PostgreSQL and nothing
// else: on the ledger's own tables and indexes and through the same driver, the
// statements that store, without a table that decides.
type bareStore struct{ db *sql.DB }

const (
	bareClaim = `with p as (update ledger_parts set last_fence = last_fence + 1, row_count = row_count + 1 where part = $1 and row_count < row_limit returning last_fence)
		insert into ledger_rows (key, part, state, evaluation, fence, replay_end, since, token, body) select $2, $1, 1, $3, last_fence, 0, 0, $4, $5 from p
		on conflict (key) do nothing returning fence`
	bareStage    = "update ledger_rows set state = 2, since = 0, token = $3, body = $4 where key = $1 and state = 1 and fence = $2 returning fence"
	bareComplete = "update ledger_rows set state = 3, since = 0, token = $3, body = $4 where key = $1 and state = 2 and fence = $2 returning fence"
)

func newBare(url string, connections int) (*bareStore, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &bareStore{db}, nil
}

func (s *bareStore) Cycle(ctx context.Context, key [32]byte, value []byte) error {
	name, token := fmt.Sprintf("%x", key), fmt.Sprintf("%x", key[:16])
	body := make([]byte, 160)
	var fence int64
	part := int64(key[31]) % sqlledger.DefaultPostgresParts
	if err := s.db.QueryRowContext(ctx, bareClaim, part, name, "evl_"+token, token, body[:152]).Scan(&fence); err != nil {
		return err
	}
	staged := append(make([]byte, 188), value...)
	if err := s.db.QueryRowContext(ctx, bareStage, name, fence, token, staged).Scan(&fence); err != nil {
		return err
	}
	return s.db.QueryRowContext(ctx, bareComplete, name, fence, token, body[:140]).Scan(&fence)
}

func (s *bareStore) Clean(context.Context) (int64, error) { return 0, nil }

func (s *bareStore) Close() error { return s.db.Close() }

// BenchmarkPostgresPair has the SQL ledger and the bare statements do the same
// in turns, on one server, each on tables of its own.
func BenchmarkPostgresPair(b *testing.B) {
	each := time.Duration(setting("BENCH_MS", 2000)) * time.Millisecond
	for _, workers := range []int{1, 8, 64} {
		full, err := newSQLLedger(b, sqlledger.Config{URL: socket(b), Connections: workers}, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer full.Close()
		// The other one's tables are a ledger's, too.
		url := socket(b)
		made, err := newSQLLedger(b, sqlledger.Config{URL: url, Connections: 1}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := made.Close(); err != nil {
			b.Fatal(err)
		}
		bare, err := newBare(url, workers)
		if err != nil {
			b.Fatal(err)
		}
		defer bare.Close()
		var rates, ratios, p50s []float64
		for round := range setting("BENCH_ROUNDS", 3) {
			prefix := fmt.Sprint("w", workers, "r", round, ".")
			// Which one goes first alternates.
			var with, without result
			if round%2 == 0 {
				with = measure(b, full, prefix, workers, each)
			}
			without = measure(b, bare, prefix, workers, each)
			if round%2 == 1 {
				with = measure(b, full, prefix, workers, each)
			}
			rates, ratios, p50s = append(rates, with.rate), append(ratios, without.rate/with.rate), append(p50s, with.p50/without.p50)
		}
		fmt.Printf("%2d workers and connections: SQL ledger %6.0f cycles/s, takes %.2f times the bare statements' time (p50 %.2f); each round %.2f\n",
			workers, median(rates), median(ratios), median(p50s), ratios)
	}
}
