package gitea

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
)

// A Config says whom a [Client] talks to, and as whom.
type Config = forge.Config

// A Client speaks to one instance with one token. It is safe for concurrent
// use.
type Client struct{ *forge.Client }

// New makes a client. It sends nothing. Its errors are those of [forge.New].
func New(c Config) (*Client, error) {
	client, err := forge.New(c, forge.Header{Name: "Authorization", Prefix: "token "})
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// An Answer is a response that was read to its end.
type Answer struct {
	// Status is the HTTP status: one that the call allows, or 404.
	Status int
	// ETag makes a later request conditional; "" where there is none.
	ETag string
	// Total is the length of a whole list of which this is a page; -1 where
	// the server does not say.
	Total int
	Body  []byte
}

// Get asks once. The path is below the base URL, escaped; an etag that is not
// empty makes the request conditional. The answer's status is 200, 304 where
// that was asked for, or 404; the errors are those of [forge.Client.Do].
func (c *Client) Get(ctx context.Context, op, path, etag string) (Answer, error) {
	return c.do(ctx, forge.Request{Op: op, Method: http.MethodGet, Path: path, ETag: etag})
}

// Post has the server make something, once. The answer's status is 200 or 201;
// an error that matches [forge.ErrUnanswered] leaves open whether it was made.
func (c *Client) Post(ctx context.Context, op, path string, body any) (Answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return Answer{}, forge.Fail(op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	return c.do(ctx, forge.Request{Op: op, Method: http.MethodPost, Path: path, Body: data})
}

func (c *Client) do(ctx context.Context, q forge.Request) (Answer, error) {
	resp, err := c.Do(ctx, q)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: resp.Status, ETag: resp.Header.Get("Etag"), Total: -1, Body: resp.Body}
	if n, err := strconv.ParseUint(resp.Header.Get("X-Total-Count"), 10, 31); err == nil {
		a.Total = int(n)
	}
	return a, nil
}

// ValidName reports whether s can be an owner or a repository: what
// AlphaDashDot allows.
func ValidName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}
