//go:build !unix

package runner

// holdForks has nothing to hold: descriptors are not inherited here.
func holdForks() (release func()) { return func() {} }
