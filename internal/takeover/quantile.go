package takeover

import "time"

// slowest follows the 99th percentile of a series of durations without keeping
// them: each one above moves the estimate up 99 times as far as each one below
// moves it down, so that it rests where one in a hundred is above. It moves in
// proportion to itself, and so finds its place from anywhere within some hundred
// samples; a single slow answer moves it by a tenth.
type slowest struct{ estimate float64 }

const slowestStep = 0.1

func (s *slowest) add(d time.Duration) {
	switch x := float64(d); {
	case s.estimate == 0:
		s.estimate = max(x, float64(time.Microsecond))
	case x > s.estimate:
		s.estimate *= 1 + 0.99*slowestStep
	case x < s.estimate:
		s.estimate *= 1 - 0.01*slowestStep
	}
}

// atLeast lifts the estimate to d at once.
func (s *slowest) atLeast(d time.Duration) { s.estimate = max(s.estimate, float64(d)) }

func (s *slowest) p99() time.Duration { return time.Duration(s.estimate) }
