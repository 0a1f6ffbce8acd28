package main

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir/internal/gate"
)

// doors are the disciplines that are compared.
func doors() []door {
	told := gateDoor("fair, deadlines told", gate.Fair, true)
	told.told = true
	return []door{
		{name: "semaphore", open: func(s *scenario) func(context.Context, *client) (func(), error) {
			sem := semaphore.NewWeighted(int64(s.sessions))
			return func(ctx context.Context, _ *client) (func(), error) {
				ctx, cancel := context.WithTimeout(ctx, whole(s.timeout))
				defer cancel()
				if err := sem.Acquire(ctx, 1); err != nil {
					return nil, err
				}
				return func() { sem.Release(1) }, nil
			}
		}},
		gateDoor("first come", gate.Fair, false),
		gateDoor("fair", gate.Fair, true),
		told,
		gateDoor("newest_first", gate.NewestFirst, true),
		gateDoor("controlled_delay", gate.ControlledDelay, true),
	}
}

// crowd is 200 addresses that offer twice what 8 sessions of 20 ms can do.
func crowd() stream {
	return stream{name: "all", rate: 800, flows: 200, patience: 2 * time.Second, service: 20 * time.Millisecond}
}

// scenarios are of the given length, a multiple of three.
func scenarios(length time.Duration) []scenario {
	one := func(name string, change func(*scenario)) scenario {
		s := scenario{name: name, sessions: 8, queue: 64, timeout: 5 * time.Second, streams: []stream{crowd()}, length: length}
		change(&s)
		return s
	}
	impatient := func(s *scenario) {
		patient, not := crowd(), crowd()
		patient.name, patient.rate = "patient", 400
		not.name, not.rate, not.patience, not.first = "150 ms", 400, 150*time.Millisecond, 200
		s.streams = []stream{patient, not}
	}
	revocation := func(lane string, reserve int, hangs bool) func(*scenario) {
		return func(s *scenario) {
			enrol, ocsp := crowd(), crowd()
			enrol.name, enrol.hangs = "enrol", hangs
			ocsp.name, ocsp.rate, ocsp.first, ocsp.lane = "ocsp", 50, 200, lane
			s.streams, s.reserve = []stream{enrol, ocsp}, reserve
		}
	}
	return []scenario{
		one("half load", func(s *scenario) { s.streams[0].rate = 200 }),
		one("twice the capacity", func(*scenario) {}),
		one("one address sends 80 %", func(s *scenario) {
			light, heavy := crowd(), crowd()
			light.name, light.rate, light.flows = "light", 160, 199
			heavy.name, heavy.rate, heavy.flows, heavy.first = "heavy", 640, 1, 199
			s.streams = []stream{light, heavy}
		}),
		one("the networks of one IPv6 site send 80 %", func(s *scenario) {
			light, site := crowd(), crowd()
			light.name, light.rate, light.flows = "light", 160, 199
			site.name, site.rate, site.flows, site.first, site.site = "site", 640, 5000, 199, true
			s.streams = []stream{light, site}
		}),
		one("queue 2048, leavers unnoticed", func(s *scenario) { s.queue, s.streams[0].unseen = 2048, true }),
		one("queue 2048, leavers unnoticed, acquire_timeout 1 s", func(s *scenario) {
			s.queue, s.streams[0].unseen, s.timeout = 2048, true, time.Second
		}),
		one("queue 2048, leavers noticed", func(s *scenario) { s.queue = 2048 }),
		one("backend 10 times slower", func(s *scenario) { s.streams[0].service, s.streams[0].rate = 200*time.Millisecond, 80 }),
		one("half the clients wait 150 ms", impatient),
		one("bursts, 2 s of 5 times the mean of 400/s", func(s *scenario) {
			s.streams[0].rate, s.streams[0].burst = 400, 2*time.Second
		}),
		one("bursts, queue 1024", func(s *scenario) {
			s.streams[0].rate, s.streams[0].burst, s.queue = 400, 2*time.Second, 1024
		}),
		one("OCSP 50/s beside enrolment 800/s, one queue", revocation("", 0, false)),
		one("the same, a lane for OCSP", revocation("revocation", 0, false)),
		one("the same, a lane and a reserve of 1", revocation("revocation", 1, false)),
		one("enrolment hangs a third of the time, one queue", revocation("", 0, true)),
		one("enrolment hangs a third of the time, a lane for OCSP", revocation("revocation", 0, true)),
		one("enrolment hangs a third of the time, a lane and a reserve of 1", revocation("revocation", 1, true)),
	}
}
