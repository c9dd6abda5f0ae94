package gitfetch_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// built are two scenes with a commit that is made by hand: what is needed comes
// first, so that nothing is written before the pack is whole; and as Git's
// server sends it, so that what is good is.
func built(build func(f *forge) (commit fencepost.ObjectID), change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		var f forge
		commit := build(&f)
		return append(sending(commit, f.b.Bytes(), change...)(t), sending(commit, f.inGitOrder(commit), change...)(t)...)
	}
}

// rooted is a scene with a commit of that root.
func rooted(root func(f *forge) fencepost.ObjectID, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return built(func(f *forge) fencepost.ObjectID { return f.commit(root(f)) }, change...)
}

func link(name string, id fencepost.ObjectID) packtest.Entry {
	return packtest.Entry{Mode: "120000", Name: name, ID: id}
}

func gitlink(name string) packtest.Entry {
	return packtest.Entry{Mode: "160000", Name: name, ID: absentID()}
}

// absentID names an object that nothing holds.
func absentID() fencepost.ObjectID {
	return fencepost.ObjectID(bytes.Repeat([]byte{0xab}, 20))
}

func inside(r *gitfetch.Request) { r.Policy.Symlinks = gitfetch.SymlinksInside }
func asData(r *gitfetch.Request) { r.Policy.Symlinks = gitfetch.SymlinksAsData }
func skip(r *gitfetch.Request)   { r.Policy.Gitlinks = gitfetch.GitlinksSkip }

func objectAttacks() []attack {
	const closure, form = "closure", "gitformat-pack"
	tag := func(f *forge, kind string, id fencepost.ObjectID) fencepost.ObjectID {
		return f.add(object.Tag, fmt.Appendf(nil, "object %s\ntype %s\ntag v1\n\n", id, kind))
	}
	commit := func(f *forge, text string) fencepost.ObjectID { return f.add(object.Commit, []byte(text)) }
	empty := func(f *forge) string { return f.tree().String() }
	const who = "author A <a> 0 +0000\ncommitter A <a> 0 +0000\n\nm"
	missing, extra, odd := fails(gitfetch.ErrMissingObject), fails(gitfetch.ErrExtraObject), fails(gitfetch.ErrObject)
	return []attack{
		{"no commit", closure, missing, built(func(f *forge) fencepost.ObjectID { f.tree(); return absentID() })},
		{"no root", closure, missing, rooted(func(*forge) fencepost.ObjectID { return absentID() })},
		{"a directory missing", closure, missing, rooted(func(f *forge) fencepost.ObjectID { return f.tree(dir("d", absentID())) })},
		{"a file missing", closure, missing, rooted(func(f *forge) fencepost.ObjectID { return f.tree(file("f", absentID())) })},
		{"a link's text missing", closure, missing, rooted(func(f *forge) fencepost.ObjectID { return f.tree(link("l", absentID())) }, inside)},
		{"a file too many", closure, extra, rooted(func(f *forge) fencepost.ObjectID { f.blob("extra"); return f.tree() })},
		{"a tree too many", closure, extra, rooted(func(f *forge) fencepost.ObjectID { f.tree(file("a", f.blob("a"))); return f.tree() })},
		{"a commit too many", closure, extra, built(func(f *forge) fencepost.ObjectID {
			t := f.tree()
			parent := f.commit(t)
			return f.add(object.Commit, packtest.Commit(t, parent))
		})},
		{"a tag too many", closure, extra, built(func(f *forge) fencepost.ObjectID { c := f.commit(f.tree()); tag(f, "commit", c); return c })},
		{"a gitlink's commit, sent along", closure, extra, rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(packtest.Entry{Mode: "160000", Name: "s", ID: commit(f, "tree "+empty(f)+"\n"+who)})
		}, skip)},
		{"a tag for the commit", "closure", fails(gitfetch.ErrNotCommit), built(func(f *forge) fencepost.ObjectID { return tag(f, "commit", f.commit(f.tree())) })},
		{"a tag on itself", "closure", fails(gitfetch.ErrNotCommit), built(func(f *forge) fencepost.ObjectID { return tag(f, "tag", absentID()) })},
		{"a tree for the commit", "closure", fails(gitfetch.ErrNotCommit), built(func(f *forge) fencepost.ObjectID { return f.tree() })},
		{"a file for the commit", "closure", fails(gitfetch.ErrNotCommit), built(func(f *forge) fencepost.ObjectID { return f.blob(string(packtest.Commit(absentID()))) })},
		{"a file for the root", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID { return f.blob("b") })},
		{"a file for a directory", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID { return f.tree(dir("d", f.blob("b"))) })},
		{"a directory for a file", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID { return f.tree(file("f", f.tree())) })},
		{"a directory for a link's text", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID { return f.tree(link("l", f.tree())) }, inside)},
		{"a commit for a file", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID { return f.tree(file("f", commit(f, "tree "+empty(f)+"\n"+who))) })},
		{"a delta on a tree for a file", "t/t1450", odd, rooted(func(f *forge) fencepost.ObjectID {
			t := f.tree(file("x", f.blob("x")))
			f.b.Ref(t, packtest.Delta(29, 4, packtest.Insert("text")))
			return f.tree(dir("d", t), file("f", packtest.ID(object.Tree, []byte("text"))))
		})},
		{"an empty commit", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID { return commit(f, "") })},
		{"a commit without a tree", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID { return commit(f, who) })},
		{"a commit with a tree of capitals", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+strings.ToUpper(empty(f))+"\n"+who)
		})},
		{"a commit with a short tree", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID { return commit(f, "tree "+empty(f)[:39]+"\n"+who) })},
		{"a commit with a tree of 64 digits", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+empty(f)+strings.Repeat("0", 24)+"\n"+who)
		})},
		{"a commit with two trees", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+empty(f)+"\ntree "+f.tree(file("x", f.blob("x"))).String()+"\n"+who)
		})},
		{"a commit with a tree further down", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+empty(f)+"\nauthor A <a> 0 +0000\ntree "+empty(f)+"\ncommitter A <a> 0 +0000\n\nm")
		})},
		{"a commit with a parent that is no id", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID { return commit(f, "tree "+empty(f)+"\nparent HEAD\n"+who) })},
		{"a commit with a NUL in its header", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+empty(f)+"\nauthor A\x00 <a> 0 +0000\n\nm")
		})},
		{"a commit whose tree line ends in a carriage return", "t/t1450", odd, built(func(f *forge) fencepost.ObjectID { return commit(f, "tree "+empty(f)+"\r\n"+who) })},
		{"a commit of two MiB", form, over(gitfetch.BudgetCommit), built(func(f *forge) fencepost.ObjectID {
			return commit(f, "tree "+empty(f)+"\n"+who+strings.Repeat("m", 2<<20))
		})},
	}
}

func treeAttacks() []attack {
	odd := fails(gitfetch.ErrObject)
	mode := func(m string) func(*testing.T) []scene {
		return rooted(func(f *forge) fencepost.ObjectID { return f.tree(packtest.Entry{Mode: m, Name: "a", ID: f.blob("x")}) }, inside)
	}
	bytesOf := func(change func(tree []byte) []byte) func(*testing.T) []scene {
		return rooted(func(f *forge) fencepost.ObjectID {
			b := f.blob("x")
			return f.add(object.Tree, change(packtest.Tree(file("a", b), file("b", b))))
		})
	}
	entries := func(of func(f *forge, b fencepost.ObjectID) []packtest.Entry) func(*testing.T) []scene {
		return rooted(func(f *forge) fencepost.ObjectID { return f.tree(of(f, f.blob("x"))...) }, inside)
	}
	type e = []packtest.Entry
	return []attack{
		{"a tree out of order", "CVE-2026-44471", odd, entries(func(_ *forge, b fencepost.ObjectID) e { return e{file("b", b), file("a", b)} })},
		{"a directory sorted as a file", "treeNotSorted", odd, entries(func(f *forge, b fencepost.ObjectID) e {
			return e{dir("a", f.tree(file("y", b))), file("a.b", b)}
		})},
		{"a name twice", "duplicateEntries", odd, entries(func(_ *forge, b fencepost.ObjectID) e { return e{file("a", b), file("a", b)} })},
		{"a link and a directory of one name", "CVE-2026-44471 CVE-2026-71556", breaks("duplicate"), entries(func(f *forge, b fencepost.ObjectID) e {
			return e{link("a", f.blob("/tmp")), dir("a", f.tree(file("y", b)))}
		})},
		{"a file and a directory of one name, others between", "duplicateEntries", breaks("duplicate"), entries(func(f *forge, b fencepost.ObjectID) e {
			return e{file("foo", b), file("foo.bar", b), dir("foo", f.tree(file("y", b)))}
		})},
		{"a link and a file of one name", "t/t0055", odd, entries(func(f *forge, b fencepost.ObjectID) e { return e{link("a", f.blob("/etc/passwd")), file("a", b)} })},
		{"a gitlink and a directory of one name", "CVE-2024-32002", breaks("duplicate"), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(gitlink("a"), dir("a", f.tree(file("y", f.blob("y")))))
		}, skip)},
		{"mode 100664", "badFilemode", odd, mode("100664")},
		{"mode 100600", "badFilemode", odd, mode("100600")},
		{"mode 104755, set-user-id", "badFilemode", odd, mode("104755")},
		{"mode 020644, a device", "badFilemode", odd, mode("020644")},
		{"mode 0", "badFilemode", odd, mode("0")},
		{"no mode", "badFilemode", odd, mode("")},
		{"a mode with a zero in front", "zeroPaddedFilemode", odd, mode("0100644")},
		{"mode 040000", "zeroPaddedFilemode", odd, mode("040000")},
		{"a mode that overflows to a file's", "badFilemode", odd, mode("40000100644")},
		{"a mode with a sign", "badFilemode", odd, mode("+100644")},
		{"a mode in other digits", "badFilemode", odd, mode("100648")},
		{"the null id", "nullSha1", odd, rooted(func(f *forge) fencepost.ObjectID { return f.tree(file("a", fencepost.ObjectID{})) })},
		{"an empty name", "emptyName", odd, entries(func(_ *forge, b fencepost.ObjectID) e { return e{file("", b)} })},
		{"a tree cut in an id", "badTree", odd, bytesOf(func(p []byte) []byte { return p[:len(p)-1] })},
		{"a tree cut in a name", "badTree", odd, bytesOf(func(p []byte) []byte { return p[:len(p)-21] })},
		{"a tree cut in a mode", "badTree", odd, bytesOf(func(p []byte) []byte { return append(p, "1006"...) })},
		{"a tree with a byte after its end", "badTree", odd, bytesOf(func(p []byte) []byte { return append(p, 0) })},
		{"a tree that is text", "badTree", odd, bytesOf(func([]byte) []byte { return []byte(strings.Repeat(serverWords+"\n", 9)) })},
	}
}

// nameCVEs says which names are known from where, beside their rule.
func nameCVEs() map[string]string {
	return map[string]string{
		".git": "CVE-2014-9390", ".GIT": "CVE-2014-9390", ".Git": "CVE-2014-9390", ".g\u200cit": "CVE-2014-9390", "\ufeff.git": "CVE-2014-9390",
		"git~1": "CVE-2014-9390", "GIT~1": "CVE-2014-9390", ".git::$INDEX_ALLOCATION": "CVE-2019-1352 CVE-2019-1353",
		"a\\.git": "CVE-2019-1354", ".git\\config": "CVE-2019-1354", "..\\.GiT": "CVE-2019-1354", "..\\up": "CVE-2019-1354", "a\\b": "CVE-2019-1354",
		"C:": "CVE-2019-1351", "é:x": "CVE-2019-1351", "CON": "CVE-2024-35197", "nul": "CVE-2024-35197", "aux.c": "CVE-2024-35197", "COM¹": "CVE-2024-35197",
		"conin$": "CVE-2024-35197", "sub\r": "CVE-2025-48384", "a/b": "fullPathname", "/etc": "fullPathname", "../up": "fullPathname", ".": "hasDot", "..": "hasDotdot",
	}
}

// nameAttacks has each example of each rule about names, alone in a tree.
func nameAttacks() []attack {
	var rows []attack
	for _, rule := range gitfetch.NameRules() {
		for _, name := range rule.Examples {
			if name == "" {
				continue // has a row among the trees
			}
			from := "rule " + rule.Rule
			if cve := nameCVEs()[name]; cve != "" {
				from = cve
			}
			rows = append(rows, attack{fmt.Sprintf("the name %q", name), from, breaks(rule.Rule), rooted(func(f *forge) fencepost.ObjectID {
				switch rule.Kinds {
				case "links":
					return f.tree(link(name, f.blob("x")))
				case "all but files":
					return f.tree(dir(name, f.tree(file("x", f.blob("x")))))
				}
				return f.tree(file(name, f.blob("x")))
			}, inside)})
		}
	}
	collide := func(a, b string, from string) attack {
		return attack{fmt.Sprintf("the names %q and %q", a, b), from, breaks("collision"), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(link(a, f.blob("other")), dir(b, f.tree(file("x", f.blob("x")))))
		}, inside)}
	}
	return append(rows,
		collide("A", "a", "CVE-2021-21300 CVE-2024-32002"),
		collide("STRASSE", "straße", "CVE-2021-21300"),
		collide("cafe\u0301", "caf\u00e9", "CVE-2021-21300"),
		collide("K", "\u212a", "CVE-2021-21300"),
		collide("a", "a\u200d", "CVE-2014-9390"),
		collide("\u01c5", "\u01c6", "CVE-2021-21300"),
	)
}

func linkAttacks() []attack {
	one := func(text string) func(*testing.T) []scene {
		return rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(file("README", f.blob("r")), dir("d", f.tree(link("l", f.blob(text)))))
		}, inside)
	}
	tree := func(of func(f *forge) fencepost.ObjectID) func(*testing.T) []scene { return rooted(of, inside) }
	const t0055 = "t/t0055"
	return []attack{
		{"a link, where none is allowed", "symlinks: refuse", breaks("symlink"), rooted(func(f *forge) fencepost.ObjectID { return f.tree(link("l", f.blob("README"))) })},
		{"an absolute link", t0055, breaks("link-target"), one("/etc/passwd")},
		{"a link to the root of all", t0055, breaks("link-target"), one("/")},
		{"a link out", t0055, breaks("link-escape"), one("../../x")},
		{"a link out and in again", t0055, breaks("link-escape"), one("../../base/kept")},
		{"a link far out", t0055, breaks("link-escape"), one(strings.Repeat("../", 500) + "etc/passwd")},
		{"a link that climbs behind a directory", t0055, breaks("link-escape"), one("x/../../../y")},
		{"a link that climbs from what is not there", t0055, breaks("link-escape"), one("../D/../README")},
		{"a link that climbs from a file", t0055, breaks("link-escape"), one("../README/../README")},
		{"an empty link", "symlinks", breaks("link-target"), one("")},
		{"a link of five thousand bytes", "PATH_MAX", breaks("link-target"), one(strings.Repeat("x/", 2500))},
		{"a link with a NUL", "symlinks", breaks("link-target"), one("README\x00/../../..")},
		{"a link with a line end", "CVE-2025-48384", breaks("link-target"), one("README\r")},
		{"a link with a backslash", "CVE-2019-1354", breaks("link-target"), one(`..\..\x`)},
		{"a link with a drive", "CVE-2019-1351", breaks("link-target"), one("C:x")},
		{"a link to another spelling of ..", "CVE-2014-9390", breaks("link-target"), one(".\u200c./.\u200c./x")},
		{"a link to .. with a blank", "CVE-2019-1354", breaks("link-target"), one(".. /.. /x")},
		{"a link to a device", "CVE-2024-35197", breaks("link-target"), one("../aux.txt")},
		{"a link into .git", "CVE-2024-32002", breaks("link-target"), one("../.git/hooks")},
		{"a link into .git by another spelling", "CVE-2014-9390", breaks("link-target"), one("../GIT~1/hooks")},
		{"a link to itself", "ELOOP", breaks("link-loop"), one("l")},
		{"two links to each other", "ELOOP", breaks("link-loop"), tree(func(f *forge) fencepost.ObjectID { return f.tree(link("k", f.blob("l")), link("l", f.blob("k"))) })},
		{"nine links in a row", "ELOOP", breaks("link-loop"), tree(func(f *forge) fencepost.ObjectID {
			entries := []packtest.Entry{file("l0", f.blob("x"))}
			for i := range 9 {
				entries = append(entries, link(fmt.Sprintf("l%d", i+1), f.blob(fmt.Sprintf("l%d", i))))
			}
			return f.tree(append(entries, link("m", f.blob("l9")))...)
		})},
		{"a link out through a link", "CVE-2021-21300", breaks("link-escape"), tree(func(f *forge) fencepost.ObjectID {
			// x/k leads to a, so that ../x/k/../.. is above the root.
			return f.tree(dir("a", f.tree(link("l", f.blob("../x/k/../../y")))), dir("x", f.tree(link("k", f.blob("../a")))))
		})},
		{"a link out through two links", "CVE-2021-21300", breaks("link-escape"), tree(func(f *forge) fencepost.ObjectID {
			return f.tree(
				link("b", f.blob("d/e/up")), dir("d", f.tree(dir("e", f.tree(link("up", f.blob("../..")))))),
				dir("z", f.tree(dir("z", f.tree(link("l", f.blob("../../b/../x")))))),
			)
		})},
		{"a link on a link out, by letter case alone", "CVE-2024-32002", breaks("link-escape"), tree(func(f *forge) fencepost.ObjectID {
			return f.tree(dir("d", f.tree(dir("e", f.tree(link("l", f.blob("../../UP/../x")))))), link("up", f.blob("d")))
		})},
		{"a link that climbs from a gitlink", "CVE-2024-32002", breaks("link-escape"), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(dir("d", f.tree(link("l", f.blob("../s/../x")))), gitlink("s"))
		}, func(r *gitfetch.Request) { inside(r); skip(r) })},
		{"a link named .gitmodules", "CVE-2018-11235", breaks("gitmodules"), rooted(func(f *forge) fencepost.ObjectID { return f.tree(link(".gitmodules", f.blob("x"))) }, asData)},
		{"a link named .gitattributes", "gitattributesSymlink", breaks("gitfile-link"), rooted(func(f *forge) fencepost.ObjectID { return f.tree(link(".gitattributes", f.blob("x"))) }, asData)},
		{"ten thousand links and one", "links budget", over(gitfetch.BudgetLinks), roomy(32<<20, rooted(func(f *forge) fencepost.ObjectID {
			var entries []packtest.Entry
			b := f.blob("x")
			for i := range 10_001 {
				entries = append(entries, link(fmt.Sprintf("l%05d", i), b))
			}
			return f.tree(entries...)
		}, asData))},
		{"a link of a thousand names", "time", breaks("link-target"), one(strings.Repeat("é/", 999) + "é")},
		{"two thousand links of a thousand names each", "memory", over(gitfetch.BudgetLinkBytes), roomy(32<<20, tree(longLinks(2000, 1364)))},
		{"links that take long to judge", "time", over(gitfetch.BudgetTotal), roomy(256<<20, rooted(longLinks(10_000, 255), func(r *gitfetch.Request) {
			inside(r)
			r.Budgets.LinkBytes, r.Budgets.Total = 64<<20, 300*time.Millisecond
		}))},
	}
}

// longLinks is a tree of so many links, each with a text of its own of that many
// names, which takes a few bytes to send.
func longLinks(links, names int) func(f *forge) fencepost.ObjectID {
	return func(f *forge) fencepost.ObjectID {
		const numbers = 5
		text := strings.Repeat("é/", names-2) + "é"
		size := int64(len(text))
		base := f.blob(text)
		entries := []packtest.Entry{file("f", base)}
		for i := range links {
			own := fmt.Sprintf("%0*d", numbers, i)
			f.b.Ref(base, packtest.Delta(size, size+numbers+1, packtest.Insert(own+"/"), packtest.Copy(0, size)))
			id := packtest.ID(object.Blob, []byte(own+"/"+text))
			f.note(id, object.Blob, nil)
			entries = append(entries, link("l"+own, id))
		}
		return f.tree(entries...)
	}
}
