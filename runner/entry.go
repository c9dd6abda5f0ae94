package runner

// An Entry is proof that [Init] was called at the start of the process. The
// zero Entry is refused by [Open].
type Entry struct{ called bool }
