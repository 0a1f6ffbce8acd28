package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A timeline counts what the crowd sees and writes a line each second. It is
// safe for concurrent use.
type timeline struct {
	w     io.Writer
	begun time.Time

	mu     sync.Mutex // guards the following, and w
	second counts
	took   []time.Duration // of the second's answers
	marks  [replicas]bool  // who was degraded within the second
	phases []phase
	failed []error // the first few

	now     [replicas]bool // who is degraded
	looked  time.Time      // when that was seen
	outages int            // times that a first replica became so
	mixed   time.Duration  // while some were and others were not
}

// counts are how many requests ended in which way.
type counts struct{ admitted, throttled, shed, failed int }

// A phase is what happened between two events.
type phase struct {
	name     string
	begun    time.Time
	lasted   time.Duration
	admitted [abusers]int // of each abuser
}

func newTimeline(w io.Writer) *timeline {
	t := &timeline{w: w, begun: time.Now(), looked: time.Now()}
	fmt.Fprintln(w, " time   admitted  throttled  shed  failed      p99   counting for themselves")
	return t
}

// enter begins a phase with an event.
func (t *timeline) enter(name, event string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	t.phases = append(t.phases, phase{name: name, begun: time.Now()})
	fmt.Fprintf(t.w, "%5.1fs  -- %s\n", time.Since(t.begun).Seconds(), event)
}

// end ends the last phase. mu is held.
func (t *timeline) end() {
	if n := len(t.phases); n > 0 {
		t.phases[n-1].lasted = time.Since(t.phases[n-1].begun)
	}
}

// record counts one answer.
func (t *timeline) record(s seen) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, s.took)
	switch {
	case s.err != nil || s.status != http.StatusTooManyRequests && s.status != http.StatusServiceUnavailable && !s.admitted():
		t.second.failed++
		if len(t.failed) < 5 {
			t.failed = append(t.failed, cmp.Or(s.err, fmt.Errorf("a request was answered %d", s.status)))
		}
	case s.status == http.StatusTooManyRequests: // a tier had no token
		t.second.throttled++
	case s.status == http.StatusServiceUnavailable: // a guard had no slot
		t.second.shed++
	default:
		t.second.admitted++
	}
	// What is shed has taken its token before.
	if s.abuser >= 0 && (s.admitted() || s.status == http.StatusServiceUnavailable) {
		t.phases[len(t.phases)-1].admitted[s.abuser]++
	}
}

// tick writes a line each second until ctx is over.
func (t *timeline) tick(ctx context.Context) {
	for every := time.NewTicker(time.Second); ; {
		select {
		case <-every.C:
			t.line()
		case <-ctx.Done():
			every.Stop()
			return
		}
	}
}

func (t *timeline) line() {
	t.mu.Lock()
	defer t.mu.Unlock()
	var who []string
	for i, on := range t.marks {
		if on {
			who = append(who, fmt.Sprint(i+1))
		}
	}
	p99 := time.Duration(0)
	if n := len(t.took); n > 0 {
		slices.Sort(t.took)
		p99 = t.took[n*99/100]
	}
	fmt.Fprintf(t.w, "%5.1fs %9d %10d %5d %7d %6.1fms   %s\n", time.Since(t.begun).Seconds(),
		t.second.admitted, t.second.throttled, t.second.shed, t.second.failed, float64(p99)/1e6, strings.Join(who, " "))
	t.second, t.took, t.marks = counts{}, t.took[:0], t.now
}

// watch looks again and again at which replicas are degraded.
func (t *timeline) watch(ctx context.Context, all []*replica) {
	for pause(ctx, 40*time.Millisecond) {
		var now [replicas]bool
		for i, r := range all {
			on, err := r.degraded(ctx)
			if err != nil {
				if ctx.Err() == nil {
					t.fault(err)
				}
				return
			}
			now[i] = on
		}
		t.mark(now)
	}
}

func (t *timeline) mark(now [replicas]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	none := [replicas]bool{}
	if t.now == none && now != none {
		t.outages++
	}
	all := [replicas]bool{true, true, true}
	if last := t.now; last != now || last != none && last != all { // it was so, or became so, at some time between
		t.mixed += time.Since(t.looked)
	}
	t.now, t.looked = now, time.Now()
	for i, on := range now {
		t.marks[i] = t.marks[i] || on
	}
}

func (t *timeline) fault(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = append(t.failed, err)
}

// all reports whether all replicas are degraded, or none is.
func (t *timeline) all(degraded bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, on := range t.now {
		if on != degraded {
			return false
		}
	}
	return true
}
