//go:build !unix

package bench_test

import "time"

// cpu is not known here.
func cpu() (time.Duration, bool) { return 0, false }
