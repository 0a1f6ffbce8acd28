package gate

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestServiceTimeIsLearned(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name        string
		samples     []time.Duration
		least, most time.Duration
	}{
		{"nothing seen", nil, 0, 0},
		{"one sample is all that is known", repeat(1, 20*ms), 20 * ms, 20 * ms},
		{"the first ones count alike", []time.Duration{10 * ms, 20 * ms, 60 * ms}, 30 * ms, 30 * ms},
		{"a step is followed", append(repeat(20, 20*ms), repeat(40, 200*ms)...), 190 * ms, 200 * ms},
		{"a step down too", append(repeat(20, 200*ms), repeat(40, 20*ms)...), 20 * ms, 22 * ms},
		{"eight that hung for half a minute do not carry it away",
			append(repeat(20, 20*ms), repeat(8, 30*time.Second)...), 20 * ms, 300 * ms},
		{"and are soon forgotten", append(append(repeat(20, 20*ms), repeat(8, 30*time.Second)...), repeat(40, 20*ms)...), 20 * ms, 22 * ms},
		{"a clock that stands still", repeat(20, 0), 1, 1},
		{"a clock that runs backwards", repeat(20, -time.Second), 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Times
			for _, d := range tt.samples {
				s.add(d)
			}
			if s.mean < tt.least || s.mean > tt.most {
				t.Errorf("learned %v, want %v to %v", s.mean, tt.least, tt.most)
			}
		})
	}
}

func repeat(n int, d time.Duration) []time.Duration {
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = d
	}
	return list
}

// Grants come in bunches of eight: the mean must be that of all, neither the long
// intervals nor the short ones alone.
func TestPaceOfAQueueIsThatOfItsGrants(t *testing.T) {
	var p pace
	now, mean := time.Duration(1), time.Duration(0)
	for range 500 {
		now += 20 * time.Millisecond
		for range 8 {
			p.moves(now)
			mean += p.interval / (500 * 8)
		}
	}
	if want := 20 * time.Millisecond / 8; mean < want*9/10 || mean > want*11/10 {
		t.Errorf("on average the interval is %v, want %v", mean, want)
	}
}

func TestWaitIsEstimatedFromThePaceAndFromAStall(t *testing.T) {
	p := pace{interval: 10 * time.Millisecond, moved: time.Second}
	for _, tt := range []struct {
		name  string
		ahead int
		now   time.Duration
		want  time.Duration
	}{
		{"the next", 0, time.Second, 10 * time.Millisecond},
		{"behind nine", 9, time.Second, 100 * time.Millisecond},
		{"an interval half over starts anew", 0, time.Second + 5*time.Millisecond, 10 * time.Millisecond},
		{"a stall of 3 s lasts as long again", 0, 4 * time.Second, 3 * time.Second},
		{"and those ahead come on top", 10, 4 * time.Second, 3*time.Second + 100*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := p.wait(tt.ahead, tt.now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// One random arrival after the other; the number who are served before it is
// counted by serving them.
func TestAheadIsTheNumberWhoAreServedBefore(t *testing.T) {
	for range 2000 {
		var q queue
		for range rand.IntN(20) {
			q.join(&waiter{}, Flow{byte(rand.IntN(4)), 7: byte(rand.IntN(7))}, false)
			if rand.IntN(4) == 0 { // turns move on
				f := q.first
				q.remove(q.next(false))
				q.served(f)
			}
		}
		if q.n == 0 {
			continue
		}
		key := Flow{byte(rand.IntN(5)), 7: byte(rand.IntN(7))}
		got := q.ahead(key)
		w := &waiter{}
		q.join(w, key, false)
		q.check(t)
		want := 0
		for p := q.next(false); p != w; p = q.next(false) {
			f := p.flow
			q.remove(p)
			q.served(f)
			want++
		}
		if got != want {
			t.Fatalf("%d are ahead, want %d", got, want)
		}
	}
}
