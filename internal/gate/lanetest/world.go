package lanetest

import (
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// A Request is one request of a [World]; what it is, the world knows.
type Request any

// An Event is what a sender posts to a route.
type Event struct {
	Headers fencepost.Headers
	Body    []byte
}

// A Result is what a provider shows of one evaluation.
type Result struct {
	// Evaluation is the evaluation's id.
	Evaluation string
	Conclusion gate.Conclusion
	// Copies is how often it is shown; of a result in several parts, how often
	// the part that is shown most often is.
	Copies int
	// Partial is set where a part is missing and one that is there could count
	// for something.
	Partial bool
}

// A World is one gate at one simulated provider. Its methods that change
// something fail the test where they can't. It is used by one scenario, from
// several goroutines.
type World interface {
	// Gate makes the gate as a process that has just started has it: with a
	// lane that knows nothing yet, whose every call goes through the [Wire].
	// Name and Plan are the suite's.
	Gate(t testing.TB) *gate.Gate
	// Open opens a request that contains the tip of the base and that nothing
	// but the gate keeps from being merged; from a fork where that is asked for.
	Open(t testing.TB, fromFork bool) Request
	// Event makes a signed event that asks for a verdict on the request as it
	// is. Each call makes another delivery.
	Event(t testing.TB, r Request) Event
	// Push moves the request's head, MoveBase the tip of the base.
	Push(t testing.TB, r Request)
	MoveBase(t testing.TB)
	// Close closes the request, Reopen opens it again.
	Close(t testing.TB, r Request)
	Reopen(t testing.TB, r Request)
	// Draft makes the request a draft, or ready.
	Draft(t testing.TB, r Request, draft bool)
	// DeleteFork deletes the repository that the request comes from.
	DeleteFork(t testing.TB, r Request)
	// Rename gives the repository another name.
	Rename(t testing.TB)
	// Revoke takes from the gate the right to read and write, Authorize gives
	// it back.
	Revoke(t testing.TB)
	Authorize(t testing.TB)
	// Weaken changes what makes the provider ask for the gate's result, so that
	// it does not any more.
	Weaken(t testing.TB)
	// Foreign has somebody else show a passing result by the gate's name.
	Foreign(t testing.TB, r Request)
	// Impersonate has something stand where the result of a delivery would, under
	// its evaluation's id and as if the gate had made it, that is not what was staged.
	Impersonate(t testing.TB, r Request, d fencepost.DeliveryID, evaluation string)
	// Shown lists what the provider shows of the gate's evaluations of a
	// request, on whichever head, oldest first.
	Shown(t testing.TB, r Request) []Result
	// Locked says why the provider would not let the request be merged; "" where
	// it would.
	Locked(t testing.TB, r Request) string
	// Secrets are what no output may hold: tokens, keys, what signs events.
	Secrets() []string
	// Fetches is how many requests have come to the Git server.
	Fetches() int
}

// Nothing implements the methods of a [World] that its lane's [Suite.Absent]
// says are never called; it is to be embedded.
type Nothing struct{}

// DeleteFork implements [World].
func (Nothing) DeleteFork(t testing.TB, _ Request) { absent(t, "DeleteFork") }

// Reopen implements [World].
func (Nothing) Reopen(t testing.TB, _ Request) { absent(t, "Reopen") }

// Draft implements [World].
func (Nothing) Draft(t testing.TB, _ Request, _ bool) { absent(t, "Draft") }

// Foreign implements [World].
func (Nothing) Foreign(t testing.TB, _ Request) { absent(t, "Foreign") }

// Impersonate implements [World].
func (Nothing) Impersonate(t testing.TB, _ Request, _ fencepost.DeliveryID, _ string) {
	absent(t, "Impersonate")
}

func absent(t testing.TB, method string) {
	t.Helper()
	t.Fatalf("this world has no %s: the scenario must be declared absent", method)
}
