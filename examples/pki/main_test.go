package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	legolog "github.com/go-acme/lego/v5/log"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

func TestMain(m *testing.M) {
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func TestBothClientsGetACertificate(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, nil))
	require.Equal(t, 2, strings.Count(out.String(), "got a certificate for"), out.String())
}

func TestAClientThatFailsIsReportedAndTheNextOneStillRuns(t *testing.T) {
	withoutOrders := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == acmeserver.PathNewOrder {
				http.Error(w, "closed for today", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, withoutOrders))
	require.Equal(t, 2, strings.Count(out.String(), "failed: "), out.String())
	require.Equal(t, 2, strings.Count(out.String(), "newOrder (/order-plz)"), out.String())
}
