package weir

import (
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/gate"
	"github.com/weir-go/weir/store"
)

// Class is the one low-cardinality word for a kind of request, used in
// configuration, metrics and logs: lower-case letters, digits and _.
type Class string

// Kind is the protocol an endpoint speaks. It chooses the document a refusal
// is written as, and where an account is looked for.
type Kind string

// The kinds. The zero Kind is [KindAPI].
const (
	KindACME Kind = "acme" // RFC 8555; the account is the kid of the request's JWS
	KindOCSP Kind = "ocsp" // RFC 6960
	KindCRL  Kind = "crl"
	KindEST  Kind = "est" // RFC 7030; the account is the HTTP Basic user
	KindSCEP Kind = "scep"
	KindAPI  Kind = "api"  // problem+json, HTML or plain text, as Accept says
	KindPage Kind = "page" // HTML to browsers, problem+json to all others
	KindS3   Kind = "s3"
)

var kinds = []Kind{KindACME, KindOCSP, KindCRL, KindEST, KindSCEP, KindAPI, KindPage, KindS3}

func kindNames() string {
	list := make([]string, len(kinds))
	for i, k := range kinds {
		list[i] = string(k)
	}
	return strings.Join(list, ", ")
}

// Mode says what a request does when its guard has no free slot.
type Mode string

// The modes. The zero Mode is [ModeWait].
const (
	ModeWait Mode = "wait" // queue, at most the guard's AcquireTimeout
	ModeFail Mode = "fail" // be refused at once
)

// Endpoint gives the requests that match Pattern a class, and says how the
// class is treated. Several endpoints may share a class; they must then agree
// on everything but pattern and query.
type Endpoint struct {
	// Pattern is a net/http.ServeMux pattern, such as "POST /acme/new-order".
	// Empty: the class is used through [Limiter.Protect] only.
	Pattern string `json:"pattern" yaml:"pattern" toml:"pattern"`
	Class   Class  `json:"class" yaml:"class" toml:"class"`
	// Query narrows Pattern to the GET and HEAD requests without a body whose
	// query has this parameter with this value, such as "operation=GetCACaps".
	// Another endpoint must have the same pattern without a query: its class is
	// that of all other requests, and of those that servers could read in two
	// ways, with the parameter twice or escaped, say; so let it be the one that is
	// limited most. One parameter a pattern. Default "": all requests.
	Query string `json:"query,omitempty" yaml:"query,omitempty" toml:"query,omitempty"`
	Kind  Kind   `json:"kind,omitempty" yaml:"kind,omitempty" toml:"kind,omitempty"` // default "api"
	// Cost is what one request takes from each tier, in tokens. 0 means 1.
	Cost float64 `json:"cost,omitempty" yaml:"cost,omitempty" toml:"cost,omitempty"`
	// Guard names the guard in Config.Guards; empty: none.
	Guard string `json:"guard,omitempty" yaml:"guard,omitempty" toml:"guard,omitempty"`
	// Backend names what the guard's slot is used for, such as one of several
	// HSMs behind the same guard, of which each may hold a part of the slots (see
	// [GuardConfig].BackendShare). Empty: it is not counted.
	Backend string `json:"backend,omitempty" yaml:"backend,omitempty" toml:"backend,omitempty"`
	Mode    Mode   `json:"mode,omitempty" yaml:"mode,omitempty" toml:"mode,omitempty"` // default "wait"
	// MaxWait replaces the tiers' MaxWait for this class; nil inherits it.
	MaxWait *Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty" toml:"max_wait,omitempty"`
	// Limits gives the class buckets of its own in the tiers it names, instead
	// of a share in the common ones: generous ones for what must hardly ever
	// be refused (a refused new-nonce ends nearly every ACME client's run,
	// requirement R7). A zero Limit takes the class out of that tier.
	Limits map[string]Limit `json:"limits,omitempty" yaml:"limits,omitempty" toml:"limits,omitempty"`
	// Auth says where the auth lock finds the credential of a request: "none",
	// "basic", "sigv4", "bearer", or "handler" where the handler calls
	// [Limiter.Attempt]. Default "basic" for kind est, "sigv4" for s3, else
	// "none", for which the lock does nothing and costs nothing. Without
	// [Config].AuthLock it is not looked at.
	Auth string `json:"auth,omitempty" yaml:"auth,omitempty" toml:"auth,omitempty"`
	// Disown gives the token that a request took from its account back, as
	// [Disown] does, when the answer leaves open whether the account was proved
	// (requirement T9): status 401 or 5xx, none at all, a guard that shed the
	// request, and for kind acme an error that is no problem document of at most
	// 4 KiB or one of type malformed, badNonce, badSignatureAlgorithm,
	// accountDoesNotExist or unauthorized. An account that the handler has
	// verified with [SetAccount] keeps its charge. Default false; [PKIEndpoints]
	// has it where it matters.
	Disown bool `json:"disown,omitempty" yaml:"disown,omitempty" toml:"disown,omitempty"`
	// Status is that of a refusal by a tier or window: 429 (Too Many Requests,
	// the default) or 503 (Service Unavailable). It changes nothing else; that
	// of a guard is 503, that of a lock 429, and kind s3 has 503 always. For
	// ACME it is a choice of clients: acmez repeats after a 503 only, lego 5 tells
	// its caller how long to wait after a 429 only, and certbot, uacme and
	// acme-tiny end their run on either. Not confirmed by a run: acme.sh repeats
	// after a 503 only, and cert-manager gives an order up for an hour on any 4xx
	// and comes back soon after a 5xx.
	Status int `json:"status,omitempty" yaml:"status,omitempty" toml:"status,omitempty"`
	// Renewals asks the hook of [WithRenewal] about orders that say which
	// certificate they replace (RFC 9773, section 5). For kind acme. Default
	// false; [PKIEndpoints] has it for new-order. Without the hook it does
	// nothing.
	Renewals bool `json:"renewals,omitempty" yaml:"renewals,omitempty" toml:"renewals,omitempty"`
}

// sameBut reports whether two endpoints differ in nothing but their pattern and
// query.
func (e Endpoint) sameBut(f Endpoint) bool {
	if len(e.Limits) != len(f.Limits) {
		return false
	}
	for tier, l := range e.Limits {
		if m, ok := f.Limits[tier]; !ok || m != l {
			return false
		}
	}
	sameWait := e.MaxWait == f.MaxWait || e.MaxWait != nil && f.MaxWait != nil && *e.MaxWait == *f.MaxWait
	return sameWait && e.Status == f.Status && e.Renewals == f.Renewals && e.Class == f.Class && e.Kind == f.Kind && e.Cost == f.Cost && e.Guard == f.Guard && e.Backend == f.Backend && e.Mode == f.Mode && e.Auth == f.Auth && e.Disown == f.Disown
}

// classPolicy is everything a request of one class needs to know, resolved
// when the configuration is compiled.
type classPolicy struct {
	name    Class
	kind    Kind
	exempt  bool
	uses    []tierUse // the tiers it spends from, identity tiers last
	network int       // uses[:network] need no identity, so no body
	renewal *tierUse  // of an exempt renewal, in the place of uses[network:]; nil: there is none
	windows windowUses
	guard   *Guard
	mode    Mode
	backend string // behind the guard
	// work is what a request is to guard, and acquireWait how long it may wait
	// for a slot; nil and 0 without a guard.
	work        *gate.Kind
	acquireWait time.Duration
	auth        string // where its credential is
	disown      bool   // look at the answers
	status      int    // of a refusal by a tier or window
	// unfinished are the refusals for too many unfinished bodies; nil but for ACME.
	unfinished *refusals
	count      *classCounts
}

// readsWhole reports whether a server of this kind needs the whole body before
// it can do anything, so that reading it early changes nothing. A handler of
// another kind may stream, or talk in both directions at once.
func (c *classPolicy) readsWhole() bool {
	if c == nil {
		return false
	}
	switch c.kind {
	case KindACME, KindOCSP, KindEST, KindSCEP:
		return true
	}
	return false
}

// tierUse is one class's use of one tier.
type tierUse struct {
	tier      *tier
	scope     string // the tier's own, or the class's where it has buckets of its own
	limit     store.Limit
	cost      float64
	shadow    bool
	maxWait   time.Duration
	window    time.Duration // a fixed window of that length, not a bucket
	always    bool          // counts arrivals, refused ones included
	overrides bool          // the tier's overrides apply
	refusals  *refusals     // of this class by this tier
}

// validateStatus finds a status that no refusal by a tier has.
func (e Endpoint) validateStatus(f *faults, path string) {
	switch {
	case e.Status != 0 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusServiceUnavailable:
		f.add(path, e.Status, ReasonOutOfRange, "write 429 or 503; 0 means 429")
	case e.Status == http.StatusTooManyRequests && e.Kind == KindS3:
		f.add(path, e.Status, ReasonConflict, "S3 clients read SlowDown under 503, which is what they get: leave it out")
	}
}
