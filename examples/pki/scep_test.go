package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A queue that is full sheds enrolments by either method, and GetCACaps never:
// a client that is refused those goes on with the weakest ciphers there are.
func TestACrowdedHSMShedsSCEPEnrolmentsAndNothingElseOfSCEP(t *testing.T) {
	t.Parallel()
	cfg := wholeLimits()
	cfg.Guards[guardHSM] = weir.GuardConfig{MaxInFlight: 1, MaxQueue: 1}
	for i := range cfg.Endpoints {
		if cfg.Endpoints[i].Guard == guardHSM {
			cfg.Endpoints[i].Mode = weir.ModeFail
		}
	}
	p := openedWhole(t, inMemory(), cfg)
	release, err := p.limiter.Guard(guardHSM).Acquire(t.Context())
	require.NoError(t, err)

	answer := func(method, query string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, p.urls.scep+"?"+query, http.NoBody)
		require.NoError(t, err)
		resp, err := visits(t, p).Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	const enrol = "operation=PKIOperation&message=MA%3D%3D"
	require.Equal(t, http.StatusServiceUnavailable, answer(http.MethodPost, enrol))
	require.Equal(t, http.StatusServiceUnavailable, answer(http.MethodGet, enrol))
	require.Equal(t, http.StatusOK, answer(http.MethodGet, "operation=GetCACaps"))
	require.Equal(t, http.StatusOK, answer(http.MethodGet, "operation=GetCACert"))
	release()
	require.Equal(t, http.StatusInternalServerError, answer(http.MethodGet, enrol), "the library's answer to junk")
	for _, c := range p.limiter.Snapshot().Classes {
		switch c.Class {
		case weir.ClassSCEP:
			require.EqualValues(t, 3, c.Admitted, "an enrolment by GET spends what one by POST does")
		case weir.ClassSCEPCA:
			require.EqualValues(t, 2, c.Admitted)
		}
	}
}

// What names its operation in two ways is an enrolment to some server or other:
// MicroMDM's takes the first of two.
func TestWhatMayBeAnSCEPEnrolmentIsLimitedAsOne(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]weir.Class{
		"GET /scep?operation=GetCACaps":                        weir.ClassSCEPCA,
		"GET /scep?operation=GetCACert&message=device":         weir.ClassSCEPCA,
		"GET /scep/?operation=GetCACert":                       weir.ClassSCEPCA,
		"GET /scep":                                            weir.ClassSCEP,
		"GET /scep?operation=PKIOperation&message=MA":          weir.ClassSCEP,
		"GET /scep?operation=PKIOperation&operation=GetCACaps": weir.ClassSCEP,
		"GET /scep?operation=GetCACaps&operation=PKIOperation": weir.ClassSCEP,
		"POST /scep?operation=PKIOperation":                    weir.ClassSCEP,
		"POST /scep?operation=GetCACaps":                       weir.ClassSCEP,
		"POST /scep":                                           weir.ClassSCEP,
	} {
		method, target, _ := strings.Cut(request, " ")
		require.Equal(t, want, classOf(t, wholeLimits(), method, target), request)
	}
}
