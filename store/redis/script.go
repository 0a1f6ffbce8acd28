package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

var (
	//go:embed admit.lua
	admitSource string
	//go:embed refund.lua
	refundSource string

	admitScript  = newScript(admitSource)
	refundScript = newScript(refundSource)
)

// What admit.lua is asked to do.
const (
	modeAdmit = "admit"
	modeStage = "stage"
	modePeek  = "peek"
	modeCount = "count"
)

// What admit.lua is told of a check.
const (
	flagShadow = 1 << iota
	flagAlways
	flagNever // a cost or burst that is no number: never there
	priorStep // what the number of the earlier check is multiplied by
)

// script is a Lua script and the digest that the server knows it by.
type script struct{ source, digest string }

// The digest is a name that Redis chose, not a protection.
func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// call collects the keys and arguments of one run of a script. Everything is
// written into one buffer, which becomes one string that all of them share.
type call struct {
	buf  []byte
	ends []int
	keys int
}

func newCall(checks int) *call {
	return &call{buf: make([]byte, 0, 128*checks+16), ends: make([]int, 0, 5*checks+1)}
}

func (c *call) end() { c.ends = append(c.ends, len(c.buf)) }

func (c *call) text(s string) {
	c.buf = append(c.buf, s...)
	c.end()
}

// number writes the shortest text that reads back as f.
func (c *call) number(f float64) {
	c.buf = strconv.AppendFloat(c.buf, f, 'g', -1, 64)
	c.end()
}

func (c *call) key(k keyspace, check *store.Check) {
	c.buf = k.append(c.buf, check)
	c.end()
	c.keys++
}

// args returns the arguments of EVALSHA or EVAL.
func (c *call) args(command, script string) []any {
	all := string(c.buf)
	texts := make([]string, len(c.ends))
	args := make([]any, 3, 3+len(c.ends))
	args[0], args[1], args[2] = command, script, c.keys
	from := 0
	for i, end := range c.ends {
		texts[i] = all[from:end]
		args = append(args, &texts[i])
		from = end
	}
	return args
}

// admitCall asks admit.lua about the checks.
func (k keyspace) admitCall(mode string, checks []store.Check) *call {
	c := newCall(len(checks))
	for i := range checks {
		c.key(k, &checks[i])
	}
	c.text(mode)
	for i := range checks {
		check := &checks[i]
		rate, burst, cost, flags := sane(check)
		if check.Shadow {
			flags |= flagShadow
		}
		if check.Always && check.Window > 0 && check.Cost >= 0 && !math.IsInf(check.Cost, 1) {
			flags |= flagAlways
		}
		flags += priorStep * prior(checks, i)
		c.number(rate)
		c.number(burst)
		c.number(cost)
		c.buf = strconv.AppendInt(c.buf, int64(flags), 10)
		c.end()
	}
	return c
}

// prior returns 1 + the index of the last check before i that asks the same
// bucket, or 0.
func prior(checks []store.Check, i int) int {
	for j := i - 1; j >= 0; j-- {
		if sameBucket(&checks[j], &checks[i]) {
			return j + 1
		}
	}
	return 0
}

func sameBucket(a, b *store.Check) bool {
	return a.Scope == b.Scope && a.Key == b.Key && (a.Window > 0) == (b.Window > 0)
}

// sane returns a check's numbers as Lua can compare them. What is no number, or
// a negative cost, is never there; a rate that is none refills nothing.
func sane(c *store.Check) (rate, burst, cost float64, flags int) {
	burst, cost = min(c.Limit.Burst, math.MaxFloat64), c.Cost
	if !(cost >= 0) || math.IsInf(cost, 1) {
		flags, cost = flagNever, 0
	}
	if !(burst >= 0) {
		burst = 0
		flags |= flagNever
	}
	if c.Window > 0 {
		return -float64(c.Window) / 1e3, burst, cost, flags
	}
	if rate = min(c.Limit.Rate, math.MaxFloat64); !(rate > 0) {
		rate = 0
	}
	return rate, burst, cost, flags
}

// probeCall asks what every call of admit.lua asks, of a bucket nobody else has.
func (k keyspace) probeCall() *call { return probeCallOf(k.probe()) }

func probeCallOf(key string) *call {
	c := newCall(1)
	c.text(key)
	c.keys++
	c.text(modeAdmit)
	for _, f := range []float64{1e6, 1e6, 1, 0} {
		c.number(f)
	}
	return c
}

// given is one thing to give back: a bucket's cost or, counted at the server's
// time at, a window's.
type given struct {
	check *store.Check
	at    float64
}

// refundCall asks refund.lua to give back.
func (k keyspace) refundCall(back []given) *call {
	c := newCall(len(back))
	for _, g := range back {
		c.key(k, g.check)
	}
	for _, g := range back {
		if g.check.Window > 0 {
			c.number(float64(g.check.Window) / 1e3)
			c.number(g.at)
		} else {
			c.number(0)
			c.number(min(g.check.Limit.Burst, math.MaxFloat64))
		}
		c.number(min(g.check.Cost, math.MaxFloat64))
	}
	return c
}

// decision reads the reply of admit.lua about the checks, appending their
// states. at is the server's time, where the mode tells it.
func decision(reply string, checks []store.Check, dst []store.State) (v store.Verdict, states []store.State, at float64, err error) {
	r := reader{rest: reply}
	blamed, _, _ := r.next()
	states = dst
	for i := range checks {
		tokens, wait, reset := r.next()
		// Fourteen digits may round above the burst.
		if burst := checks[i].Limit.Burst; !(tokens <= burst) {
			tokens = burst
		}
		if !(tokens >= 0) {
			tokens = 0
		}
		states = append(states, store.State{Tokens: tokens, Wait: duration(wait), Reset: duration(reset)})
	}
	if r.rest != "" {
		at, _, _ = r.next()
	}
	if r.bad || r.rest != "" || !(blamed >= 0 && blamed <= float64(len(checks))) {
		return store.Verdict{}, dst, 0, fmt.Errorf("no answer of our script: %.40q", reply)
	}
	v.Refused = int(blamed) - 1
	if !v.Admitted() {
		v.RetryAfter = states[len(dst)+v.Refused].Wait
	}
	return v, states, at, nil
}

// duration turns microseconds into a Duration, rounded up: who comes back too
// early is refused again. The script keeps what is not never below 146 years.
func duration(us float64) time.Duration {
	if us < 0 || us >= math.MaxInt64/1e3 {
		return store.Never
	}
	return time.Duration(math.Ceil(us)) * time.Microsecond
}

// reader takes words off a reply.
type reader struct {
	rest string
	bad  bool
}

// next reads a number, or three with commas between them.
func (r *reader) next() (a, b, c float64) {
	word, rest, _ := strings.Cut(r.rest, " ")
	r.rest = rest
	first, more, three := strings.Cut(word, ",")
	a = r.number(first)
	if three {
		second, third, _ := strings.Cut(more, ",")
		b, c = r.number(second), r.number(third)
	}
	return a, b, c
}

func (r *reader) number(word string) float64 {
	f, err := strconv.ParseFloat(word, 64)
	if err != nil || math.IsNaN(f) {
		r.bad = true
		return 0
	}
	return f
}

// once is a command that go-redis must not send a second time on its own: a call
// that failed on the wire may have run.
type once struct{ *goredis.Cmd }

// NoRetry keeps go-redis from sending it again, whatever the client's settings.
func (once) NoRetry() bool { return true }
