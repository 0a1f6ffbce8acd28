package quota

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// told is one response, read as a client reads it.
type told struct {
	limit, remaining, reset int64
	service                 sfItem
	policies                []sfItem
}

// read parses the fields with the strict parser. What is no valid field, has a
// parameter too many or one of another type fails the test.
func read(t testing.TB, header http.Header) (r told) {
	t.Helper()
	whole := func(key string) int64 {
		require.Len(t, header[key], 1, key)
		n, err := strconv.ParseUint(header[key][0], 10, 63)
		require.NoError(t, err, key)
		require.Equal(t, header[key][0], strconv.FormatUint(n, 10), "canonical")
		return int64(n)
	}
	list := func(key, number, span string) []sfItem {
		items, err := parseList(header[key]...)
		require.NoError(t, err, "%s: %q", key, header[key])
		require.NotEmpty(t, items)
		for _, it := range items {
			require.IsType(t, "", it.Value, "a policy's name is a String")
			require.IsType(t, int64(0), it.Params[number], "%s is required", number)
			require.GreaterOrEqual(t, it.Params[number], int64(0))
			allowed := 1
			if s, ok := it.Params[span]; ok {
				require.IsType(t, int64(0), s)
				require.Positive(t, s, "%s is never 0", span)
				require.LessOrEqual(t, s, int64(math.MaxUint32))
				allowed = 2
			}
			require.Len(t, it.Params, allowed, "nothing else: %v", it)
		}
		return items
	}
	r.limit, r.remaining, r.reset = whole(keyLimit), whole(keyRemaining), whole(keyReset)
	limits := list(keyRateLimit, "r", "t")
	require.Len(t, limits, 1, "one service limit, the tightest")
	r.service, r.policies = limits[0], list(keyPolicy, "q", "w")
	return r
}

// means checks what the fields say of q against what is in q, for a q with
// numbers that make sense.
func (r told) means(t testing.TB, q Quota, now time.Time) {
	t.Helper()
	window, reset := q.Window.Seconds(), q.Reset.Seconds()
	if q.Rate > 0 {
		window, reset = q.Limit/q.Rate, (q.Limit-q.Remaining)/q.Rate
	}
	require.Equal(t, int64(math.Floor(q.Limit)), r.limit)
	require.Equal(t, int64(math.Floor(q.Remaining)), r.remaining)
	require.LessOrEqual(t, r.remaining, r.limit)
	require.Greater(t, r.reset, now.Unix())
	roundedUp(t, float64(now.Nanosecond())/1e9+min(max(reset, 1e-9), maxSeconds), r.reset-now.Unix())

	require.Equal(t, q.Name, decoded(t, r.service))
	require.Equal(t, r.remaining, r.service.Params["r"])
	effective, known := r.service.Params["t"].(int64)
	require.Equal(t, q.Rate > 0 || q.Window > 0 || q.Reset > 0, known, "t is there if it can be known")
	switch {
	case q.Rate > 0 && r.remaining == 0:
		roundedUp(t, max(1e-9, (1-q.Remaining)/q.Rate), effective)
	case q.Rate > 0:
		roundedUp(t, float64(r.remaining)/q.Rate, effective)
		if effective < maxSeconds {
			require.LessOrEqual(t, float64(r.remaining)/float64(effective), q.Rate*(1+1e-9), "never an invitation to more than the rate")
		}
	case known:
		roundedUp(t, max(1e-9, reset), effective)
	}
	for _, p := range r.policies {
		if decoded(t, p) != q.Name {
			continue
		}
		require.Equal(t, r.limit, p.Params["q"])
		w, known := p.Params["w"].(int64)
		require.Equal(t, window > 0, known, "w is there if the window is known")
		if known {
			roundedUp(t, window, w)
		}
		return
	}
	t.Fatalf("no policy is named %q: %v", q.Name, r.policies)
}

// roundedUp claims that got is x rounded up, give or take the nanosecond to
// which spans are rounded; or that it is the bound.
func roundedUp(t testing.TB, x float64, got int64) {
	t.Helper()
	if got == maxSeconds && x >= maxSeconds {
		return
	}
	off := 2e-9 + x*1e-12
	require.GreaterOrEqual(t, float64(got), x-off, "%v must not be rounded down", x)
	require.Less(t, float64(got), x+1+off, "%v must not be rounded up further", x)
}

func decoded(t testing.TB, it sfItem) string {
	t.Helper()
	name, err := url.PathUnescape(it.Value.(string))
	require.NoError(t, err)
	return name
}

// randomQuota has numbers of every size that make sense.
func randomQuota(rnd *rand.Rand, name string) Quota {
	size := func(least, most float64) float64 { return least * math.Pow(most/least, rnd.Float64()) }
	q := Quota{Name: name, Limit: size(0.5, 1e9)}
	if rnd.IntN(2) == 0 {
		q.Limit = math.Ceil(q.Limit)
	}
	switch rnd.IntN(4) {
	case 0:
		q.Remaining = q.Limit
	case 1:
		q.Remaining = q.Limit * rnd.Float64()
	case 2:
		q.Remaining = math.Floor(q.Limit * rnd.Float64())
	}
	if rnd.IntN(2) == 0 {
		q.Rate = size(1e-6, 1e6)
		return q
	}
	if rnd.IntN(8) > 0 {
		q.Window = time.Duration(size(1e6, 1e17))
		q.Reset = time.Duration(float64(q.Window) * rnd.Float64())
	}
	if rnd.IntN(8) == 0 {
		q.Reset = q.Window
	}
	return q
}

func TestRandomQuotasMeanWhatWasPutIn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 14))
	for i := range 4_000 {
		all := make([]Quota, 1+rnd.IntN(6))
		for j := range all {
			all[j] = randomQuota(rnd, fmt.Sprintf(`n"%d\%%é`, j))
		}
		tightest := all[rnd.IntN(len(all))]
		now := time.Unix(1_800_000_000+rnd.Int64N(1e6), rnd.Int64N(1e9))
		header := http.Header{}
		ietf.Write(header, now, tightest, all)
		r := read(t, header)
		require.Len(t, r.policies, len(all))
		r.means(t, tightest, now)
		if t.Failed() {
			t.Fatalf("quotas %d: %+v of %+v", i, tightest, all)
		}
	}
}

// awkward are numbers that arithmetic goes wrong on.
var awkward = []float64{
	nan, inf, -inf, -1, math.Copysign(0, -1), 0, math.SmallestNonzeroFloat64, 1e-9, 0.999999999, 1, 1.5,
	4294967295, 4294967296, 999_999_999_999_999, 1e15, 1 << 53, 1 << 63, math.MaxFloat64, -math.MaxFloat64,
}

func TestAwkwardNumbersNeverMakeAFieldInvalid(t *testing.T) {
	spans := []time.Duration{math.MinInt64, -1, 0, 1, time.Second, time.Hour, maxSeconds * time.Second, math.MaxInt64}
	times := []time.Time{noon, {}, time.Unix(-1, 0), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0)}
	rnd := rand.New(rand.NewPCG(2, 71))
	one := func() Quota {
		return Quota{
			Name:      "x",
			Limit:     awkward[rnd.IntN(len(awkward))],
			Remaining: awkward[rnd.IntN(len(awkward))],
			Rate:      awkward[rnd.IntN(len(awkward))],
			Window:    spans[rnd.IntN(len(spans))],
			Reset:     spans[rnd.IntN(len(spans))],
		}
	}
	for range 4_000 {
		q, now := one(), times[rnd.IntN(len(times))]
		header := http.Header{}
		ietf.Write(header, now, q, []Quota{q, one()})
		r := read(t, header)
		require.LessOrEqual(t, r.remaining, r.limit, "%+v", q)
		require.LessOrEqual(t, r.reset, int64(maxUnits))
	}
}

// The promise behind t: who spends what remains evenly over it is never
// refused, and who has nothing left finds a token afterwards.
func TestAClientThatPacesItselfIsNeverRefused(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 61))
	for range 100 {
		burst, rate := float64(1+rnd.IntN(50)), math.Pow(10, 4*rnd.Float64()-3)
		tokens := burst * rnd.Float64()
		for range 20 {
			header := written(ietf, nil, Quota{Name: "per_ip", Limit: burst, Remaining: tokens, Rate: rate})
			service := read(t, header).service
			r, window := service.Params["r"].(int64), float64(service.Params["t"].(int64))
			if r == 0 {
				tokens = min(burst, tokens+window*rate)
				require.GreaterOrEqual(t, tokens, 1-1e-6, "after %v s at %v/s", window, rate)
				continue
			}
			for range r {
				require.GreaterOrEqual(t, tokens, 1-1e-6, "%d in %v s at %v/s, burst %v", r, window, rate, burst)
				tokens = min(burst, tokens-1+window/float64(r)*rate)
			}
			if tokens = math.Floor(tokens * rnd.Float64()); rnd.IntN(2) == 0 { // others spend too
				tokens = 0
			}
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range []string{"per_ip", "", `"`, `\`, `a\"b`, "é", "\xff", "%", "%41", "\r\nX: y", "a;r=1, \"b\"", strings.Repeat("x", 300)} {
		f.Add(name, name+"x")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		if one == "" || two == "" {
			require.NotContains(t, written(ietf, nil, Quota{Limit: 1}), keyPolicy)
			return
		}
		r := read(t, written(ietf, nil, Quota{Name: one, Limit: 1}, Quota{Name: one, Limit: 1}, Quota{Name: two, Limit: 2}))
		require.Equal(t, one, decoded(t, r.service))
		require.Len(t, r.policies, 2)
		require.Equal(t, one, decoded(t, r.policies[0]))
		require.Equal(t, two, decoded(t, r.policies[1]))
		require.Equal(t, one == two, r.policies[0].Value == r.policies[1].Value)
	})
}

// What stands comes from other software. Whatever it is, ours is either all
// there or not there at all, and nothing of theirs is lost but what is replaced.
func FuzzWhatStands(f *testing.F) {
	f.Add("100", "1", "", "")
	f.Add("", "", `"a";r=1`, `"a";q=1`)
	f.Add("12", "x", `limit=1`, "10;w=1")
	f.Add("\xff", "-1", `"a`, `"`)
	f.Fuzz(func(t *testing.T, remaining, retry, rateLimit, policy string) {
		outer := http.Header{}
		for key, value := range map[string]string{keyRemaining: remaining, keyRetryAfter: retry, keyRateLimit: rateLimit, keyPolicy: policy} {
			if value != "" {
				outer[key] = []string{value}
			}
		}
		header := written(ietf, outer, perIP)
		three := only(header, keyLimit, keyRemaining, keyReset)
		if remaining == "" || header.Get(keyLimit) != "" {
			require.Equal(t, ours, three)
		} else {
			require.Equal(t, only(outer, keyRemaining), three)
			require.Equal(t, outer[keyRateLimit], header[keyRateLimit])
		}
		require.Equal(t, outer[keyRetryAfter], header[keyRetryAfter])
		if policy != "" {
			require.Equal(t, policy, header[keyPolicy][0])
		}
		if _, err := parseList(policy); err == nil && strings.HasPrefix(policy, `"`) {
			_, err := parseList(header[keyPolicy]...)
			require.NoError(t, err, "a valid list stays one")
		}
		require.Equal(t, header, written(ietf, header, perIP), "twice is the same as once")
	})
}
