package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// orderBy is a newOrder that names the account /my-account/1, or says it does.
func orderBy() *http.Request {
	const body = `{"protected":"eyJraWQiOiJodHRwczovL2NhLmV4YW1wbGUudGVzdC9teS1hY2NvdW50LzEifQ","payload":"","signature":""}`
	r := httptest.NewRequest(http.MethodPost, "https://ca.example.test"+acmeserver.PathNewOrder, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/jose+json")
	return r
}

func TestTheAccountsTokenGoesBackWhereTheAuthorityHadNoProof(t *testing.T) {
	t.Parallel()
	problem := func(word string) string { return fmt.Sprintf(`{"type":"urn:ietf:params:acme:error:%s"}`, word) }
	for _, tc := range []struct {
		name   string
		status int
		body   string
		back   bool
	}{
		{"not for an order that was placed", http.StatusCreated, `{"status":"pending"}`, false},
		{"not for a success that reads like a problem", http.StatusOK, problem("malformed"), false},
		{"for a signature that does not verify", http.StatusBadRequest, problem("malformed"), true},
		{"for a nonce that is not good", http.StatusBadRequest, problem("badNonce"), true},
		{"for an account that does not exist", http.StatusBadRequest, problem("accountDoesNotExist"), true},
		{"for a URL that was not signed", http.StatusForbidden, problem("unauthorized"), true},
		{"not for a name that the authority will not certify", http.StatusBadRequest, problem("rejectedIdentifier"), false},
		{"not for a failure of the authority", http.StatusInternalServerError, problem("serverInternal"), false},
		{"not for an error that is no problem document", http.StatusBadGateway, "<h1>Bad Gateway</h1>", false},
		{"not for a problem too large to be one", http.StatusBadRequest, strings.Repeat(" ", maxProblem) + problem("malformed"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			limiter, err := weir.New(oneOrderAtATime(never), weir.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			defer limiter.Close()
			handler := limiter.Handler(disownUnproven(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				for part := range strings.SplitAfterSeq(tc.body, `"`) { // in many writes
					_, _ = io.WriteString(w, part)
				}
			})))

			w := httptest.NewRecorder()
			handler.ServeHTTP(w, orderBy())
			require.Equal(t, tc.status, w.Code)
			require.Equal(t, tc.body, w.Body.String(), "the answer goes through as it is")

			w = httptest.NewRecorder()
			handler.ServeHTTP(w, orderBy())
			if tc.back {
				require.Equal(t, tc.status, w.Code, "the account had its token back")
			} else {
				require.Equal(t, http.StatusTooManyRequests, w.Code, "the account had no token left")
			}
		})
	}
}

func TestTheAuthorityCanFlushThroughWhatLooksAtItsAnswers(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	disownUnproven(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, http.NewResponseController(w).Flush())
	})).ServeHTTP(w, orderBy())
	require.True(t, w.Flushed)
}
