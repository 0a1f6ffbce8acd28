package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// rows reads the table back: three outcomes for each class.
func rows(t *testing.T, text string) map[weir.Class][3]outcomes {
	t.Helper()
	table := map[weir.Class][3]outcomes{}
	for _, a := range asked {
		line := regexp.MustCompile(`(?m)^` + string(a.class) + `( +\d+){9}$`).FindString(text)
		require.NotEmpty(t, line, "no row for %s in\n%s", a.class, text)
		var n [9]uint64
		for i, field := range strings.Fields(line)[1:] {
			var err error
			n[i], err = strconv.ParseUint(field, 10, 64)
			require.NoError(t, err)
		}
		table[a.class] = [3]outcomes{{n[0], n[1], n[2]}, {n[3], n[4], n[5]}, {n[6], n[7], n[8]}}
	}
	return table
}

func (o outcomes) sum() uint64 { return o.served + o.throttled + o.shed }

func TestThePoliteClientIsServedBesideTheFlood(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "\n%s", &out)
	text := out.String()
	require.Contains(t, text, fmt.Sprintf("The polite client had all its %d orders served", orders))

	table := rows(t, text)
	for class, row := range table {
		flood, polite, counted := row[0], row[1], row[2]
		require.EqualValues(t, floodEach, flood.sum(), class)
		require.EqualValues(t, orders, polite.served, class)
		require.NotZero(t, flood.throttled+flood.shed, class)
		require.Equal(t, flood.sum()+polite.sum(), counted.sum(), class)
		require.Contains(t, text, fmt.Sprintf(
			"weir_ratelimit_admitted_total{endpoint=%q} %d\n", class, counted.served+counted.shed), class)
		if counted.throttled > 0 {
			require.Contains(t, text, fmt.Sprintf(
				"weir_ratelimit_throttled_total{endpoint=%q,tier=%q} %d\n", class, weir.TierPerIP, counted.throttled), class)
		}
	}
	require.NotZero(t, table[weir.ClassACMENewOrder][0].throttled, "the address's limit was never met")
	require.NotZero(t, table[weir.ClassACMEFinalize][0].shed, "the guard was never full")
	require.Zero(t, table[weir.ClassACMENewOrder][2].shed, "only finalize has a guard")
}

func TestAReportOfDifferentCountsIsAnError(t *testing.T) {
	t.Parallel()
	order := weir.ClassACMENewOrder
	saw := func(o outcomes) map[weir.Class]outcomes { return map[weir.Class]outcomes{order: o} }
	for _, tc := range []struct {
		name      string
		bad, good outcomes
		counted   weir.ClassSnapshot
		agree     bool
	}{
		{
			"what two clients saw adds up to what was counted",
			outcomes{3, 2, 1}, outcomes{served: 4},
			weir.ClassSnapshot{Admitted: 8, Throttled: map[string]uint64{"global": 1, "per_ip": 1}, Shed: map[string]uint64{"timeout": 1}},
			true,
		},
		{"a request that nobody counted is missing", outcomes{served: 1}, outcomes{}, weir.ClassSnapshot{}, false},
		{"a request that no client saw was counted", outcomes{}, outcomes{served: 1}, weir.ClassSnapshot{Admitted: 2}, false},
		{
			"a refusal counts for another kind than it was answered with",
			outcomes{shed: 1}, outcomes{},
			weir.ClassSnapshot{Throttled: map[string]uint64{"per_ip": 1}},
			false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.counted.Class = order
			err := report(io.Discard, saw(tc.bad), saw(tc.good), weir.Snapshot{Classes: []weir.ClassSnapshot{tc.counted}})
			if tc.agree {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, string(order))
			}
		})
	}
}

// direct calls a handler in place of the network, which a synctest bubble
// cannot have.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	served := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), nil)
	served.RemoteAddr = "127.0.0.1:1234"
	served.Header = r.Header.Clone()
	d.ServeHTTP(w, served)
	return w.Result(), nil
}

func TestThePoliteClientComesBackWhenItWasToldToAndNotSooner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, limiter, err := limited(newPKI(), prometheus.NewRegistry())
		require.NoError(t, err)
		defer limiter.Close()
		good := newClient("http://ca.example.test", "198.51.100.7")
		good.http = &http.Client{Transport: direct{handler}}

		// Ten at once are the burst, then five a second come back.
		begin := time.Now()
		waited, err := good.behave(t.Context(), orders)
		require.NoError(t, err)
		require.Equal(t, time.Second, waited)
		require.Equal(t, time.Second+orders*5*time.Millisecond, time.Since(begin), "the wait and the signatures, no more")
		require.Equal(t, outcomes{served: orders, throttled: 1}, good.seen[weir.ClassACMENewOrder])
	})
}

func TestTwoAddressesHaveTwoBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler, limiter, err := limited(newPKI(), prometheus.NewRegistry())
		require.NoError(t, err)
		defer limiter.Close()
		bad, good := newClient("http://ca.example.test", "203.0.113.66"), newClient("http://ca.example.test", "198.51.100.7")
		bad.http, good.http = &http.Client{Transport: direct{handler}}, &http.Client{Transport: direct{handler}}

		require.NoError(t, bad.flood(t.Context(), 100, 1))
		require.Equal(t, outcomes{served: 10, throttled: 90}, bad.seen[weir.ClassACMENewOrder])
		_, served, err := good.ask(t.Context(), 0)
		require.NoError(t, err)
		require.True(t, served)
	})
}

func TestAnAnswerThatIsNeitherServiceNorRefusalIsAnError(t *testing.T) {
	t.Parallel()
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the HSM has no session left", http.StatusInternalServerError)
	})
	c := newClient("http://ca.example.test", "198.51.100.7")
	c.http = &http.Client{Transport: direct{broken}}
	_, err := c.behave(t.Context(), 1)
	require.ErrorContains(t, err, "500")
}
