package weir_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weir-go/weir"
)

// The endpoints of a step-ca, behind a path of its own, with the requests that
// reach the HSM behind a guard.
func ExamplePKIEndpoints() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints(weir.LayoutStepCA)
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 8}}
	for i := range cfg.Endpoints {
		e := &cfg.Endpoints[i]
		e.Pattern = "/ca" + e.Pattern
		switch e.Class {
		case weir.ClassACMEFinalize, weir.ClassSCEP:
			e.Guard = "hsm"
		}
	}
	limiter, err := weir.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	h := limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := weir.FromContext(r.Context())
		fmt.Println(r.Method, r.URL, "is", info.Class)
	}))
	for _, target := range []string{"/ca/acme/prod/new-order", "/ca/scep/prod?operation=GetCACaps", "/ca/scep/prod?operation=PKIOperation"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", target, nil))
	}
	// Output:
	// GET /ca/acme/prod/new-order is acme_new_order
	// GET /ca/scep/prod?operation=GetCACaps is scep_ca
	// GET /ca/scep/prod?operation=PKIOperation is scep
}

// Renewals that the CA itself has suggested do not count against their account.
func ExampleWithRenewal() {
	due := map[weir.Renewal]bool{ // the CA's own records, usually
		{Account: "/acme/acct/7", CertID: "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"}: true,
	}
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()                           // new-order has Renewals
	cfg.Tiers.PerAccount = weir.TierConfig{Rate: 0.03, Burst: 50} // 300 orders in three hours
	cfg.Tiers.Renewal = weir.Limit{Rate: 1, Burst: 500}
	limiter, err := weir.New(cfg, weir.WithRenewal(func(_ context.Context, r weir.Renewal) bool { return due[r] }))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	// Output:
}
