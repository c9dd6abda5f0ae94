package forgesim

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Sizes of pages.
const (
	defaultPerPage = 30
	maxPerPage     = 100
)

// perPage reads per_page; a number above the most means the most.
func (c *call) perPage() int {
	n, err := strconv.Atoi(c.query.Get("per_page"))
	if err != nil || n < 1 {
		return defaultPerPage
	}
	return min(n, maxPerPage)
}

// pageOf cuts the page that the call asks for out of all, and says in the
// answer's header where the others are.
func pageOf[T any](c *call, all []T) ([]T, http.Header) {
	size := c.perPage()
	number, err := strconv.Atoi(c.query.Get("page"))
	if err != nil || number < 1 {
		number = 1
	}
	last := max((len(all)+size-1)/size, 1)
	from := min((number-1)*size, len(all))
	var links []string
	link := func(rel string, n int) {
		links = append(links, c.link(rel, "page", strconv.Itoa(n)))
	}
	if number > 1 {
		link("prev", min(number-1, last))
	}
	if number < last {
		link("next", number+1)
		link("last", last)
	}
	if number > 1 {
		link("first", 1)
	}
	header := http.Header{}
	if len(links) > 0 {
		header.Set("Link", strings.Join(links, ", "))
	}
	return all[from:min(from+size, len(all))], header
}

// link writes one entry of a Link header: this call's URL with another value
// of one parameter.
func (c *call) link(rel, parameter, value string) string {
	query := c.request.URL.Query()
	query.Set(parameter, value)
	forge := c.route.forge
	return fmt.Sprintf(`<%s?%s>; rel="%s"`, forge.apiURL("%s", c.request.URL.EscapedPath()), query.Encode(), rel)
}

// withHeader adds header to an answer.
func (a answer) withHeader(header http.Header) answer {
	for name, values := range header {
		a.header[name] = values
	}
	return a
}
