package redis

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

func TestReplies(t *testing.T) {
	checks := []store.Check{ask("a", "k", 1, 2.0/3, 1), within(time.Minute, ask("b", "k", 0, 5, 1))}
	for _, tt := range []struct {
		name, reply string
		want        store.Verdict
		states      [2]store.State
		at          float64
	}{
		{"admitted", "0 0.5 4,0,30000000", store.Verdict{Refused: -1}, [2]store.State{{Tokens: 0.5}, {Tokens: 4, Reset: 30 * time.Second}}, 0},
		{"refused", "2 0.5,1500000,0 0,2.5,2.5", store.Verdict{Refused: 1, RetryAfter: 3 * time.Microsecond},
			[2]store.State{{Tokens: 0.5, Wait: 1500 * time.Millisecond}, {Wait: 3 * time.Microsecond, Reset: 3 * time.Microsecond}}, 0},
		{"never", "1 0,-1,0 5,0,1", store.Verdict{Refused: 0, RetryAfter: store.Never}, [2]store.State{{Wait: store.Never}, {Tokens: 5, Reset: time.Microsecond}}, 0},
		{"fourteen digits above the burst", "0 0.66666666666667 5,0,1", store.Verdict{Refused: -1},
			[2]store.State{{Tokens: 2.0 / 3}, {Tokens: 5, Reset: time.Microsecond}}, 0},
		{"a stage", "0 0.5 4,0,1 1796019368637122", store.Verdict{Refused: -1}, [2]store.State{{Tokens: 0.5}, {Tokens: 4, Reset: time.Microsecond}}, 1796019368637122},
	} {
		v, states, at, err := decision(tt.reply, checks, []store.State{{Tokens: 9}})
		if err != nil || v != tt.want || len(states) != 3 || states[0].Tokens != 9 || [2]store.State(states[1:]) != tt.states || at != tt.at {
			t.Errorf("%s: %+v %+v %v %v", tt.name, v, states, at, err)
		}
	}
	for _, reply := range []string{"", "0", "0 1", "0 1 x", "x 1 2", "-1 1 2", "3 1 2", "0.5e9 1 2", "nan 1 2", "0 1 2 3 4", "0 1,2 2", "0 1,,3 2", "0  1 2", "OK", "0 1 2 x"} {
		dst := []store.State{{Tokens: 9}}
		if v, states, _, err := decision(reply, checks, dst); err == nil || v != (store.Verdict{}) || len(states) != 1 {
			t.Errorf("%q is read as %+v %+v", reply, v, states)
		}
	}
}

// FuzzReply: no text panics, and what is taken is sound.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"0 1 2", "1 0,5,0 2", "2 1 0,-1,7", "0 1 2 1796019368637122", "0 1e400 2", "0 -1,1e300,-1e300 inf"} {
		f.Add(s)
	}
	checks := []store.Check{ask("a", "k", 1, 10, 1), within(time.Minute, ask("b", "k", 0, 5, 1))}
	f.Fuzz(func(t *testing.T, reply string) {
		v, states, _, err := decision(reply, checks, nil)
		if err != nil {
			return
		}
		if len(states) != 2 || v.Refused < -1 || v.Refused > 1 || v.RetryAfter < 0 {
			t.Fatalf("%q: %+v %+v", reply, v, states)
		}
		for i, st := range states {
			if !(st.Tokens >= 0 && st.Tokens <= checks[i].Limit.Burst) || st.Wait < 0 || st.Reset < 0 {
				t.Fatalf("%q: %+v", reply, st)
			}
		}
	})
}

// A number reaches the server as it is, or as something that is never there.
func TestNumbersThatLuaCannotCompare(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, tt := range []struct {
		name              string
		rate, burst, cost float64
		want              [3]float64
		never             bool
	}{
		{"plain", 1.5, 10, 2, [3]float64{1.5, 10, 2}, false},
		{"no rate", nan, 10, 2, [3]float64{0, 10, 2}, false},
		{"a negative rate", -1, 10, 2, [3]float64{0, 10, 2}, false},
		{"a rate without end", inf, 10, 2, [3]float64{math.MaxFloat64, 10, 2}, false},
		{"no burst", 1, nan, 2, [3]float64{1, 0, 2}, true},
		{"a negative burst", 1, -1, 0, [3]float64{1, 0, 0}, true},
		{"a burst without end", 1, inf, 2, [3]float64{1, math.MaxFloat64, 2}, false},
		{"no cost", 1, 10, nan, [3]float64{1, 10, 0}, true},
		{"a negative cost", 1, 10, -1, [3]float64{1, 10, 0}, true},
		{"a cost without end", 1, 10, inf, [3]float64{1, 10, 0}, true},
	} {
		c := ask("x", "k", tt.rate, tt.burst, tt.cost)
		rate, burst, cost, flags := sane(&c)
		if got := [3]float64{rate, burst, cost}; got != tt.want || (flags == flagNever) != tt.never {
			t.Errorf("%s: %v %b, want %v, never %v", tt.name, got, flags, tt.want, tt.never)
		}
	}
}

// The scripts keep to what all servers have: no library beside Lua's own, no
// shebang, no other command, no global.
func TestScriptsKeepToPlainLua(t *testing.T) {
	allowed := strings.Fields("TIME MGET SET DEL ZADD ZREM ZREVRANGEBYSCORE ZREMRANGEBYSCORE ZREMRANGEBYRANK PEXPIRE")
	for _, source := range []string{admitSource, refundSource, lockSource, beginSource, settleSource, unlockSource, indexSource, locksSource, agreeSource} {
		for _, word := range []string{"#!", "cjson", "cmsgpack", "struct.", "bit.", "table.unpack", "maxn", "goto ", "redis.pcall", "redis.replicate", "redis.error", "redis.status", "redis.log"} {
			if strings.Contains(source, word) {
				t.Errorf("a script says %q", word)
			}
		}
		for rest := source; ; {
			_, after, ok := strings.Cut(rest, "redis.call('")
			if !ok {
				break
			}
			command, _, _ := strings.Cut(after, "'")
			if !slices.Contains(allowed, command) {
				t.Errorf("a script calls %s", command)
			}
			rest = after
		}
	}
}
