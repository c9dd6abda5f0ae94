// Package lanetest holds what every lane of a gate does, as a suite that each
// lane's own tests run over a simulated provider.
//
// A lane is driven by the real orchestrator, gate.New, with the real file
// ledger and notebook on a disk in memory and the real fetch from the
// simulator's Git server; only the program that runs is a double. What goes
// wrong between lane and provider, a [Wire] does, through which all calls of the
// lane pass. What goes wrong at the provider, the lane's [World] does.
//
//	lanetest.Run(t, lanetest.Suite{
//		Lane: "GitHub", New: newWorld, Writes: isWrite,
//		Docs: "../../../docs/lanes.md", Calls: "../../../docs/gates.md",
//	})
//
// A lane that can't have a scenario says so in [Suite.Absent], with the reason;
// the table of docs/lanes.md must say the same. docs/lanes.md tells how to add a
// lane.
package lanetest
