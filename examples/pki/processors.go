package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// processorTime is what this process, its HSM included, has used of processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runDelay is for how long threads of this process could have run and had no
// processor, all together. Beside processorTime it tells what the machine adds to
// each answer, whatever the guard does. 0 where the system does not say it; see
// sched-stats in the documentation of Linux.
func runDelay() (sum time.Duration) {
	threads, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		var ran, waited, slices int64
		if _, err := fmt.Sscan(string(text), &ran, &waited, &slices); err == nil {
			sum += time.Duration(waited)
		}
	}
	return sum
}
