package redis

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

var (
	//go:embed lock.lua
	lockSource string
	//go:embed begin.lua
	beginSource string
	//go:embed settle.lua
	settleSource string
	//go:embed unlock.lua
	unlockSource string
	//go:embed index.lua
	indexSource string
	//go:embed locks.lua
	locksSource string
)

// lockScripts are one script for each verb of [store.Locker], and one for the
// index where it has a slot of its own.
type lockScripts struct{ begin, settle, unlock, index, locks script }

func newLockScripts(common string) lockScripts {
	of := func(source string) script { return newScript(common + source) }
	return lockScripts{of(beginSource), of(settleSource), of(unlockSource), of(indexSource), of(locksSource)}
}

var theLockScripts = newLockScripts(lockSource)

// What begin.lua is asked to do.
var reserveWords = map[store.Reserve]string{
	store.ReserveAfterFailure: "after", store.ReserveAlways: "always", store.ReserveNever: "look",
}

// What settle.lua is told.
var outcomeWords = map[store.Outcome]string{
	store.Ignored: "ignored", store.Failed: "failed", store.Succeeded: "succeeded",
}

// What lock.lua is told of an account.
const (
	flagAdmitted = 1 << iota
	flagOwnOnly
)

// lockPart is the counters of an attempt whose keys share a slot: all of them, or
// those of one Key.
type lockPart struct {
	index    []int // where they stand in the attempt
	counters []store.Counter
	account  *store.Account // nil: it is in another part, or there is none

	reply lockReply
	err   error
}

func (c *call) integer(i int64) {
	c.buf = strconv.AppendInt(c.buf, i, 10)
	c.end()
}

func (c *call) hex(keys ...store.Key) {
	for _, k := range keys {
		c.buf = hex.AppendEncode(c.buf, k[:])
	}
	c.end()
}

// lockKey names a key of the auth lock.
func (c *call) lockKey(k keyspace, kind byte, scope string, key, caller store.Key) {
	c.buf = k.appendLock(c.buf, kind, scope, key, caller)
	c.end()
	c.keys++
}

func (c *call) indexKey(k keyspace, scope string) {
	c.buf = k.appendIndex(c.buf, scope)
	c.end()
	c.keys++
}

// policy writes failures, window and lockout.
func (c *call) policy(l store.LockLimit) {
	c.integer(int64(l.Max))
	c.integer(micros(l.Window))
	c.integer(micros(l.Lockout))
}

// flag writes 1 or 0.
func (c *call) flag(on bool) {
	if on {
		c.text("1")
	} else {
		c.text("0")
	}
}

// micros rounds up: a lock holds no shorter than it says.
func micros(d time.Duration) int64 { return int64(math.Ceil(float64(d) / 1e3)) }

// attemptCall asks begin.lua or settle.lua about a part. before is what the counter
// before its first one has counted.
func (k keyspace) attemptCall(p *lockPart, ticket uint64, word string, before int) *call {
	c := newCall(2*len(p.counters) + 4)
	for i := range p.counters {
		c.lockKey(k, kindLock, p.counters[i].Scope, p.counters[i].Key, store.Key{})
	}
	if acc := p.account; acc != nil {
		c.lockKey(k, kindLock, acc.Scope, acc.Key, store.Key{})
		c.lockKey(k, kindLock, acc.Scope, acc.Key, acc.Caller)
		c.lockKey(k, kindKnown, acc.Scope, acc.Key, store.Key{})
	}
	if !k.slotPerKey {
		for i := range p.counters {
			c.indexKey(k, p.counters[i].Scope)
		}
		if p.account != nil {
			c.indexKey(k, p.account.Scope)
		}
	}
	c.text(ticketText(ticket))
	c.text(word)
	c.integer(int64(len(p.counters)))
	c.flag(p.account != nil)
	c.integer(int64(before))
	for i := range p.counters {
		c.policy(p.counters[i].Limit)
		c.flag(p.counters[i].First)
		c.hex(p.counters[i].Key)
	}
	if acc := p.account; acc != nil {
		c.policy(acc.Limit)
		c.hex(acc.Key)
		c.hex(acc.Caller)
		c.integer(micros(acc.Remember))
		flags := 0
		if acc.Admitted {
			flags |= flagAdmitted
		}
		if acc.OwnOnly {
			flags |= flagOwnOnly
		}
		c.integer(int64(flags))
	}
	return c
}

// ticketText is a ticket as the scripts compare it: Lua's numbers do not hold 64
// bits. All have one width. Nothing has the ticket 0.
func ticketText(ticket uint64) string { return fmt.Sprintf("%016x", ticket) }

// lockReply is what begin.lua or settle.lua answers.
type lockReply struct {
	v        store.LockVerdict // its indices are those of the part
	reserved bool              // by begin.lua
	last     int               // by settle.lua: what the last counter has counted
	counts   []int             // by settle.lua: of those whose lock it has started
}

// readLock reads the reply about a part.
func readLock(text string, p *lockPart, settled bool) (r lockReply, err error) {
	in := reader{rest: text}
	n := len(p.counters)
	if p.account != nil {
		n++
	}
	blamed, wait, known := in.whole(), in.whole(), in.whole()
	a, b, c := in.whole(), in.whole(), in.whole()
	r.v = store.LockVerdict{Refused: int(blamed) - 1, Known: known == 1}
	if blamed > 0 {
		r.v.RetryAfter = duration(float64(wait))
	}
	if settled {
		r.v.Failures, r.v.Started, r.last = int(a), uint32(b), int(c)
		for i := range n {
			if r.v.Started&(1<<i) != 0 {
				r.counts = append(r.counts, int(in.whole()))
			}
		}
	} else {
		r.v.Full, r.reserved = a == 1, b == 1
	}
	if in.bad || in.rest != "" || blamed > int64(n) || blamed > 0 && wait < 1 || settled && b >= 1<<n || (settled && (a > math.MaxInt32 || c > math.MaxInt32)) {
		return lockReply{}, fmt.Errorf("no answer of our script: %.40q", text)
	}
	return r, nil
}

// whole takes a whole number that is not negative off a reply.
func (r *reader) whole() int64 {
	word, rest, _ := strings.Cut(r.rest, " ")
	r.rest = rest
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 {
		r.bad = true
		return 0
	}
	return n
}

// readLocks reads the reply of locks.lua, appending to dst.
func readLocks(text string, dst []store.Lock) ([]store.Lock, error) {
	out := dst
	for rest := text; rest != ""; {
		var one string
		one, rest, _ = strings.Cut(rest, " ")
		id, more, _ := strings.Cut(one, ":")
		count, left, _ := strings.Cut(more, ",")
		var k store.Lock
		raw, err := hex.DecodeString(id)
		failures, errCount := strconv.ParseInt(count, 10, 64)
		us, errLeft := strconv.ParseFloat(left, 64)
		if err != nil || errCount != nil || errLeft != nil || len(raw) != len(k.Key) && len(raw) != 2*len(k.Key) || failures < 0 || !(us >= 0) {
			return dst, fmt.Errorf("no answer of our script: %.40q", text)
		}
		copy(k.Key[:], raw)
		copy(k.Caller[:], raw[len(k.Key):])
		k.Failures, k.Left = int(failures), duration(us)
		out = append(out, k)
	}
	return out, nil
}
