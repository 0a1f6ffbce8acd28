package takeover

import (
	"time"

	"github.com/weir-go/weir/store"
)

// refusal answers a call from what the remote store has refused, if it refused one
// of the checks and the refusal still holds. Nothing is spent; what is counted
// Always is put aside for the next call, unless the caller only looks. The wait of
// a check that the remote store was not asked about may be longer than what is
// told, for it is taken from what was last seen.
func (s *Store) refusal(checks []store.Check, dst []store.State, now int64, look bool) (v store.Verdict, states []store.State, ok bool) {
	for i := range checks {
		c := &checks[i]
		if c.Shadow {
			continue
		}
		sh, id := s.seen.of(c)
		if e, known := sh.known.Get(id); known && e.refuses(c, now) {
			if wait := waitUntil(now, e.freeFor(c)); !ok || wait > v.RetryAfter {
				v, ok = store.Verdict{Refused: i, RetryAfter: wait}, true
			}
		}
		sh.mu.Unlock()
	}
	if !ok {
		return v, dst, false
	}
	if !look {
		s.arrivals.add(s, checks)
	}
	for i := range checks {
		c := &checks[i]
		st := store.State{Tokens: max(0, c.Limit.Burst)}
		if c.Window > 0 {
			st.Reset = time.Duration(endOf(c, now) - now)
		}
		sh, id := s.seen.of(c)
		if e, known := sh.known.Peek(id); known && (e.window > 0) == (c.Window > 0) {
			st.Tokens = max(0, e.level(now, c.Limit))
			if c.Window > 0 && now < e.ends {
				st.Reset = time.Duration(e.ends - now)
			}
			if e.refuses(c, now) {
				st.Wait = waitUntil(now, e.freeFor(c))
			}
		}
		sh.mu.Unlock()
		if c.Window > 0 {
			st.Tokens = max(0, st.Tokens-s.arrivals.of(c))
		}
		dst = append(dst, st)
	}
	return v, dst, true
}

func waitUntil(now, free int64) time.Duration {
	if free >= int64(store.Never) {
		return store.Never
	}
	return time.Duration(free - now)
}
