package sink

func runChild() (int, bool) { return 0, false }
