// Package check is the contract between Fencepost's runner and the program
// that a gate runs: the files, their schemas and limits, and what an author of
// such a program needs to keep it.
//
// # For authors of checks
//
// A check is a program that looks at one verified tree and says pass or block.
// A whole one in Go:
//
//	func main() { os.Exit(check.Main(context.Background(), judge)) }
//
//	func judge(ctx context.Context, req *check.Request) (check.Verdict, error) {
//		tree, err := req.OpenCandidate()
//		if err != nil {
//			return check.Verdict{}, err
//		}
//		defer tree.Close()
//		if _, err := tree.Stat("LICENSE"); err != nil {
//			return check.Block("No licence", "The tree has no file `LICENSE`."), nil
//		}
//		return check.Pass("Licence found", ""), nil
//	}
//
// [Main] reads the request, calls the function, writes the report and then the
// result with its digests, and returns the exit status that agrees with it. An
// error, a panic or a verdict over a limit writes no result: such a run is
// failed, never passed.
//
// # The contract, for any language
//
// The program starts in its working directory with an empty environment and
// with standard input, output and error on the null device. It finds there:
//
//   - request.json, written by the controller: one [Request] in canonical JSON
//     ([RFC 8785]). Roots of trees in it are absolute, or relative to the
//     working directory.
//   - report.json, empty: the program writes one JSON value into it, at most
//     [MaxReportBytes], for whoever wants the details.
//   - result.json, empty: the program writes one [Result] into it, last.
//
// The program writes into the files that are there. It must not rename,
// replace or remove them: the controller reads only the files that it made,
// and takes a replaced name for tampering.
//
// It exits with [ExitPass] after a pass and [ExitBlock] after a block. Any
// other status, and any disagreement between status, result, report and
// request, is a failed run.
//
// Both JSON files are read strictly: UTF-8, no duplicate key, no lone
// surrogate, nothing after the value, and in result.json no unknown field.
//
// [RFC 8785]: https://www.rfc-editor.org/rfc/rfc8785
package check
