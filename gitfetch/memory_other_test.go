//go:build !linux

package gitfetch_test

import "errors"

// runFetch measures what only Linux tells.
func runFetch(string) error { return errors.ErrUnsupported }
