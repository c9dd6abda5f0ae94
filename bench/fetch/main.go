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
	"slices"
	"strings"
	"time"
)

func main() {
	name := flag.String("as", "", "be one of the tools: gitfetch, synced or go-git, with URL COMMIT DIR")
	work := flag.String("work", "", "directory in which everything stays; one that is removed in the end unless given")
	rounds := flag.Int("rounds", 5, "of each tool")
	only := flag.String("shape", "", "small or large; both unless given")
	which := flag.String("tools", "", "of which names only those that contain one of these words, separated by commas")
	binary := flag.String("fencepost", "", "path of a fencepost executable")
	root := flag.String("serve", "", "be the server of the repositories in this directory")
	flag.Parse()
	var err error
	switch {
	case *name != "":
		err = as(context.Background(), *name, flag.Args())
	case *root != "":
		err = serve(*root)
	default:
		err = compare(*work, *only, *which, *binary, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func compare(work, only, which, binary string, rounds int) (err error) {
	if work == "" {
		if work, err = os.MkdirTemp("", "fetch-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	}
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var chosen []tool
	for _, t := range tools(self, binary) {
		for word := range strings.SplitSeq(which, ",") {
			if strings.Contains(t.name, word) {
				chosen = append(chosen, t)
				break
			}
		}
	}
	for _, s := range shapes() {
		if only != "" && only != s.name {
			continue
		}
		if err := measure(self, work, s, chosen, rounds); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// measure prints a line for each tool: the median of its rounds, and its share
// of what the first tool that is not ours took in the same round.
func measure(self, work string, s shape, chosen []tool, rounds int) (err error) {
	r, err := makeRepo(work, s)
	if err != nil {
		return err
	}
	at, stop, err := startServer(self, work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	url := at + "/" + filepath.Base(r.dir)
	to, err := os.MkdirTemp(work, "to-")
	if err != nil {
		return err
	}

	costs := make([][]cost, len(chosen))
	var trees []string
	for round := range rounds + 1 {
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
		fmt.Printf("  %-24s wall %6.2f s  cpu %6.2f s  peak %4.0f MiB", t.name,
			seconds(costs[i], func(c cost) time.Duration { return c.wall }),
			seconds(costs[i], func(c cost) time.Duration { return c.cpu }),
			float64(slices.MaxFunc(costs[i], func(a, b cost) int { return int(a.peak - b.peak) }).peak)/(1<<20))
		for k, peer := range chosen {
			if k != i && !ours(peer) && ours(t) {
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
