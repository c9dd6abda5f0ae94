//go:build !unix

package sink

// sameDevice is not asked here: the trial's renames show it.
func sameDevice(_, _ string) (bool, error) { return true, nil }
