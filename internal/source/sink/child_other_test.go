//go:build !unix

package sink

func runChild() (code int, child bool) { return 0, false }
