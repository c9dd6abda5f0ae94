//go:build !unix

package app

// checkExposure can't tell here who else reaches a directory.
func checkExposure(string) error { return nil }
