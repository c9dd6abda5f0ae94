package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/runner/check"
)

// A build is what is known of how this program was built.
type build struct {
	Version string `json:"version"`
	// Revision is the commit that it was built from, and Modified whether
	// there was more in the tree than that.
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Request and Result are the schemas of the run contract.
	Request string `json:"request"`
	Result  string `json:"result"`
}

func thisBuild() build {
	b := build{
		Version: "unknown", Revision: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Request: check.RequestSchema, Result: check.ResultSchema,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(info.Main.Version, b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (m Main) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, how it was built, and the run contract it speaks",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if asJSON {
				return printJSON(m.Out, b)
			}
			revision := b.Revision
			if b.Modified {
				revision += " and changes"
			}
			_, err := fmt.Fprintf(m.Out, "fencepost %s\nrevision  %s\ngo        %s %s\ncontract  %s, %s\n",
				b.Version, revision, b.Go, b.Platform, b.Request, b.Result)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
