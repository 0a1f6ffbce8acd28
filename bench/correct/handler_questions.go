package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

const panicAsks = "10 an hour; 4 requests whose handler panics (net/http recovers it), then 20 that do not. Admitted of these: 6 is right, the tokens of the 4 are spent as any are."

func panics(t *testing.T, c *column) []cell {
	if c.name == "realclientip" {
		return nil
	}
	cells := each(t, c, c.direct, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		n := afterPanics(open(perHour(10)), 20)
		return fmt.Sprint(n), verdictOn(n == 6, wrong)
	})
	return cells[:min(1, len(cells))]
}

// afterPanics sends 4 requests whose handler panics, then n others, one by one.
func afterPanics(m mounted, n int) int {
	h := m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("a handler's own")
		}
	}))
	for range 4 {
		send(h, request(client, "/panic"))
	}
	return admitted(h, n, func(int) *http.Request { return request(client, "/") })
}

const slotAsks = "A guard of 4 at once; 4 requests whose handler panics, then one at a time. Slots that are gone: 0 is right."

func slots(t *testing.T, c *column) []cell {
	var cells []cell
	for _, g := range c.guards {
		c.within(t, func(t *testing.T) {
			m := g.open(t, 4)
			afterPanics(m, 0)
			// As many as still get in while nobody leaves.
			in, leave := make(chan bool, 4), make(chan struct{})
			h := m(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in <- true; <-leave }))
			parallel(1, func(int) {
				done := make(chan struct{})
				for range 4 {
					go func() {
						if send(h, request(client, "/")).Code != http.StatusOK {
							in <- false
						}
						done <- struct{}{}
					}()
				}
				free := 0
				for range 4 {
					if <-in {
						free++
					}
				}
				close(leave)
				for range 4 {
					<-done
				}
				cells = append(cells, cell{g.as, fmt.Sprintf("%d of 4", 4-free), verdictOn(free == 4, wrong)})
			})
		})
	}
	return cells
}

const retryAsks = "2 in 3 s; they are spent, and 0.3 s later a third is refused. What Retry-After says, in seconds (RFC 9110: whole seconds, or an HTTP date), against what a request every 10 ms then finds: " +
	"at least as long and less than a second longer is right; longer is weak; shorter, unreadable or missing is wrong."

func retryAfter(t *testing.T, c *column) []cell {
	if c.name == "realclientip" {
		return nil
	}
	cells := each(t, c, c.direct, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		h := open(quota{n: 2, per: 3 * time.Second})(served)
		ask := func() *http.Response { return send(h, request(client, "/")).Result() }
		taken(3, func() bool { return ask().StatusCode == http.StatusOK })
		time.Sleep(300 * time.Millisecond)
		refused, start := ask(), time.Now()
		for ask().StatusCode != http.StatusOK {
			time.Sleep(10 * time.Millisecond)
		}
		wait := time.Since(start)
		field := refused.Header.Get("Retry-After")
		told := waitTold(field)
		if date, err := http.ParseTime(field); err == nil {
			told = date.Sub(start)
		}
		switch {
		case refused.StatusCode != http.StatusTooManyRequests:
			return fmt.Sprint(refused.StatusCode), wrong
		case field == "":
			return "none, " + seconds(wait), wrong
		case told == untold:
			return fmt.Sprintf("%q, %s", field, seconds(wait)), wrong
		}
		v := wrong
		switch {
		case told >= wait && told < wait+time.Second:
			v = right
		case told >= wait:
			v = weak
		}
		return fmt.Sprintf("%s, %s", seconds(told), seconds(wait)), v
	})
	return cells[:min(1, len(cells))]
}

// waitTold reads the seconds of a Retry-After field.
func waitTold(field string) time.Duration {
	n, err := strconv.ParseUint(field, 10, 32)
	if err != nil {
		return untold
	}
	return time.Duration(n) * time.Second
}

const chainAsks = "100 an hour on all paths and within it 1 an hour on one path, chained as the library has it. 51 requests to that path, of which 50 are refused; " +
	"how many of the wide limit did the refused ones spend: 0 is right. (Chained the other way round, what the wide limit refuses spends the narrow one.)"

func chained(t *testing.T, c *column) []cell {
	if c.chain == nil {
		return nil
	}
	var cells []cell
	c.within(t, func(t *testing.T) {
		p := c.chain(t, perHour(100), perHour(1))
		passed := admitted(p.h, 51, func(int) *http.Request { return request(client, "/narrow") })
		left := admitted(p.h, 200, func(int) *http.Request { return request(client, "/wide") })
		spent := 100 - passed - left
		cells = []cell{{p.as, fmt.Sprintf("%d of 50", spent), verdictOn(spent == 0 && passed == 1, wrong)}}
	})
	return cells
}

// fields are those that a stricter limiter outside has set: 1 of 3 left.
var fields = map[string]string{"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "4102444800"}

const headerAsks = "A stricter limiter outside has set X-RateLimit-Limit 3 and -Remaining 1 (and on a refusal Retry-After 86400); the limiter inside, of 10 an hour, admits, and then refuses. " +
	"What becomes of the fields that stand: kept is right, replaced by looser ones or doubled is wrong. A Retry-After that is replaced by a shorter one is weak, doubled (which no client can read) wrong."

func headers(t *testing.T, c *column) []cell {
	if c.name == "realclientip" {
		return nil
	}
	cells := each(t, c, c.direct, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		m := open(perHour(10))(served)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for name, value := range fields {
				w.Header().Set(name, value)
			}
			if r.URL.Path == "/refused" {
				w.Header().Set("Retry-After", "86400")
			}
			m.ServeHTTP(w, r)
		})
		ok := send(h, request(client, "/")).Result()
		taken(20, func() bool { return send(h, request(client, "/")).Code == http.StatusOK })
		no := send(h, request(client, "/refused")).Result()
		admit := standing(ok.Header, "X-RateLimit-Limit", "X-RateLimit-Remaining")
		wait := standing(no.Header, "Retry-After")
		v := verdictOn(admit == "kept" && wait != "doubled", wrong)
		if v == right && wait != "kept" {
			v = weak
		}
		return fmt.Sprintf("%s; wait %s", admit, wait), v
	})
	return cells[:min(1, len(cells))]
}

// standing says what became of fields that were set before.
func standing(h http.Header, names ...string) string {
	result := "kept"
	for _, name := range names {
		want := fields[name]
		if name == "Retry-After" {
			want = "86400"
		}
		switch got := h.Values(name); {
		case len(got) > 1:
			return "doubled"
		case strings.Join(got, "") != want:
			result = "replaced"
		}
	}
	return result
}
