package sqlledger

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// A scene is one point of the table: a row as it stands, the moment, and who
// asks for what.
type scene struct {
	name string
	row  ledger.Row
	at   ledger.Moment
	req  ledger.Request
	// dead: the caller knows that the row's holder is dead.
	dead bool
}

// theTable visits every state of a row, with each lifetime and boot, at every
// side of each bound of time, room and closing, and every request whose
// binding, evaluation, fence, value and replay end are the row's or are not.
func theTable(tb testing.TB, noon time.Time, visit func(scene)) {
	tb.Helper()
	const lease = time.Minute
	life := fencepost.DefaultReplayWindow.MaxSignedAge + fencepost.DefaultReplayWindow.MaxQueueAge
	deliver := func(body string, signed time.Time) fencepost.AcceptedDelivery {
		return ledgertest.Deliver(tb, ledgertest.Spec{ID: "a", Body: body, Signed: signed})
	}
	reason, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
	must0(tb, err)
	values := []fencepost.Publication{publication(tb, "value"), publication(tb, "other"), reason}
	mine, others := fencepost.EvaluationID{1, 2, 3}, fencepost.EvaluationID{3, 2, 1}
	now := ledger.Instant{Boot: serverBoot, At: time.Duration(noon.UnixNano())}
	moment := ledger.Moment{Wall: noon, Now: now, Lease: lease, Running: 5 * time.Hour}
	term := func(boot ledger.BootID, left time.Duration) ledger.Term {
		return ledger.Term{Deadline: ledger.Instant{Boot: boot, At: now.At + left}, Until: noon.Add(left), Holder: ledger.Holder{Slot: 7, Epoch: 9}}
	}

	// Nothing stands there: what a first claim looks at.
	for _, signed := range []time.Time{{}, noon, noon.Add(-life), noon.Add(-life - time.Microsecond), noon.Add(time.Hour)} {
		for _, full := range []bool{false, true} {
			for _, closed := range []time.Duration{0, -time.Microsecond, 1, life} {
				at, d := moment, deliver("body", signed)
				at.NoRoom = full
				if end, bounded := d.Lifetime().End(); bounded && closed != 0 {
					at.ClosedThrough = end.Add(closed - 1)
				}
				for _, req := range requests(tb, d, mine, fence(5), values[0]) {
					visit(scene{fmt.Sprintf("unclaimed, signed %v, full %v, closed %v", signed, full, closed), ledger.Row{}, at, req, false})
				}
			}
		}
	}

	for _, state := range []ledger.State{ledger.Leased, ledger.Staged, ledger.Done} {
		for _, signed := range []time.Time{{}, noon.Add(-time.Hour)} {
			for _, stored := range values[:2] {
				for _, left := range []time.Duration{-time.Microsecond, 0, lease / 2, lease, 2 * lease} {
					for _, boot := range []ledger.BootID{serverBoot, {1}} {
						if state == ledger.Done && (left != 0 || boot != serverBoot) {
							continue
						}
						for _, attempts := range []uint32{1, ledger.MaxAttempts} {
							if attempts > 1 && left >= 0 {
								continue
							}
							d := deliver("body", signed)
							row := ledger.Row{
								State: state, Key: d.Key(), Binding: d.Binding(), Evaluation: mine, Trust: ledger.MarkOf(d.TrustSet()),
								Fence: fence(5), Attempts: attempts, Since: noon.Add(-time.Minute).Truncate(time.Second), Lifetime: d.Lifetime(),
							}
							if !signed.IsZero() {
								row.RunningEnd = 3 * time.Hour
							}
							switch state {
							case ledger.Leased:
								row.Execution = term(boot, left)
							case ledger.Staged:
								row.Publishing, row.Publication = term(boot, left), stored
							case ledger.Done:
								row.Published = stored.Digest()
							case ledger.Unclaimed:
							}
							must0(tb, row.Validate())
							for n, asked := range []fencepost.AcceptedDelivery{d, deliver("another body", signed), deliver("body", noon), deliver("body", time.Time{}), deliver("body", noon.Add(-2*time.Hour))} {
								for _, id := range []fencepost.EvaluationID{mine, others} {
									for _, f := range []int64{4, 5, 6} {
										for i, value := range values {
											if !thorough && differ(n > 0, id != mine, f != 5, !value.Equal(stored)) > 1 {
												continue
											}
											for _, req := range requests(tb, asked, id, fence(f), value) {
												switch req.(type) {
												case ledger.ClaimRequest, ledger.RepeatRequest:
													if id != mine || f != 5 || i > 0 {
														continue
													}
												case ledger.RenewRequest:
													if i > 0 {
														continue
													}
												case ledger.CompleteRequest:
													if f != 5 {
														continue
													}
												case ledger.StageRequest:
												}
												name := fmt.Sprintf("%v, signed %v, left %v, boot %x, attempts %d, asked %v, id %v, fence %d, value %d", state, signed, left, boot[0], attempts, asked.Lifetime(), id == mine, f, i)
												visit(scene{name, row, moment, req, false})
												if _, claim := req.(ledger.ClaimRequest); claim && state != ledger.Done {
													visit(scene{name + ", holder dead", row, moment, req, true})
												}
											}
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// thorough visits the points, too, at which more than one thing that an
// operation compares is not the row's: 20,000 in all.
var thorough = os.Getenv("FENCEPOST_THOROUGH") != ""

func differ(these ...bool) (n int) {
	for _, d := range these {
		if d {
			n++
		}
	}
	return n
}

// requests are one of each kind, and a completion that names another delivery.
func requests(tb testing.TB, d fencepost.AcceptedDelivery, id fencepost.EvaluationID, f fencepost.Fence, value fencepost.Publication) []ledger.Request {
	tb.Helper()
	lease, err := fencepost.GrantLease(id, f, time.Minute, d.Received().Add(time.Minute))
	must0(tb, err)
	staged, err := fencepost.RestoreStaged(d.Key(), id, value)
	must0(tb, err)
	foreign, err := fencepost.RestoreStaged(fencepost.DeliveryKey{1}, id, value)
	must0(tb, err)
	return []ledger.Request{
		ledger.ClaimRequest{Delivery: d}, ledger.RepeatRequest{Delivery: d}, ledger.RenewRequest{Delivery: d, Lease: lease},
		ledger.StageRequest{Delivery: d, Lease: lease, Publication: value},
		ledger.CompleteRequest{Delivery: d, Staged: staged}, ledger.CompleteRequest{Delivery: d, Staged: foreign},
	}
}

// theFunctionIsTheTable: the database's function and [ledger.Decide] answer
// and store the same at every point.
func theFunctionIsTheTable(t *testing.T, fresh maker) {
	f := fresh(t)
	f.cfg.Parts, f.cfg.Capacity = 1, 4
	l := f.ledger()
	noon := f.now()
	points, changes := 0, 0
	var placed *scene
	theTable(t, noon, func(s scene) {
		points++
		if placed == nil || !placed.row.Equal(s.row) || placed.at != s.at {
			f.put(l, s)
		}
		placed = &s
		c := newCall(s.req, change{evaluation: fencepost.EvaluationID{9}, token: fmt.Sprintf("%032d", points)})
		if s.dead {
			var err error
			c.dead, err = fencepost.GrantLease(s.row.Evaluation, s.row.Fence, 1, noon)
			must0(t, err)
		}
		answer, err := l.callOnce(t.Context(), c)
		if err != nil {
			t.Fatalf("%s: %s: %v", s.req.Op(), s.name, err)
		}
		// The drawn fence alone is the database's to choose.
		s.at.HolderDead = s.dead
		next, want := ledger.Decide(s.row, s.req, s.at, ledger.Fresh{Evaluation: fencepost.EvaluationID{9}, Fence: fence(max(c.drawn, 1))})
		got := s.row
		if len(c.stored) > 0 {
			got, _, err = l.Lookup(t.Context(), s.req.On().Key())
		}
		if err != nil || !got.Equal(next) || fmt.Sprintf("%#v", answer) != fmt.Sprintf("%#v", want) {
			t.Fatalf("%s: %s:\nrow    %+v\nwant   %+v, %v\nanswer %#v\nwant   %#v", s.req.Op(), s.name, got, next, err, answer, want)
		}
		if !next.Equal(s.row) {
			changes, placed = changes+1, nil
			if len(c.stored) == 0 {
				t.Fatalf("%s: %s: nothing was stored", s.req.Op(), s.name)
			}
		}
		if next.Fence != s.row.Fence && c.drawn <= int64(s.row.Fence.Uint64()) {
			t.Fatalf("%s: %s: fence %d after %v", s.req.Op(), s.name, c.drawn, s.row.Fence)
		}
	})
	if points < 1500 || changes < 300 {
		t.Errorf("%d points, %d changes; the table is larger", points, changes)
	}
	t.Logf("%d points, of which %d change the row", points, changes)
}

func fence(n int64) fencepost.Fence {
	f, err := fencepost.ParseFence(uint64(n))
	if err != nil {
		panic(err)
	}
	return f
}

// put makes a scene's row and part what the database holds.
func (f *fixture) put(l *Ledger, s scene) {
	f.tb.Helper()
	rows, closed := int64(0), int64(0)
	if s.row.State != ledger.Unclaimed {
		rows = 1
	}
	if s.at.NoRoom {
		rows = 4
	}
	if !s.at.ClosedThrough.IsZero() {
		closed = s.at.ClosedThrough.UnixNano()
	}
	part := []any{rows, closed, int64(s.at.Running), int64(s.at.Now.At)}
	query := `with p as (update ledger_parts set row_count = ?, closed_ns = ?, running_ns = ?, seen_ns = ?, last_fence = 5)
		delete from ledger_rows returning 1`
	if s.row.State != ledger.Unclaimed {
		query = `with p as (update ledger_parts set row_count = ?, closed_ns = ?, running_ns = ?, seen_ns = ?, last_fence = 5)
			insert into ledger_rows (key, part, state, evaluation, fence, replay_end, since, token, body) values (?, 0, ?, ?, ?, ?, 0, ?, ?)
			on conflict (key) do update set state = excluded.state, evaluation = excluded.evaluation, fence = excluded.fence,
				replay_end = excluded.replay_end, token = excluded.token, body = excluded.body returning 1`
		body, err := ledger.AppendRow(nil, s.row)
		must0(f.tb, err)
		part = append(part, s.row.Key.Hex(), int64(s.row.State), s.row.Evaluation.String(), int64(s.row.Fence.Uint64()), int64(1), fmt.Sprintf("%032d", 0), body)
	}
	_, err := l.db.Call(f.tb.Context(), "test", query, part, new(int64))
	must0(f.tb, err)
}
