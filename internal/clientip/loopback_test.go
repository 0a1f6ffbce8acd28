package clientip

import (
	"strings"
	"testing"
)

func TestAnyMarkOfAProxyEndsDirectLoopback(t *testing.T) {
	tests := []struct {
		name, header, value string
		direct              bool
	}{
		{"a plain header", "Accept", "*/*", true},
		{"a header with a name without end", strings.Repeat("A", 4096), "", true},
		{"a name that only begins like one", "Viable", "1", true},
		{"Via", "Via", "1.1 cache", false},
		{"underscores for dashes", "X_Real_Ip", "::1", false},
		{"underscores and dashes mixed", "X-Forwarded_for", "::1", false},
		{"a forwarding header nobody has heard of", "X-Forwarded-" + strings.Repeat("x", 100), "", false},
		{"the original chain of an ingress", "X-Original-Forwarded-For", "203.0.113.7", false},
		{"a Cloudflare ray", "Cf-Ray", "1", false},
		{"an Envoy address", "X-Envoy-External-Address", "203.0.113.7", false},
		{"Connection: keep-alive", "Connection", "keep-alive, Upgrade", true},
		{"Connection names Via", "Connection", "close,via", false},
		{"Connection names an underscore spelling", "Connection", "X_FORWARDED_FOR", false},
		{"Connection without end", "Connection", strings.Repeat("close,", 10_000), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := DirectLoopback(request("127.0.0.1:5", "tcp", [2]string{tt.header, tt.value})); got != tt.direct {
				t.Errorf("got %t, want %t", got, tt.direct)
			}
		})
	}
}

func TestOnlyALoopbackPeerWithAPortIsDirect(t *testing.T) {
	tests := []struct {
		peer   string
		direct bool
	}{
		{"127.0.0.1:1", true},
		{"[::1]:1", true},
		{"[::1%lo]:1", true},
		{"[::ffff:127.0.0.1]:1", true},
		{"::1", false},
		{"[::1]", false},
		{"::ffff:127.0.0.1", false},
		{"127.0.0.1:", false},
		{"128.0.0.1:1", false},
		{"[::2]:1", false},
		{"0.0.0.0:1", false},
	}
	for _, tt := range tests {
		if got := DirectLoopback(request(tt.peer, "")); got != tt.direct {
			t.Errorf("%q: got %t, want %t", tt.peer, got, tt.direct)
		}
	}
}
