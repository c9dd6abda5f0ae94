//go:build !unix

package sqlledger

// asProcess: there are no contests where processes can't be stopped.
func asProcess() (is bool, code int) { return false, 0 }
