package acmeserver

import "net/http"

// The paths that Pebble serves, as net/http.ServeMux reads them: one that ends
// in a slash stands for all below it, an identifier each. Pebble picks words
// that no other server uses so that a client which guesses instead of reading
// the directory fails.
const (
	PathDirectory   = "/dir"
	PathNewNonce    = "/nonce-plz"
	PathNewAccount  = "/sign-me-up"
	PathNewOrder    = "/order-plz"
	PathAccount     = "/my-account/"
	PathOrder       = "/my-order/"
	PathFinalize    = "/finalize-order/"
	PathAuthz       = "/authZ/"
	PathChallenge   = "/chalZ/"
	PathCertificate = "/certZ/"
	PathRevokeCert  = "/revoke-cert"
	PathKeyChange   = "/rollover-account-key"
	PathOrders      = "/list-orderz/"
	PathRenewalInfo = "/draft-ietf-acme-ari-03/renewalInfo/"
)

// An Endpoint is one kind of ACME resource as this server spells it.
type Endpoint struct {
	// Resource names it in the words of RFC 8555, section 7.1, and, where the
	// directory lists it, by the directory's own key (section 9.7.5).
	Resource string
	// Path is one of the Path constants.
	Path string
	// Methods are those the server does not answer with 405, CORS preflights
	// aside. POST is the signed kind, POST-as-GET (section 6.3) included:
	// polling an order and polling an authorization are POSTs to the same
	// path as any other request for them.
	Methods []string
}

// Endpoints returns every endpoint, in the order in which an issuance first
// meets them; those that an issuance never meets come last. The slice is the caller's.
func Endpoints() []Endpoint {
	return []Endpoint{
		{"directory", PathDirectory, readOrSigned()},
		{"newNonce", PathNewNonce, readOrSigned()},
		{"newAccount", PathNewAccount, signed()},
		{"newOrder", PathNewOrder, signed()},
		{"authorization", PathAuthz, signed()},
		{"challenge", PathChallenge, signed()},
		{"order", PathOrder, signed()},
		{"finalize", PathFinalize, signed()},
		{"certificate", PathCertificate, signed()},
		{"account", PathAccount, signed()},
		{"orders", PathOrders, signed()},
		{"keyChange", PathKeyChange, signed()},
		{"revokeCert", PathRevokeCert, signed()},
		{"renewalInfo", PathRenewalInfo, readOrSigned()},
	}
}

func readOrSigned() []string {
	return []string{http.MethodGet, http.MethodHead, http.MethodPost}
}

func signed() []string { return []string{http.MethodPost} }
