package quota

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// ours are the X-RateLimit fields of perIP, of which 12 remain.
var ours = http.Header{
	"X-Ratelimit-Limit":     {"40"},
	"X-Ratelimit-Remaining": {"12"},
	"X-Ratelimit-Reset":     {"1800000002"},
}

func only(header http.Header, keys ...string) http.Header {
	part := http.Header{}
	for _, key := range keys {
		if value, ok := header[key]; ok {
			part[key] = value
		}
	}
	return part
}

func TestTheTighterOfTwoLimitersIsTold(t *testing.T) {
	for _, tt := range []struct {
		name  string
		outer http.Header
		kept  bool
	}{
		{"nothing stands", http.Header{}, false},
		{"a field without a value does not stand", http.Header{"X-Ratelimit-Remaining": nil, "X-Ratelimit-Limit": {}}, false},
		{"more remains outside", http.Header{"X-Ratelimit-Limit": {"1000"}, "X-Ratelimit-Remaining": {"13"}, "X-Ratelimit-Reset": {"1"}}, false},
		{"more remains outside, of a larger share used", http.Header{"X-Ratelimit-Limit": {"100000"}, "X-Ratelimit-Remaining": {"13"}}, false},
		{"blanks do not matter", http.Header{"X-Ratelimit-Remaining": {" 13\t"}}, false},
		{"less remains outside", http.Header{"X-Ratelimit-Limit": {"11"}, "X-Ratelimit-Remaining": {"11"}, "X-Ratelimit-Reset": {"1"}}, true},
		{"nothing remains outside", http.Header{"X-Ratelimit-Limit": {"11"}, "X-Ratelimit-Remaining": {"0"}}, true},
		{"as much remains outside", http.Header{"X-Ratelimit-Limit": {"12"}, "X-Ratelimit-Remaining": {"12"}, "X-Ratelimit-Reset": {"1"}}, true},
		{"outside does not say how much", http.Header{"X-Ratelimit-Limit": {"1000"}}, true},
		{"nor does a reset alone", http.Header{"X-Ratelimit-Reset": {"1000"}}, true},
		{"outside says it with a window", http.Header{"X-Ratelimit-Remaining": {"1000;w=60"}}, true},
		{"outside says it with a sign", http.Header{"X-Ratelimit-Remaining": {"+1000"}}, true},
		{"outside is overdrawn", http.Header{"X-Ratelimit-Remaining": {"-3"}}, true},
		{"outside says it in words", http.Header{"X-Ratelimit-Remaining": {"plenty"}}, true},
		{"outside says nothing", http.Header{"X-Ratelimit-Remaining": {""}}, true},
		{"outside says it twice", http.Header{"X-Ratelimit-Remaining": {"1000", "2000"}}, true},
		{"outside says more than 64 bits", http.Header{"X-Ratelimit-Remaining": {"99999999999999999999"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := ours
			if tt.kept {
				want = tt.outer
			}
			require.Equal(t, want, written(legacy, tt.outer, perIP), "all three fields or none")

			after := written(ietf, tt.outer, perIP)
			require.Equal(t, want, only(after, keyLimit, keyRemaining, keyReset))
			require.Equal(t, !tt.kept, after.Get("RateLimit") == `"per_ip";r=12;t=1`, "RateLimit tells of the same quota: %q", after["Ratelimit"])
			require.Equal(t, `"per_ip";q=40;w=2`, after.Get("RateLimit-Policy"))
		})
	}
}

func TestRateLimitGoesWithTheOtherFields(t *testing.T) {
	const theirs = `"outer";r=100`
	for _, tt := range []struct{ name, remaining, want string }{
		{"replaced with them", "13", `"per_ip";r=12;t=1`},
		{"kept with them", "11", theirs},
		{"kept where it stands alone", "", theirs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outer := http.Header{"Ratelimit": {theirs}}
			if tt.remaining != "" {
				outer.Set("X-RateLimit-Remaining", tt.remaining)
			}
			require.Equal(t, []string{tt.want}, written(ietf, outer, perIP)["Ratelimit"])
		})
	}
}

func TestPoliciesOfBothLimitersAreTold(t *testing.T) {
	const mine = `"per_ip";q=40;w=2`
	for _, tt := range []struct {
		name         string
		stands, want []string
	}{
		{"none stands", nil, []string{mine}},
		{"another stands", []string{`"outer";q=5;w=60`}, []string{`"outer";q=5;w=60`, mine}},
		{"two lines stand", []string{`"outer";q=5`, ` "other";q=6`}, []string{`"outer";q=5`, ` "other";q=6`, mine}},
		{"ours stands", []string{`"outer";q=5;w=60`, mine}, []string{`"outer";q=5;w=60`, mine}},
		{"one of our name stands with other numbers", []string{`"per_ip";q=5;w=60`}, []string{`"per_ip";q=5;w=60`, mine}},
		{"the form of an older draft stands", []string{`10;w=1, 100;w=3600`}, []string{`10;w=1, 100;w=3600`}},
		{"an empty line stands", []string{``}, []string{``}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outer := http.Header{}
			if tt.stands != nil {
				outer["Ratelimit-Policy"] = tt.stands
			}
			require.Equal(t, tt.want, written(ietf, outer, perIP)["Ratelimit-Policy"])
		})
	}
}

func TestALineIsNotAddedToSomebodysArray(t *testing.T) {
	shared := make([]string, 1, 8) // as a package-level value of an outer middleware might be
	shared[0] = `"outer";q=5`
	header := http.Header{"Ratelimit-Policy": shared}
	ietf.Write(header, noon, perIP, nil)
	require.Equal(t, []string{`"outer";q=5`, `"per_ip";q=40;w=2`}, header["Ratelimit-Policy"])
	require.Equal(t, make([]string, 7), shared[1:8])
}

// A request that the tiers admitted and the guard refuses comes by twice.
func TestWritingTwiceIsTheSameAsOnce(t *testing.T) {
	for _, h := range []Headers{legacy, ietf} {
		once := written(h, nil, subject, global, subject)
		require.Equal(t, once, written(h, once, subject, global, subject))
	}
}

func TestNestedLimitersTellTheTighterInEitherOrder(t *testing.T) {
	loose := Quota{Name: "per_ip", Limit: 1000, Remaining: 900, Rate: 10}
	a := written(ietf, written(ietf, nil, perIP), loose)
	b := written(ietf, written(ietf, nil, loose), perIP)
	for _, header := range []http.Header{a, b} {
		require.Equal(t, ours, only(header, keyLimit, keyRemaining, keyReset))
		require.Equal(t, []string{`"per_ip";r=12;t=1`}, header["Ratelimit"])
		require.ElementsMatch(t, []string{`"per_ip";q=40;w=2`, `"per_ip";q=1000;w=100`}, header["Ratelimit-Policy"])
	}
	require.ElementsMatch(t, keys(a), keys(b))
}

func keys(header http.Header) (all []string) {
	for key := range maps.Keys(header) {
		all = append(all, key)
	}
	return all
}
