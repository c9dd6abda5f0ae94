// Package forge is what the clients of Gitea and GitLab have in common: one
// instance's API with one token, asked by one bounded request at a time.
//
// The token travels in the one header that the client of the instance names, to
// the configured API and nowhere else: redirects are not followed. An instance
// that asks to be left alone is, by whoever shares the client. Every answer is
// bounded and strict JSON; every error carries a public reason and no text of
// the server's.
package forge
