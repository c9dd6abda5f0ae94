// Package stage is the process between the runner and a program: the runner
// starts its own executable again under the name [Name], and that process
// builds the sandbox, starts the program in it, and reaps everything.
//
// It runs in one of two shapes:
//
//   - In namespaces it is process 1 of a new PID namespace. When it ends, for
//     whatever reason, the kernel kills every process of the namespace and
//     waits for them before its own end can be seen: that is the proof that
//     nothing is left.
//   - Plain, where namespaces are not to be had, it is the subreaper of what
//     the program starts: descendants that lose their parent become its
//     children, so that having no child left is the proof.
//
// # Protocol
//
// Runner and stage talk over one sequenced-packet socket, descriptor [SocketFD]
// of the stage. Each message is a kind and a payload:
//
//	runner → stage   'B' Base: what all runs have in common
//	runner → stage   'C' Config: the run's own, with descriptors
//	runner → stage   'Q' the bytes of request.json, in namespaces only
//	stage → runner   'R' Ready, in namespaces with the outputs' descriptors
//	runner → stage   'G' start the program
//	stage → runner   'X' Exit: the program ended or could not be started
//	runner → stage   'K' kill everything, plain only
//	stage → runner   'D' nothing is left, plain only
//
// An end of the stream means that the other side is gone. The program never
// has the socket: every descriptor of the stage is closed on exec.
package stage
