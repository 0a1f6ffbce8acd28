//go:build !linux

package bench

import "time"

// ThreadTime is the time of the wall: other systems do not tell a thread's.
func ThreadTime() time.Duration { return time.Since(base) }

// ProcessTime is the time of the wall here, too.
func ProcessTime() time.Duration { return time.Since(base) }
