package clientip

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRealListenersNameTheirPeers holds the two assumptions about net/http on
// which all else rests: what RemoteAddr looks like, and that the context knows
// the listener.
func TestRealListenersNameTheirPeers(t *testing.T) {
	r := resolver(t, Config{Trusted: []string{"unix", "127.0.0.1"}})
	tests := []struct {
		name, network, address string
		want                   Result
	}{
		{"tcp", "tcp4", "127.0.0.1:0", Result{Source: XForwardedFor}},
		{"unix", "unix", "s", Result{Source: XForwardedFor, Unix: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir()) // the path of a socket may be too short for the whole name
			listener, err := net.Listen(tt.network, tt.address)
			if err != nil {
				t.Fatal(err)
			}
			var got, bare Result
			var direct bool
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/bare" {
					bare, direct = r.Resolve(req), DirectLoopback(req)
				} else {
					got = r.Resolve(req)
				}
			}))
			server.Listener.Close()
			server.Listener = listener
			server.Start()
			t.Cleanup(server.Close)

			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, tt.network, listener.Addr().String())
				},
			}}
			get(t, client, "/bare", nil)
			get(t, client, "/", http.Header{"X-Forwarded-For": {"6.6.6.6, 203.0.113.7", ""}})
			server.Close() // so that the handlers are done with the results

			if addrText(got.Addr) != "203.0.113.7" || got.Source != tt.want.Source || got.Unix != tt.want.Unix {
				t.Errorf("got %+v", got)
			}
			if bare.Reason != NoHeader || bare.Unix != tt.want.Unix || bare.Addr.IsLoopback() == tt.want.Unix {
				t.Errorf("without a header: got %+v", bare)
			}
			if direct == tt.want.Unix {
				t.Errorf("direct loopback: %t", direct)
			}
		})
	}
}

func get(t *testing.T, client *http.Client, path string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://weir.test"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
