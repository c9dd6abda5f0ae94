// Package jobclient is the policy job's side of a GitLab gate: it sends the
// job's token with a hint to the controller, and waits there for the result.
//
//	POST {controller}/jobs/{route}              token, {"merge_request": iid}
//	GET  {controller}/jobs/{route}/{delivery}   the poll secret that POST gave
//
// The job's exit status is the gate. So a pass is the one thing that is
// believed: the answer that says so, to the delivery that was asked for, with
// the conclusion "success". Everything else is an error, and so is every doubt.
//
// What may pass by itself (no connection, 408, 429 and 5xx) is tried again with
// growing pauses until the timeout; a request whose answer was lost is repeated
// with the same token, which the controller knows again. Redirects are never
// followed. Neither the token nor the poll secret is in any text that comes out
// of this package.
package jobclient
