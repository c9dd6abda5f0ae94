package gitfetch_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// stacked makes levels of trees, each with the same lower one under that many
// names.
func stacked(f *forge, levels, names int, lowest fencepost.ObjectID) fencepost.ObjectID {
	id := lowest
	for range levels {
		var entries []packtest.Entry
		for n := range names {
			entries = append(entries, dir(fmt.Sprintf("d%03d", n), id))
		}
		id = f.tree(entries...)
	}
	return id
}

// entriesOf makes a tree of that many entries.
func entriesOf(f *forge, n int, entry func(name string) packtest.Entry) fencepost.ObjectID {
	entries := make([]packtest.Entry, n)
	for i := range entries {
		entries[i] = entry(numbered(i))
	}
	return f.large(packtest.Tree(entries...))
}

// numbered is a name that sorts as its number.
func numbered(i int) string {
	const digits = 7
	var b [digits]byte
	for at := digits - 1; at >= 0; at-- {
		b[at], i = '0'+byte(i%10), i/10
	}
	return string(b[:])
}

// large adds a tree, which is not compressed.
func (f *forge) large(content []byte) fencepost.ObjectID {
	f.b.Raw(packtest.Header(uint8(object.Tree), int64(len(content))), packtest.Stored(content))
	id := packtest.ID(object.Tree, content)
	f.note(id, object.Tree, content)
	return id
}

func bombAttacks() []attack {
	const git = "CVE-2017-15298"
	// In the order in which they are built alone: large ones take their time, and
	// some are about that order.
	built := func(build func(*forge) fencepost.ObjectID, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
		return func(t *testing.T) []scene {
			var f forge
			commit := build(&f)
			return sending(commit, f.b.Bytes(), change...)(t)
		}
	}
	rooted := func(root func(*forge) fencepost.ObjectID, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
		return built(func(f *forge) fencepost.ObjectID { return f.commit(root(f)) }, change...)
	}
	oneFile := func(f *forge) fencepost.ObjectID { return f.tree(file("f", f.blob("x"))) }
	return []attack{
		{"ten thousand million paths from twelve objects", git, over(gitfetch.BudgetRepeats), roomy(64<<20, rooted(func(f *forge) fencepost.ObjectID { return stacked(f, 10, 10, oneFile(f)) }))},
		{"forty levels of two, a million million paths", git, over(gitfetch.BudgetRepeats), roomy(64<<20, rooted(func(f *forge) fencepost.ObjectID { return stacked(f, 40, 2, oneFile(f)) }))},
		{"forty levels of two empty directories", git, over(gitfetch.BudgetRepeats), roomy(48<<20, rooted(func(f *forge) fencepost.ObjectID { return stacked(f, 40, 2, f.tree()) }))},
		{"a hundred thousand files from seven objects", git, over(gitfetch.BudgetRepeats), roomy(48<<20, rooted(func(f *forge) fencepost.ObjectID {
			x := f.blob("x")
			return stacked(f, 4, 10, entriesOf(f, 10, func(name string) packtest.Entry { return file(name, x) }))
		}))},
		{"ten thousand million paths where directories may repeat", git, over(gitfetch.BudgetPaths), roomy(160<<20, rooted(func(f *forge) fencepost.ObjectID {
			return stacked(f, 10, 10, oneFile(f))
		}, budgets(func(b *gitfetch.Budgets) { b.Repeats = 1 << 20 })))},
		{"a tree of a million entries", "memory", over(gitfetch.BudgetTree), rooted(func(f *forge) fencepost.ObjectID {
			x := f.blob("x")
			return entriesOf(f, 1_000_000, func(name string) packtest.Entry { return file(name, x) })
		})},
		{"a tree of two hundred and ten thousand entries", "memory", over(gitfetch.BudgetPaths), roomy(160<<20, rooted(func(f *forge) fencepost.ObjectID {
			x := f.blob("x")
			return entriesOf(f, 210_000, func(name string) packtest.Entry { return file(name, x) })
		}))},
		{"a large directory with thousands of small ones in it", "time", over(gitfetch.BudgetPaths), roomy(160<<20, rooted(func(f *forge) fencepost.ObjectID {
			x, small := f.blob("x"), oneFile(f)
			entries := make([]packtest.Entry, 195_000)
			for i := range entries {
				if i < 180_000 {
					entries[i] = file(numbered(i), x)
				} else {
					entries[i] = dir(numbered(i), small)
				}
			}
			return f.large(packtest.Tree(entries...))
		}))},
		{"thousands of trees between a large commit and its own", "time", fails(gitfetch.ErrExtraObject), built(func(f *forge) fencepost.ObjectID {
			root := packtest.Tree(file("f", packtest.ID(object.Blob, []byte("x"))))
			commit := fmt.Sprintf("tree %s\n\n%s", packtest.ID(object.Tree, root), strings.Repeat("x", 1_000_000))
			id := f.b.Object(object.Commit, []byte(commit))
			for i := range 2000 {
				f.large(packtest.Tree(file(numbered(i), absentID())))
			}
			f.large(root)
			f.blob("x")
			return id
		})},
		{"five thousand levels", "depth", over(gitfetch.BudgetDepth), rooted(func(f *forge) fencepost.ObjectID { return stacked(f, 5000, 1, oneFile(f)) })},
		{"sixty-five levels", "depth", over(gitfetch.BudgetDepth), rooted(func(f *forge) fencepost.ObjectID { return stacked(f, 64, 1, oneFile(f)) })},
		{"a name of a hundred KiB", "largePathname", over(gitfetch.BudgetComponent), rooted(func(f *forge) fencepost.ObjectID { return f.tree(file(strings.Repeat("x", 100<<10), f.blob("x"))) })},
		{"a name of 256 bytes", "NAME_MAX", over(gitfetch.BudgetComponent), rooted(func(f *forge) fencepost.ObjectID { return f.tree(file(strings.Repeat("x", 256), f.blob("x"))) })},
		{"a path of a hundred KiB", "largePathname", over(gitfetch.BudgetPath), rooted(func(f *forge) fencepost.ObjectID {
			id := oneFile(f)
			for range 410 {
				id = f.tree(dir(strings.Repeat("d", 250), id))
			}
			return id
		})},
		{"one file of a MiB under two thousand names", "output", over(gitfetch.BudgetOutput), rooted(func(f *forge) fencepost.ObjectID {
			b := f.blob(strings.Repeat("x", 1<<20))
			return entriesOf(f, 2000, func(name string) packtest.Entry { return file(name, b) })
		})},
		{"a gibibyte of zeros in a MiB", "inflation", over(gitfetch.BudgetFile), rooted(func(f *forge) fencepost.ObjectID {
			f.b.Raw(packtest.Header(uint8(object.Blob), 1<<30), zeroStream(1<<10))
			return f.tree()
		})},
		{"a gibibyte of zeros, called small", "inflation", fails(gitfetch.ErrPack), rooted(func(f *forge) fencepost.ObjectID {
			f.b.Raw(packtest.Header(uint8(object.Blob), 1<<20), zeroStream(1<<10))
			return f.tree()
		})},
		{"zeros in many files", "inflation", over(gitfetch.BudgetInflated), rooted(func(f *forge) fencepost.ObjectID {
			for i := range 8 {
				f.b.Raw(packtest.Header(uint8(object.Blob), int64(i+1)<<20), zeroStream(i+1))
			}
			return f.tree()
		}, budgets(func(b *gitfetch.Budgets) { b.InflatedBytes = 32 << 20 }))},
		{"more objects than the budget has", "memory", over(gitfetch.BudgetObjects), rooted(func(f *forge) fencepost.ObjectID {
			for i := range 300 {
				f.blob(fmt.Sprint(i))
			}
			return f.tree()
		}, budgets(func(b *gitfetch.Budgets) { b.Objects = 200 }))},
		{"thirty thousand objects that nothing names", "closure", fails(gitfetch.ErrExtraObject), roomy(96<<20, rooted(func(f *forge) fencepost.ObjectID {
			for i := range 30_000 {
				f.b.Raw(packtest.Header(uint8(object.Blob), 3), packtest.Stored([]byte{byte(i), byte(i >> 8), byte(i >> 16)}))
			}
			return f.tree()
		}))},
		{"a pack larger than the budget", "bytes on the wire", over(gitfetch.BudgetWire), rooted(func(f *forge) fencepost.ObjectID {
			return entriesOf(f, 1000, func(name string) packtest.Entry { return file(name, f.blob(name)) })
		}, budgets(func(b *gitfetch.Budgets) { b.WireBytes = 4 << 10 }))},
		{"refs larger than the budget", "bytes on the wire", over(gitfetch.BudgetWire), against(func(fencepost.ObjectID, []byte) *host {
			return &host{advertisement: flushed(lines("version 2", "fetch=shallow", "a="+strings.Repeat("x", 60_000)))}
		}, budgets(func(b *gitfetch.Budgets) { b.WireBytes = 4 << 10 }))},
		{"an error page larger than the budget", "bytes on the wire", status(500), answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, strings.Repeat("x", 1<<20))
		}, budgets(func(b *gitfetch.Budgets) { b.WireBytes = 1 << 10 }))},
	}
}

// inertAttacks are trees that another program acts upon. Here they are files.
func inertAttacks() []attack {
	modules := func(text string) func(*testing.T) []scene {
		return rooted(func(f *forge) fencepost.ObjectID { return f.tree(file(".gitmodules", f.blob(text)), gitlink("s")) }, skip)
	}
	return []attack{
		{"a submodule, where none is allowed", "gitlinks: refuse", breaks("gitlink"), rooted(func(f *forge) fencepost.ObjectID { return f.tree(gitlink("s")) })},
		{"a submodule named as a way out", "CVE-2018-11235", asStored(), modules("[submodule \"../../evil\"]\n\tpath = s\n\turl = ./s\n")},
		{"a submodule that is an option", "CVE-2018-17456", asStored(), modules("[submodule \"s\"]\n\tpath = s\n\turl = -u./payload\n")},
		{"a submodule updated by a command", "CVE-2019-19604", asStored(), modules("[submodule \"s\"]\n\tpath = s\n\turl = ./s\n\tupdate = !touch pwned\n")},
		{"a submodule within another's directory", "CVE-2019-1387", asStored(), modules("[submodule \"s\"]\n\tpath = s\n\turl = ./s\n[submodule \"s/x\"]\n\tpath = s/x\n\turl = ./s\n")},
		{"a submodule with a line end in its URL", "CVE-2020-5260 CVE-2020-11008", asStored(), modules("[submodule \"s\"]\n\tpath = s\n\turl = \"https://x?%0ahost=y\"\n")},
		{"a submodule's path with a carriage return", "CVE-2025-48384", asStored(), modules("[submodule \"s\"]\n\tpath = \"s\r\"\n\turl = ./s\n")},
		{"attributes of endless lines", "CVE-2022-23521", asStored(), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(file(".gitattributes", f.blob("* "+strings.Repeat("a=b ", 1<<16)+"filter=evil\n")))
		})},
		{"a filter, an encoding, an identity", "gitattributes", asStored(), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(file(".gitattributes", f.blob("* filter=lfs working-tree-encoding=UTF-16 ident eol=crlf\n")), file("x", f.blob("$Id$\n")))
		})},
		{"a pointer of LFS to elsewhere", "git-lfs", asStored(), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(file(".lfsconfig", f.blob("[lfs]\n\turl = http://169.254.169.254/\n")), file("x", f.blob("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")))
		})},
		{"a link as data, and a file of the name it leads to", "CVE-2023-23946", asStored(), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(link("l", f.blob("../kept")), file("l2", f.blob("x")))
		}, asData)},
		{"hooks and a configuration that are no .git", "hooks", asStored(), rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(file("HEAD", f.blob("ref: refs/heads/main\n")), file("config", f.blob("[core]\n\tfsmonitor = touch pwned\n")),
				dir("hooks", f.tree(packtest.Entry{Mode: "100755", Name: "post-checkout", ID: f.blob("#!/bin/sh\ntouch pwned\n")})), dir("objects", f.tree()), dir("refs", f.tree()))
		})},
		{"a commit that looks strange and is legal", "old history", asStored(), built(func(f *forge) fencepost.ObjectID {
			return f.add(object.Commit, fmt.Appendf(nil, "tree %s\nauthor <> -1 +9999\ncommitter \xff\xfe <\x1b[2J> 99999999999999999999 x\nencoding %s\n\n\x00\x1b", f.tree(), serverWords))
		})},
	}
}
