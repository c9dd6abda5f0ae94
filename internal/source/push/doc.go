// Package push admits signed push deliveries for one source: it takes the
// commit out of a body that agrees in every field with the source's policy,
// and refuses all others (DESIGN §4, §9).
//
// A [Policy] is made into an [Admitter] by [GitHub], [Gitea] or [GitLab], whose
// payloads differ: GitHub's may lack the sender, Gitea's and Forgejo's say
// nothing of deletion, GitLab's nothing of the owner's id. What a payload lacks is proven by the provider's API before
// anything is fetched. [Admitter.Admit] is a function of its arguments: it asks
// nobody, keeps nothing, and is to be called with bytes whose signature was
// verified.
//
// Whose event it is is settled first, then what it says of, and last whether
// what it says agrees:
//
//	event of another repository          unauthorized
//	another event, another ref           event_not_handled
//	a needed field is missing, no id     malformed
//	two fields, or field and policy,
//	contradict each other                unauthorized
package push
