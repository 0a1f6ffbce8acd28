package bench

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/go-chi/httprate"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/maypok86/otter/v2"
	"github.com/mennanov/limiters"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir/store"
)

// Keyed is a limiter with a bucket for each key.
type Keyed struct {
	Name string
	// Bounded says that the limiter holds no more keys than it is told to,
	// whatever comes.
	Bounded bool
	// Open makes one that has room for bound keys. What it returns makes the
	// decider of one goroutine, which has scratch space of its own as a request
	// would.
	Open func(keys Keys, bound int, q Quota) func() Decide
}

// Decide asks for a token of key i.
type Decide func(i int) bool

// Quota is how many tokens a key has: so many a day, all of which may be spent
// at once.
type Quota int

const (
	Roomy Quota = 1_000_000_000 // a second, not a day: admits whatever a run asks
	Few   Quota = 10
	Spent Quota = 1 // refuses all but the first

	day = 24 * time.Hour
)

// perSecond is the rate at which tokens come back.
func (q Quota) perSecond() float64 {
	if q == Roomy {
		return float64(q)
	}
	return float64(q) / day.Seconds()
}

// pick returns the first if roomy, else the second.
func pick[T any](roomy bool, a, b T) T {
	if roomy {
		return a
	}
	return b
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// alike is a decider that needs no scratch space.
func alike(d Decide) func() Decide { return func() Decide { return d } }

// KeyedLimiters are all of them, ours first.
func KeyedLimiters() []Keyed {
	return []Keyed{
		{"weir", true, openMemory},
		{"xrate_lru", true, openLRU},
		{"xrate_otter", true, openOtter},
		{"xrate_map", false, openMap},
		{"httprate", false, openHTTPRate},
		{"ulule", false, openUlule},
		{"throttled", true, openThrottled},
		{"tollbooth", false, openTollbooth},
		{"go-limiter", false, openGoLimiter},
		{"mennanov", false, openMennanov},
	}
}

// openMemory is the memory store as the chain asks it: checks and states are
// the caller's.
func openMemory(keys Keys, bound int, q Quota) func() Decide {
	return MemoryTiers(keys, bound, q, "address")
}

// MemoryTiers is one decision of the memory store over several keyed scopes,
// and, for the name "", the one bucket that all share.
func MemoryTiers(keys Keys, bound int, q Quota, scopes ...string) func() Decide {
	m := store.NewMemory()
	limit := store.Limit{Rate: q.perSecond(), Burst: float64(q)}
	for _, scope := range scopes {
		m.Configure(store.Scope{Name: scope, MaxKeys: bound, Limit: limit})
	}
	return func() Decide {
		checks, states := make([]store.Check, len(scopes)), make([]store.State, 0, len(scopes))
		return func(i int) bool {
			for s, scope := range scopes {
				checks[s] = store.Check{Scope: scope, Limit: limit, Cost: 1}
				if scope != "" {
					checks[s].Key = keys.Key(i)
				}
			}
			v, _, _ := m.Admit(context.Background(), checks, states)
			return v.Admitted()
		}
	}
}

func newRate(q Quota) *rate.Limiter { return rate.NewLimiter(rate.Limit(q.perSecond()), int(q)) }

// openLRU is what programs write by hand. The cache has a lock of its own.
func openLRU(keys Keys, bound int, q Quota) func() Decide {
	cache := must(lru.New[store.Key, *rate.Limiter](bound))
	return alike(func(i int) bool {
		k := keys.Key(i)
		l, ok := cache.Get(k)
		if !ok {
			l = newRate(q)
			if was, ok, _ := cache.PeekOrAdd(k, l); ok {
				l = was
			}
		}
		return l.Allow()
	})
}

// openOtter is the same with the cache that does best under many goroutines.
func openOtter(keys Keys, bound int, q Quota) func() Decide {
	cache := otter.Must(&otter.Options[store.Key, *rate.Limiter]{MaximumSize: bound})
	return alike(func(i int) bool {
		k := keys.Key(i)
		l, ok := cache.GetIfPresent(k)
		if !ok {
			l, _ = cache.SetIfAbsent(k, newRate(q))
		}
		return l.Allow()
	})
}

// openMap is the map under a lock of the tutorials, which nothing ever leaves.
func openMap(keys Keys, _ int, q Quota) func() Decide {
	var mu sync.RWMutex
	m := map[store.Key]*rate.Limiter{}
	return alike(func(i int) bool {
		k := keys.Key(i)
		mu.RLock()
		l := m[k]
		mu.RUnlock()
		if l == nil {
			mu.Lock()
			if l = m[k]; l == nil {
				l = newRate(q)
				m[k] = l
			}
			mu.Unlock()
		}
		return l.Allow()
	})
}

// openHTTPRate leaves the header fields out, which are most of what a decision
// of httprate costs.
func openHTTPRate(keys Keys, _ int, q Quota) func() Decide {
	l := httprate.NewRateLimiter(int(q), day, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r := must(http.NewRequest("GET", "/", nil))
	return func() Decide {
		w := &NullWriter{H: http.Header{}}
		return func(i int) bool { return !l.OnLimit(w, r, keys.Text(i)) }
	}
}

func openUlule(keys Keys, _ int, q Quota) func() Decide {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: day, Limit: int64(q)})
	ctx := context.Background()
	return alike(func(i int) bool {
		c, err := l.Get(ctx, keys.Text(i))
		return err == nil && !c.Reached
	})
}

// newThrottled has an LRU with a bound, as in the README; without one the store
// keeps every key for ever.
func newThrottled(bound int, q Quota) *throttled.GCRARateLimiterCtx {
	quota := throttled.RateQuota{MaxRate: throttled.PerDay(int(q)), MaxBurst: int(q) - 1}
	if q == Roomy {
		quota.MaxRate = throttled.PerSec(int(q))
	}
	return must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(bound)), quota))
}

// openThrottled takes an error for an answer: under contention the store gives
// up after ten attempts, and its middleware then answers 500.
func openThrottled(keys Keys, bound int, q Quota) func() Decide {
	l := newThrottled(bound, q)
	ctx := context.Background()
	return alike(func(i int) bool {
		limited, _, err := l.RateLimitCtx(ctx, keys.Text(i), 1)
		return err != nil && q == Roomy || !limited && err == nil
	})
}

func openTollbooth(keys Keys, _ int, q Quota) func() Decide {
	l := tollbooth.NewLimiter(q.perSecond(), nil).SetBurst(int(q))
	return alike(func(i int) bool { return !l.LimitReached(keys.Text(i)) })
}

func openGoLimiter(keys Keys, _ int, q Quota) func() Decide {
	s := must(memorystore.New(&memorystore.Config{Tokens: uint64(q), Interval: day}))
	ctx := context.Background()
	return alike(func(i int) bool {
		_, _, _, ok, _ := s.Take(ctx, keys.Text(i))
		return ok
	})
}

func newMennanov(q Quota) *limiters.TokenBucket {
	return limiters.NewTokenBucket(int64(q), time.Duration(1e9/q.perSecond()),
		limiters.NewLockNoop(), limiters.NewTokenBucketInMemory(), limiters.NewSystemClock(), limiters.NewStdLogger())
}

// openMennanov is the registry of the example; its lock is a no-op in a single
// process.
func openMennanov(keys Keys, _ int, q Quota) func() Decide {
	registry, clock := limiters.NewRegistry(), limiters.NewSystemClock()
	made := func() any { return newMennanov(q) }
	ctx := context.Background()
	return alike(func(i int) bool {
		l := registry.GetOrCreate(keys.Text(i), made, day, clock.Now()).(*limiters.TokenBucket)
		_, err := l.Limit(ctx)
		return err == nil
	})
}
