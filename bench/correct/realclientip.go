package main

import (
	"net/http"
	"testing"

	"github.com/realclientip/realclientip-go"
)

// realclientips is realclientip-go, which finds addresses and limits nothing:
// here before a rate.Limiter for each address, by hand.
func realclientips() *column {
	by := func(s realclientip.Strategy) func(*testing.T, quota) mounted {
		return func(_ *testing.T, q quota) mounted {
			return newByAddress(q, 0).handler(func(r *http.Request) string { return s.ClientIP(r.Header, r.RemoteAddr) })
		}
	}
	trusted, err := realclientip.AddressesAndRangesToIPNets(proxy)
	if err != nil {
		panic(err)
	}
	return &column{
		name:   "realclientip",
		direct: []mount{{"", by(realclientip.RemoteAddrStrategy{})}},
		proxied: []mount{
			{"trusted count 1", by(realclientip.Must(realclientip.NewRightmostTrustedCountStrategy("X-Forwarded-For", 1)))},
			{"trusted range", by(realclientip.Must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", trusted)))},
		},
	}
}
