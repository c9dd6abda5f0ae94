package ingress

import (
	"testing"

	"github.com/fencepost/fencepost"
)

// The vector of docs/encoding.md, "Poll secret".
func TestThePollSecretIsAsDocumented(t *testing.T) {
	t.Parallel()
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	job := Job{Key: fencepost.NewSecret(key)}
	const want = "2-n7aqAHkT4cE_LENtyH_GbeTBCpF48dKbKwRinLmcs"
	if got := job.secret("docs", "dlv_ifq7mzoskrk3gl362r2hhjozee"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
