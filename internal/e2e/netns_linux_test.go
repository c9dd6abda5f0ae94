package e2e

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAGateBehindACutNetworkPublishesNothing: as one that is cut off; but the
// network between is the kernel's, in a namespace of its own, and what is sent
// while it is cut is lost without an answer. It needs root, so `make faults`
// asks for it by FENCEPOST_NETNS.
func TestAGateBehindACutNetworkPublishesNothing(t *testing.T) {
	if os.Getenv("FENCEPOST_NETNS") == "" {
		t.Skip("FENCEPOST_NETNS is not set")
	}
	cutOffGate(t, func(database string) (line, string) { return newWire(t, database) })
}

// The ends of a wire, in a network of its own.
const (
	wireNear = "10.213.77.1/30"
	wireFar  = "10.213.77.2/30"
)

// A wire is a pair of network devices of which the far one is in a network
// namespace. There, a relay stands for the database's machine.
type wire struct {
	t            *testing.T
	space        string
	near, device string
}

// newWire lays a wire to the host of a URL, and returns the URL of its end.
func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	id := os.Getpid() % 100_000
	w := &wire{t: t, space: fmt.Sprintf("fencepost-%d", id), near: fmt.Sprintf("fpn%d", id), device: fmt.Sprintf("fpf%d", id)}
	w.ip("netns", "add", w.space)
	t.Cleanup(func() { w.ip("netns", "del", w.space) }) // its device goes with it, and with that the other end
	w.ip("link", "add", w.near, "type", "veth", "peer", "name", w.device, "netns", w.space)
	w.ip("addr", "add", wireNear, "dev", w.near)
	w.ip("link", "set", w.near, "up")
	w.ip("-n", w.space, "addr", "add", wireFar, "dev", w.device)
	w.ip("-n", w.space, "link", "set", w.device, "up")
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	far, _, _ := strings.Cut(wireFar, "/")
	listener := w.listen(net.JoinHostPort(far, "0"))
	relay := relayTo(t, listener, u.Host)
	u.Host = relay.listener.Addr().String()
	return w, u.String()
}

// ip runs ip(8).
func (w *wire) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// listen opens a listener in the namespace, where it and its connections stay.
func (w *wire) listen(address string) net.Listener {
	w.t.Helper()
	// A thread that could not come back ends with its goroutine.
	opened := make(chan net.Listener, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		l, err := listenIn(w.space, address)
		if err != nil {
			failed <- err
			return
		}
		opened <- l
	}()
	select {
	case l := <-opened:
		return l
	case err := <-failed:
		w.t.Fatal(err)
		return nil
	}
}

// listenIn moves the calling thread into a namespace for good.
func listenIn(space, address string) (net.Listener, error) {
	f, err := os.Open("/run/netns/" + space)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter %s: %w", space, err)
	}
	return net.Listen("tcp", address)
}

// sever takes the far device down: what is sent to it is lost.
func (w *wire) sever() { w.ip("-n", w.space, "link", "set", w.device, "down") }

func (w *wire) mend() { w.ip("-n", w.space, "link", "set", w.device, "up") }
