package source_test

import "testing"

// long leaves a test out of the round with the race detector (go test -short):
// make test runs all of them without it.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: run without -short")
	}
}
