package jobs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivermigrate"
)

// ErrNewerSchema: River's tables are of a newer version than this binary
// knows.
var ErrNewerSchema = errors.New("the job tables are of a newer version")

// migrateTries bounds how often a migration is tried that another process may
// have made at the same time.
const migrateTries = 10

// Migrate makes or updates River's tables; it changes nothing if they are
// right. It runs at start, under the store's lock for migrations, and is safe
// without it: each version is one transaction, and whoever loses a race looks
// again. Its error may match [ErrNewerSchema].
func Migrate(ctx context.Context, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	driver := driverOf(c, nil)
	migrator, err := rivermigrate.New[*sql.Tx](driver, &rivermigrate.Config{Logger: quiet(c.Log)})
	if err != nil {
		return fmt.Errorf("migrate job tables: %w", err)
	}
	for try := 1; ; try++ {
		if err = migrateOnce(ctx, driver, migrator); err == nil || errors.Is(err, ErrNewerSchema) || try == migrateTries {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("migrate job tables: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err != nil {
		return fmt.Errorf("migrate job tables: %w", err)
	}
	return nil
}

func migrateOnce(ctx context.Context, driver riverdriver.Driver[*sql.Tx], m *rivermigrate.Migrator[*sql.Tx]) error {
	newest := 0
	for _, v := range m.AllVersions() {
		newest = max(newest, v.Version)
	}
	exec := driver.GetExecutor()
	exists, err := exec.TableExists(ctx, &riverdriver.TableExistsParams{Table: "river_migration"})
	if err != nil {
		return err
	}
	if exists {
		var version int
		if err := exec.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM river_migration").Scan(&version); err != nil {
			return err
		}
		if version > newest {
			return fmt.Errorf("%w: %d, this binary knows %d", ErrNewerSchema, version, newest)
		}
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
