package runner_test

const controllerEnv = "FENCEPOST_TEST_CONTROLLER"

func controller(role string) int { return 0 }
