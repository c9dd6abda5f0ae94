// Package gitlab is the GitLab lane of a gate: it admits the signed token of a
// policy's job, proves what the job is and that its merge train can't be passed
// by, and puts the result where the job fetches it.
//
//	Lane      gate.Lane for one gate
//	├ Admit   event.go                            token and hint → subject
//	├ Refresh refresh.go answer.go train.go
//	│         policy.go settings.go               subject → snapshot
//	├ Compose document.go                         verdict → the bytes to publish
//	├ Create  publish.go                          bytes → the results' shelf
//	├ Ended   publish.go                          an end without a result
//	├ Open    watch.go                            nothing is ever missed here
//	└ Examine examine.go                          what an operator has to mend
//
// The sender is a job in a merge train, which ends by itself, and fails unless
// it was told of a pass: the result is its exit status. So nothing is written at
// the provider, and there is nothing there to look up or to take back. What is
// asked there is whether that job counts: whether it is the policy's, whether
// its train's merge commit is the one that its token names, and whether nobody
// gets past the train.
//
// The candidate is the train's merge commit. GitLab does not tell its tree, nor
// those of base and head: all three are read by Git, and hash to their ids.
//
// contracts/gitlab.md §5 to §8
package gitlab
