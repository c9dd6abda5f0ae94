package forgesim

// Operations are all that the simulated API can do, for tests of coverage.
func Operations() []string {
	var all []string
	for _, r := range operations() {
		all = append(all, r.operation)
	}
	return all
}
