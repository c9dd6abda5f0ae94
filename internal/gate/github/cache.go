package github

import (
	"container/list"
	"net/http"
	"sync"
)

// A cache keeps the answers to conditional reads: a read that is answered
// "not modified" costs none of the hourly requests, and every refresh asks
// most of what the one before asked. It never answers by itself: GitHub says
// each time whether what it holds is still so.
type cache struct {
	maxEntries int
	maxBytes   int64

	mu sync.Mutex
	// Guarded by mu:
	bytes   int64
	entries map[string]*list.Element
	recent  *list.List // of *cached, the most recently used first
}

// A cached answer. Immutable.
type cached struct {
	url, etag string
	header    http.Header
	body      []byte
}

func newCache(entries int, bytes int64) *cache {
	return &cache{maxEntries: entries, maxBytes: bytes, entries: map[string]*list.Element{}, recent: list.New()}
}

// get returns what is held for a URL, or nil.
func (c *cache) get(url string) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[url]
	if !ok {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cached)
}

// put keeps an answer, in place of the least recently used ones. One that is
// larger than an eighth of the whole is not kept.
func (c *cache) put(a *cached) {
	if a.etag == "" || int64(len(a.body)) > c.maxBytes/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[a.url]; ok {
		c.drop(e)
	}
	c.entries[a.url] = c.recent.PushFront(a)
	c.bytes += int64(len(a.body))
	for len(c.entries) > c.maxEntries || c.bytes > c.maxBytes {
		c.drop(c.recent.Back())
	}
}

// drop is called with mu held.
func (c *cache) drop(e *list.Element) {
	a := c.recent.Remove(e).(*cached)
	delete(c.entries, a.url)
	c.bytes -= int64(len(a.body))
}
