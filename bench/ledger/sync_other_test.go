//go:build !linux

package ledger

import "os"

func dataSync(f *os.File) error { return f.Sync() }
