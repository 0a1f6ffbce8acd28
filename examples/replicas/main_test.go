package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The program starts itself again as a replica; in a test that is the test's
// own program.
func TestMain(m *testing.M) {
	if isReplica() {
		main()
		return
	}
	os.Exit(m.Run())
}

// column reads a column of numbers from the lines that begin with a time.
func column(t *testing.T, text string, n int) (sum int) {
	t.Helper()
	lines := regexp.MustCompile(`(?m)^ *[0-9.]+s +(\d+) +(\d+) +(\d+) +(\d+) +[0-9.]+ms`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, lines, text)
	for _, line := range lines {
		v, err := strconv.Atoi(line[n])
		require.NoError(t, err)
		sum += v
	}
	return sum
}

func TestThreeReplicasKeepToOneBudgetWhileRedisHangsAndDies(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, time.Second), "\n%s", &out)
	text := out.String()

	for i, event := range []string{"the flood begins", "(SIGSTOP)", "(SIGCONT)", "is killed", "again, empty"} {
		_, rest, found := strings.Cut(text, event)
		require.True(t, found, "event %d, %s, did not come, or not in its turn:\n%s", i, event, &out)
		text = rest
	}
	text = out.String()
	require.Regexp(t, `ms   .*1 2 3\n`, text, "not all were degraded")
	require.Zero(t, column(t, text, 4), "requests failed")

	sums := map[string][]int{}
	for _, line := range regexp.MustCompile(`(?m)^(\w+) +[0-9.]+ +(\d+) +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(text, -1) {
		for _, field := range line[2:] {
			n, err := strconv.Atoi(field)
			require.NoError(t, err)
			sums[line[1]] = append(sums[line[1]], n)
		}
	}
	require.Len(t, sums, 6, "five acts and their sum:\n%s", text)
	admitted, promised, apart := sums["all"][0], sums["all"][2], sums["all"][3]
	require.LessOrEqual(t, admitted, promised)
	require.Less(t, admitted, apart)
	require.Positive(t, sums["hung"][0], "nothing was admitted while Redis hung")
	require.Positive(t, sums["killed"][0], "nothing was admitted while Redis was dead")

	requests := regexp.MustCompile(`(\d+) requests, none failed\. The \d+ honest addresses were served (\d+) times`).FindStringSubmatch(text)
	require.NotNil(t, requests, text)
	require.Equal(t, requests[1], fmt.Sprint(column(t, text, 1)+column(t, text, 2)+column(t, text, 3)), "a request is missing from the timeline")
	require.NotEqual(t, "0", requests[2])
	require.Positive(t, column(t, text, 2), "nobody was throttled")
}

func TestAMissingRedisServerIsAnErrorOfOneLineWithItsCure(t *testing.T) {
	t.Setenv("REDIS_SERVER", "no-such-redis-server")
	err := run(t.Context(), io.Discard, time.Second)
	require.ErrorContains(t, err, "apt-get install redis-server")
	require.NotContains(t, err.Error(), "\n")
}

func TestAReplicaWithoutRedisSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	_, err := startReplica(t.Context(), "WEIR_REDIS_DSN=", "WEIR_KEY_SECRET=0123456789abcdef")
	require.ErrorContains(t, err, "store.redis.dsn")
}

func TestAReplicaEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	redis, err := startRedis(t.Context())
	require.NoError(t, err)
	defer redis.stop()
	r, err := startReplica(t.Context(), "WEIR_REDIS_DSN=redis://"+redis.addr, "WEIR_KEY_SECRET=0123456789abcdef")
	require.NoError(t, err)
	require.NoError(t, r.stdin.Close()) // as the kernel does for a process that dies
	require.NoError(t, r.process.Wait())
}

func TestTheBalancerTakesTurnsAndNamesTheClient(t *testing.T) {
	t.Parallel()
	var asked [replicas]atomic.Int64
	var servers []*replica
	for i := range replicas {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked[i].Add(1)
			if got := r.Header.Get("X-Forwarded-For"); got != "203.0.113.1, 127.0.0.1" {
				t.Errorf("X-Forwarded-For is %q", got)
			}
		}))
		defer s.Close()
		servers = append(servers, &replica{url: s.URL})
	}
	handler, err := balancer(servers)
	require.NoError(t, err)
	front := httptest.NewServer(handler)
	defer front.Close()
	c := newCrowd(front.URL, func(seen) {})
	for range 2 * replicas {
		s, _ := c.ask("203.0.113.1", "/", -1)
		require.NoError(t, s.err)
	}
	for i := range asked {
		require.EqualValues(t, 2, asked[i].Load(), "replica %d", i+1)
	}
}

func TestTooMuchIsAnError(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		admitted int
		outages  int
		within   bool
	}{
		{"a burst and what refills in a second", 30, 0, true},
		{"one more", 31, 0, false},
		{"a burst more after an outage", 50, 1, true},
		{"one more than that", 51, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			line := &timeline{outages: tc.outages, phases: []phase{{name: "shared", lasted: time.Second, admitted: [abusers]int{2: tc.admitted}}}}
			err := verdict(io.Discard, line, newCrowd("", nil))
			if tc.within {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "address 3 ")
			}
		})
	}
}

func TestAFailedRequestIsAnError(t *testing.T) {
	t.Parallel()
	for _, s := range []seen{{abuser: -1, status: http.StatusBadGateway}, {abuser: 0, err: context.DeadlineExceeded}} {
		line := newTimeline(io.Discard)
		line.enter("shared", "begin")
		line.record(s)
		require.Error(t, verdict(io.Discard, line, newCrowd("", nil)))
	}
}
