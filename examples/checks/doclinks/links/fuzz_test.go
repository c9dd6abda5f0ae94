package links_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

// FuzzCheck holds that no page makes the check fail or contradict itself.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		"# A\n\n[x](a.md#a \"t\") ![y](<b c>) [z][a] [b][]\n\n[a]: <c> 'd'\n",
		"---\na: b\n---\n\ufeff[x](y)\r\n\r\nA\r\n===\r\n",
		"<h1 id=a>x</h1><a href='b'>\n<!-- <a> --><img srcset=\"a 1x, b 2x\"><script></script>\n",
		"> - [x](y)\n>   1. <div>\n>      <a href=\"z\">\n\n| [x](y) | `|` |\n| - | - |\n| \\| | [z][z] |\n",
		"[^1]: [x](y)\n\na[^1] [b][^1]\n\n\t[c](d)\n-\t<div>\n\t<a href=e>\n",
		"```\n[x](y)\n~~~\n`[x](y)` \\[x](y) [x\\](y) &amp;[x](&#x26;&bogus;%zz%41)\n",
		"[x]([y](z)) [[x]](y) [x](y(z)) [x](<y>z) [x](y 'z)\n[x]:\n[x]: \n[x]: y z\n",
		"<a href", "<a href=", "<a href='", "<!--", "<!-->", "<?", "</", "<a b=c d>", "<a//href=b>", "<a =>", "[", "](", "![", "[]()", "[][]", "\x00", "\xff\xfe",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		tree := files(map[string]string{"a.md": string(page), "b.md": "[x](a.md#a)"})
		r, err := links.Check(t.Context(), tree, links.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Files != 2 || r.Links < 1 || r.Broken != len(r.Findings) || r.BrokenFiles > 2 {
			t.Fatalf("counts contradict the findings: %+v", r)
		}
		last := 1 + bytes.Count(page, []byte("\n"))
		line := 0
		for _, found := range r.Findings {
			if found.File == "b.md" {
				continue
			}
			if found.Line < 1 || found.Line > last || found.Line < line {
				t.Fatalf("line %d after %d, of %d", found.Line, line, last)
			}
			line = found.Line
			if found.Why == links.WhyUndefined {
				continue
			}
			// Sets of images are taken apart after they were decoded, and
			// markup may be cut out of a quote or a list; all else is there
			// as it was written.
			if !strings.Contains(strings.ToLower(string(page)), "srcset") && !strings.Contains(found.Link, "\n") && !bytes.Contains(page, []byte(found.Link)) {
				t.Fatalf("%q is not in the page", found.Link)
			}
		}
		again, err := links.Check(t.Context(), tree, links.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines(r.Findings), lines(again.Findings)); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	})
}
