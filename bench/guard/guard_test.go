package main

import (
	"testing"
	"time"
)

// capacity is what 8 sessions of 20 ms can do in a second.
const capacity = 400

// The claims that GUARD.md makes, by counts in virtual time.
func TestWhatTheDisciplinesDo(t *testing.T) {
	const length = 12 * time.Second
	all := map[string]scenario{}
	for _, s := range scenarios(length) {
		all[s.name] = s
	}
	for _, tt := range []struct {
		scenario, door, stream string  // "": all streams
		least, most            float64 // percent of the stream served; of all: percent of the capacity
	}{
		{"half load", "fair", "", 47, 52},
		{"twice the capacity", "semaphore", "", 0, 40},
		{"twice the capacity", "first come", "", 97, 103},
		{"twice the capacity", "fair", "", 97, 103},
		{"twice the capacity", "newest_first", "", 97, 103},
		{"twice the capacity", "controlled_delay", "", 97, 103},
		{"one address sends 80 %", "first come", "light", 40, 60},
		{"one address sends 80 %", "fair", "light", 99, 100},
		{"one address sends 80 %", "fair", "heavy", 30, 45},
		{"one address sends 80 %", "newest_first", "light", 99, 100},
		{"one address sends 80 %", "controlled_delay", "light", 97, 100},
		{"the networks of one IPv6 site send 80 %", "fair", "light", 99, 100},
		{"the networks of one IPv6 site send 80 %", "newest_first", "light", 99, 100},
		{"queue 2048, leavers unnoticed", "fair", "", 0, 40},
		{"queue 2048, leavers unnoticed", "newest_first", "", 97, 110},
		{"queue 2048, leavers unnoticed", "controlled_delay", "", 97, 103},
		{"queue 2048, leavers unnoticed, acquire_timeout 1 s", "fair", "", 97, 110},
		{"half the clients wait 150 ms", "fair", "", 0, 70},
		{"half the clients wait 150 ms", "fair, deadlines told", "", 95, 103},
		{"half the clients wait 150 ms", "newest_first", "", 97, 103},
		{"bursts, queue 1024", "controlled_delay", "", 25, 40},
		{"bursts, queue 1024", "fair", "", 50, 70},
		{"OCSP 50/s beside enrolment 800/s, one queue", "first come", "ocsp", 40, 60},
		{"the same, a lane for OCSP", "fair", "ocsp", 99, 100},
		{"enrolment hangs a third of the time, one queue", "fair", "ocsp", 30, 50},
		{"enrolment hangs a third of the time, a lane for OCSP", "fair", "ocsp", 60, 80},
		{"enrolment hangs a third of the time, a lane and a reserve of 1", "fair", "ocsp", 99, 100},
	} {
		t.Run(tt.scenario+"/"+tt.door+"/"+tt.stream, func(t *testing.T) {
			s, ok := all[tt.scenario]
			if !ok {
				t.Fatal("there is no such scenario")
			}
			r := resultOf(s.run(t, named(t, tt.door)), s.streamOf(tt.stream))
			got := r.percent()
			if tt.stream == "" {
				got = 100 * float64(r.served) / (capacity * length.Seconds())
			}
			if got < tt.least || got > tt.most {
				t.Errorf("%.1f %% were served, want %v to %v", got, tt.least, tt.most)
			}
		})
	}
}

// All but controlled_delay, whose timers follow what it measures, so that two
// events can meet in one nanosecond.
func TestARunGivesTheSameNumbersEachTime(t *testing.T) {
	for _, s := range scenarios(3 * time.Second)[:4] {
		for _, d := range doors()[:5] {
			first, second := s.run(t, d), s.run(t, d)
			for i := range first {
				if a, b := first[i], second[i]; a.served != b.served || a.after != b.after {
					t.Fatalf("%s, %s: client %d: served %v after %v, then %v after %v", s.name, d.name, i, a.served, a.after, b.served, b.after)
				}
			}
		}
	}
}

func named(t *testing.T, name string) door {
	for _, d := range doors() {
		if d.name == name {
			return d
		}
	}
	t.Fatalf("there is no door %q", name)
	return door{}
}

// streamOf returns a stream by its name, nil for "".
func (s *scenario) streamOf(name string) *stream {
	for i := range s.streams {
		if s.streams[i].name == name {
			return &s.streams[i]
		}
	}
	return nil
}
