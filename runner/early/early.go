// Package early starts the runner's sandbox processes before the rest of the
// executable is initialised.
//
// A sandbox process is the executable itself under another name. Go initialises
// every package of it before main, and so before [runner.Init] can turn the
// process into what it is to be: in a large program that costs more than
// building the sandbox. Importing this package for its side effect,
//
//	import _ "github.com/fencepost/fencepost/runner/early"
//
// does the turning as soon as the little that it needs is initialised, and
// nothing in any other process. It is optional: [runner.Init] has to be called
// all the same.
//
// [runner.Init]: https://pkg.go.dev/github.com/fencepost/fencepost/runner#Init
package early
