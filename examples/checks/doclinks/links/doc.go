// Package links finds the relative links of a tree's Markdown files that lead
// nowhere.
//
// [Check] reads every *.md and *.markdown file of a tree, and follows each
// link, image and reference definition, and each link and image in HTML, that
// names something of the same tree. It never fetches: whatever has a scheme
// (https:, mailto:) or a host (//example.org) is left alone, as are autolinks.
//
// # What a link may lead to
//
// Links mean what they mean on a forge's page of the file: they are resolved
// from the file's directory, those with a leading slash from the root of the
// tree, in exact case, after percent-decoding and without their query. A link
// out of the tree is broken.
//
//   - A file or directory; for an image, a file.
//   - An anchor of a Markdown file, or of the README of a directory: a heading
//     (see [Slugs]), or an id or name in HTML. #top is in every page.
//   - A line of any other file: #L10, #L10-L20; of a Markdown file with
//     ?plain=1.
//   - Anything in a file of a kind that has anchors of its own which this
//     package can't read, such as HTML or reStructuredText.
//
// A reference such as [text][label] needs a definition, unless it looks like
// what it isn't: code, as in matrix[i][j], or keys, as in [tab][tab]. A
// definition has to lead somewhere whether it is used or not, and is reported
// once, in its own line.
//
// # What is left out
//
// Code, comments and front matter hold no links. Files below directories
// called node_modules, vendor or testdata are somebody else's, or wrong on
// purpose: links to them are followed, links in them are not. Nothing below
// .git is looked at. A symbolic link can be linked to, but isn't read as a
// file of the tree.
package links
