// Package githubspec holds HTTP exchanges against GitHub's published API
// description, for tests.
//
// A [Description] knows each operation's parameters, bodies and answers, and
// each webhook's headers and payload. It is stricter than the description says:
// a query parameter, a field of a request or a field of an answer that the
// description does not have is an error.
//
//	spec := githubspec.Load(t)
//	forge, err := forgesim.New(ctx, forgesim.Config{…, Observer: spec.Observer(t)})
//
// The description itself is not in this repository: `make deps` installs the
// npm packages that testdata/npm/package.json pins.
package githubspec
