package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// A sent request is one whose body was kept on its way out.
type sent struct {
	method, path string
	body         []byte
}

// A copier is an http.RoundTripper that keeps what is sent.
type copier struct {
	next http.RoundTripper

	mu   sync.Mutex // guards sent
	sent []sent
}

func (c *copier) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	c.mu.Lock()
	c.sent = append(c.sent, sent{r.Method, r.URL.Path, body})
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// bodyTo returns the body of the one request to path.
func (c *copier) bodyTo(t *testing.T, path string) []byte {
	t.Helper()
	var bodies [][]byte
	for _, s := range c.sent {
		if s.path == path {
			bodies = append(bodies, s.body)
		}
	}
	require.Len(t, bodies, 1)
	return bodies[0]
}

// Some clients repeat a refused request byte for byte (that of npm's
// acme-client does). The nonce in it is still good only if the authority never
// saw it.
func TestTheIdenticalBytesAreSentAgainAfterA429(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		refusal     *refusal
		status      int
		problemType string
	}{
		{"and accepted if the refusal came before the handler", &refusal{}, http.StatusCreated, ""},
		{"and accepted though the refusal offered another nonce", &refusal{withNonce: true}, http.StatusCreated, ""},
		{
			"and answered badNonce if the refusal came after the handler", &refusal{afterHandler: true},
			http.StatusBadRequest, "urn:ietf:params:acme:error:badNonce",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.refusal.path = acmeserver.PathNewOrder
			srv := start(t, tc.refusal.wrap)
			hc := srv.Client()
			kept := &copier{next: hc.Transport}
			hc.Transport = kept
			_, stats, err := ObtainLego(t.Context(), srv.DirectoryURL, hc, []string{"a.example.test"})
			require.Error(t, err)
			require.Equal(t, 1, stats.Refused())

			newOrder, err := url.JoinPath(strings.TrimSuffix(srv.DirectoryURL, acmeserver.PathDirectory), acmeserver.PathNewOrder)
			require.NoError(t, err)
			resp, err := srv.Client().Post(newOrder, "application/jose+json", bytes.NewReader(kept.bodyTo(t, acmeserver.PathNewOrder)))
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, tc.status, resp.StatusCode)
			var problem struct{ Type string }
			require.NoError(t, json.NewDecoder(resp.Body).Decode(&problem))
			require.Equal(t, tc.problemType, problem.Type)
		})
	}
}

// What an endpoint table can tell apart by path and what it cannot: a poll is a
// POST like any other, with an empty payload (RFC 8555, section 6.3).
func TestPollsArePOSTsAsGET(t *testing.T) {
	t.Parallel()
	asGET := map[string]bool{
		acmeserver.PathNewAccount:  false,
		acmeserver.PathNewOrder:    false,
		acmeserver.PathChallenge:   false,
		acmeserver.PathFinalize:    false,
		acmeserver.PathAuthz:       true,
		acmeserver.PathOrder:       true,
		acmeserver.PathCertificate: true,
	}
	srv := start(t, nil)
	for name, obtain := range map[string]obtainFunc{"x/crypto/acme": ObtainX, "lego": ObtainLego} {
		hc := srv.Client()
		kept := &copier{next: hc.Transport}
		hc.Transport = kept
		_, _, err := obtain(t.Context(), srv.DirectoryURL, hc, []string{"a.example.test"})
		require.NoError(t, err, name)

		posts := 0
		for _, s := range kept.sent {
			if s.method != http.MethodPost {
				continue
			}
			posts++
			var jws struct{ Payload string }
			require.NoError(t, json.Unmarshal(s.body, &jws))
			for path, want := range asGET {
				if under(path, s.path) {
					require.Equal(t, want, jws.Payload == "", "%s: POST %s", name, s.path)
				}
			}
		}
		require.Equal(t, len(kept.sent)-2, posts, "%s: all but the directory and the nonce are POSTs", name)
	}
}
