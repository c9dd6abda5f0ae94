// Package gitlab is a simulated GitLab as sources and gates meet it: projects
// with push and merge request webhooks, merge requests in merge trains, jobs
// with OIDC ID tokens, the API that shows all of it, and a git server.
//
// A [Forge] keeps its Git data in a [forgesim.Forge], whose http-backend serves
// it, and puts another API, other tokens and other webhooks in front: those of
// contracts/gitlab.md, field by field, and nothing that is not there. It is one
// [http.Handler]: the API below /api/v4, the OIDC issuer's two documents, git
// smart HTTP elsewhere; [Forge.Start] puts it on a loopback port.
//
//	forge, err := gitlab.New(ctx, gitlab.Config{Dir: dir, Now: clock.Now})
//	defer forge.Close()
//	docs, err := forge.CreateProject(ctx, gitlab.Create{Namespace: "acme", Name: "docs", Files: files})
//	policies, err := forge.CreateProject(ctx, gitlab.Create{Namespace: "acme", Name: "policies", Files: policy})
//	docs.SetJobs(gitlab.JobSpec{Name: "fencepost", Policy: &gitlab.Policy{Project: policies}, Audience: audience})
//	forge.OnJob(func(ctx context.Context, j *gitlab.Job) error { … }) // or job.Finish
//	request, err := docs.OpenRequest(ctx, gitlab.Open{Source: "change", Change: change})
//	car, err := request.JoinTrain(ctx)
//	token, err := car.Pipeline().Job("fencepost").Token(audience)
//
// A train works as the real one: each car is built on the one before it, a car
// whose pipeline fails leaves and those behind it are built anew, a car whose
// pipeline passed is merged when it is the first. A push to the target branch
// rebuilds them all.
//
// Where the contract is silent or calls a thing unverified, the simulator takes
// the reading that is hardest on its client. All exported methods are safe for
// concurrent use.
package gitlab
