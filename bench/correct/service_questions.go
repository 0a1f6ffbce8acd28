package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
)

const outageAsks = "5 an hour in Redis; one request, then the server is killed and 20 more are sent. Their statuses (0 is a panic, for which net/http drops the connection). " +
	"All served as far as a limit that is still kept allows is right; limiting given up for the time is weak; failed requests are wrong. " +
	"redis_rate's error is turned into a 500 by hand; its documentation panics."

func outage(t *testing.T, c *column) []cell {
	if c.redis == nil {
		return nil
	}
	server := redistest.Start(t)
	h := c.redis(t, perHour(5), server.Addr)(served)
	if code := send(h, request(client, "/")).Code; code != http.StatusOK {
		t.Fatalf("%s: %d while the server is up", c.name, code)
	}
	server.Kill()
	count := map[int]int{}
	for range 20 {
		count[send(h, request(client, "/")).Code]++
	}
	got := ""
	for _, code := range []int{200, 429, 500, 503, panicked} {
		if n := count[code]; n > 0 {
			got += fmt.Sprintf(" %d×%d", code, n)
		}
	}
	v := wrong
	switch ok := count[http.StatusOK]; {
	case ok+count[http.StatusTooManyRequests] != 20:
	case ok == 20:
		v = weak
	case ok > 0:
		v = right
	}
	return []cell{{"", got[1:], v}}
}

const metricsAsks = "A limiter with metrics is made, made again on the same registry, closed, and made once more. Panics or errors: 0 is right. Of these libraries weir alone has metrics."

func metricsAgain(t *testing.T, c *column) []cell {
	if c.name != "weir" {
		return nil
	}
	reg, failed := prometheus.NewRegistry(), 0
	open := func() (l *weir.Limiter) {
		defer func() {
			if recover() != nil {
				failed++
			}
		}()
		l, err := weir.New(weirPerIP(once), weir.WithRegisterer(reg), weir.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			failed++
		}
		return l
	}
	first, second := open(), open()
	_ = first.Close()
	_ = second.Close()
	third := open()
	_, err := reg.Gather()
	if err != nil {
		failed++
	}
	_ = third.Close()
	return []cell{{"", fmt.Sprint(failed), verdictOn(failed == 0, wrong)}}
}
