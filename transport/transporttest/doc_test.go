package transporttest_test

import "testing"

func TestTheExampleHolds(t *testing.T) { aHangOfPaymentsOpensItsBreaker(t) }
