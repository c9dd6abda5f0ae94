// Command fetch measures gitfetch beside git and go-git: one commit's files
// from the same server on loopback, in turn, each time into a new directory,
// each in a process of its own. Nothing is removed before the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

func main() {
	name := flag.String("as", "", "be one of the tools: gitfetch, synced or go-git, with URL COMMIT DIR")
	work := flag.String("work", "", "directory in which everything stays; one that is removed in the end unless given")
	rounds := flag.Int("rounds", 5, "of each tool")
	only := flag.String("shape", "", "small, large or bombs; all unless given")
	which := flag.String("tools", "", "only those of these names, or whose names contain one of these words, separated by commas")
	binary := flag.String("fencepost", "", "path of a fencepost executable")
	have := flag.String("have", "", "with -as again, an earlier checkout")
	other := flag.String("other", "", "directory on another file system, for an earlier checkout whose files can't be linked; none is measured unless given")
	profile := flag.String("profile", "", "with -as, write a profile of the processor time to this file")
	root := flag.String("serve", "", "be the server of the repositories in this directory")
	flag.Parse()
	var err error
	switch {
	case *name != "":
		err = profiled(*profile, func() error { return as(context.Background(), *name, *have, flag.Args()) })
	case *root != "":
		err = serve(*root)
	default:
		err = compare(options{*work, *other, *only, *which, *binary, *rounds})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

// profiled calls f, and writes where its time went if a name is given.
func profiled(name string, f func() error) error {
	if name == "" {
		return f()
	}
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return errors.Join(err, out.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, out.Close())
}

type options struct {
	work, other, shape, tools, fencepost string
	rounds                               int
}

func compare(o options) (err error) {
	if o.work == "" {
		if o.work, err = os.MkdirTemp("", "fetch-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.work)) }()
	}
	if o.work, err = filepath.Abs(o.work); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, s := range shapes() {
		if o.shape != "" && o.shape != s.name {
			continue
		}
		if err := measure(self, o, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if o.shape == "" || o.shape == "bombs" {
		return defuse(self, o)
	}
	return nil
}

// choose returns the tools that were asked for.
func (o options) choose(self, linked, copied string) []tool {
	var chosen []tool
	all := tools(self, o.fencepost, linked, copied)
	for _, t := range all {
		if o.other == "" && strings.HasSuffix(t.name, "copied") {
			continue
		}
		for word := range strings.SplitSeq(o.tools, ",") {
			exact := slices.ContainsFunc(all, func(t tool) bool { return t.name == word })
			if t.name == word || !exact && strings.Contains(t.name, word) {
				chosen = append(chosen, t)
				break
			}
		}
	}
	return chosen
}

// measure prints a line for each tool: the median of its rounds, and its share
// of what the first tool that is not ours took in the same round.
func measure(self string, o options, s shape) (err error) {
	r, err := makeRepo(o.work, s)
	if err != nil {
		return err
	}
	at, stop, err := startServer(self, o.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	url := at + "/" + filepath.Base(r.dir)
	to, err := os.MkdirTemp(o.work, "to-")
	if err != nil {
		return err
	}

	linked, copied := filepath.Join(to, "earlier"), ""
	first := tool{"the commit before", func(url, commit, dir string) []string { return []string{self, "-as", "again", url, commit, dir} }}
	if _, err := first.run(url, r.first, linked); err != nil {
		return err
	}
	if o.other != "" {
		at, err := os.MkdirTemp(o.other, "fetch-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
		copied = filepath.Join(at, "earlier")
		if _, err := first.run(url, r.first, copied); err != nil {
			return err
		}
	}
	chosen := o.choose(self, linked, copied)
	costs := make([][]cost, len(chosen))
	var trees []string
	for round := range o.rounds + 1 {
		for i, t := range chosen {
			dir := filepath.Join(to, fmt.Sprintf("%d-%d", round, i))
			c, err := t.run(url, r.second, dir)
			if err != nil {
				return err
			}
			if round == 0 { // the server packs
				trees = append(trees, dir)
				continue
			}
			costs[i] = append(costs[i], c)
		}
	}
	for _, other := range trees[1:] {
		if err := same(trees[0], other); err != nil {
			return err
		}
	}
	fmt.Printf("%s: %d files\n", s.name, s.files)
	for i, t := range chosen {
		fmt.Printf("  %-28s wall %6.2f s  cpu %6.2f s  peak %4.0f MiB", t.name,
			seconds(costs[i], func(c cost) time.Duration { return c.wall }),
			seconds(costs[i], func(c cost) time.Duration { return c.cpu }),
			float64(slices.MaxFunc(costs[i], func(a, b cost) int { return int(a.peak - b.peak) }).peak)/(1<<20))
		for k, peer := range chosen {
			first := k == 0 && strings.Contains(t.name, "changed")
			if k != i && ours(t) && (first || !ours(peer)) {
				var ratios []float64
				for n := range costs[i] {
					ratios = append(ratios, costs[i][n].wall.Seconds()/costs[k][n].wall.Seconds())
				}
				fmt.Printf("  %.2f of %s", median(ratios), strings.Fields(peer.name)[0])
			}
		}
		fmt.Println()
	}
	return nil
}

func ours(t tool) bool { return strings.Contains(t.name, "fetch") }

func seconds(costs []cost, of func(cost) time.Duration) float64 {
	var all []float64
	for _, c := range costs {
		all = append(all, of(c).Seconds())
	}
	return median(all)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
