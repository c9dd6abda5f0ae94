package sourcedb_test

const victimEnv = "FENCEPOST_TEST_SOURCEDB_VICTIM"

func victim(string) int { return 2 }
