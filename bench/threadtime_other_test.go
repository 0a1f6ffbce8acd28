//go:build !linux

package bench

import "time"

// threadTime is the time of the wall: other systems do not tell a thread's.
func threadTime() time.Duration { return time.Since(base) }
