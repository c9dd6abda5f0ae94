package gitlab

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/internal/forge"
)

// A Config says whom a [Client] talks to, and as whom.
type Config = forge.Config

// A Client speaks to one instance with one token. It is safe for concurrent
// use.
type Client struct{ *forge.Client }

// New makes a client. It sends nothing. Its errors are those of [forge.New].
func New(c Config) (*Client, error) {
	client, err := forge.New(c, forge.Header{Name: "PRIVATE-TOKEN"})
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// An Answer is a response that was read to its end.
type Answer struct {
	// Status is the HTTP status: 200, 304 or 404.
	Status int
	// ETag makes a later request conditional; "" where there is none.
	ETag string
	Body []byte
	// next is the path of the next page, as the Link header has it.
	next string
}

// Found reports whether there was what was asked for.
func (a Answer) Found() bool { return a.Status != http.StatusNotFound }

// Get asks once. The path is below the base URL, escaped; an etag that is not
// empty makes the request conditional. The answer's status is 200, 304 where
// that was asked for, or 404, which is also what a token gets that does not
// reach the thing; the errors are those of [forge.Client.Do].
func (c *Client) Get(ctx context.Context, op, path, etag string) (Answer, error) {
	resp, err := c.Do(ctx, forge.Request{Op: op, Method: http.MethodGet, Path: path, ETag: etag})
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.Status, ETag: resp.Header.Get("Etag"), Body: resp.Body}
	a.next, err = c.nextPage(op, resp.Header)
	return a, err
}
