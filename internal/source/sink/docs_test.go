package sink

import (
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/store"
)

// TestTheTablesAreAsDocumented holds the statements of docs/formats.md, which
// administrators run, against those of the code.
func TestTheTablesAreAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/formats.md")
	must(t, err)
	table := newTable(RowsOptions{Table: "handbook", Source: testSource()})
	for _, want := range []string{create(table.name, table.rowColumns(store.Postgres)), create(table.fence, table.fenceColumns())} {
		if !strings.Contains(string(text), want+";") {
			t.Errorf("docs/formats.md lacks:\n%s;", want)
		}
	}
}
