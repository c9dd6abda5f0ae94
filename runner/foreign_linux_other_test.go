//go:build linux && !amd64

package runner_test

const hasForeignABI = false

func foreignCall() int { return 1 }
