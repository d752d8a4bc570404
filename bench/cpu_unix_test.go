//go:build unix

package bench_test

import (
	"syscall"
	"time"
)

// cpu is what the process has used of its processors.
func cpu() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
