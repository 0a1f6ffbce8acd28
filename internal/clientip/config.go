package clientip

import (
	"net/http"
	"strings"
)

// Config says whose headers are believed, and which. The zero value believes
// nobody: every client is the peer of its connection.
type Config struct {
	// Trusted lists the proxies: addresses ("192.0.2.10"), networks
	// ("10.0.0.0/8", "2001:db8::/32") and the word "unix" for peers on a
	// unix socket. Nothing is trusted unless it is written here, loopback
	// and private networks neither. Empty: headers are never read (I1).
	Trusted []string

	// Header is the one header that the proxies set, in any letter case:
	// "x-forwarded-for" (also ""), "forwarded" (RFC 7239), or "single:NAME"
	// for a header that holds one address, such as single:CF-Connecting-IP.
	// There is no fallback from one to another.
	Header string

	// XRealIP reads X-Real-IP where a trusted peer sent no X-Forwarded-For.
	// It has no effect in the other modes. Leave it off if the proxies pass
	// X-Real-IP through from their clients, as Amazon's balancers do.
	XRealIP bool

	// AllowAny permits a network of length 0, which lets every client name
	// its own address.
	AllowAny bool

	// TrustRequired says that headers are meant to be trusted, which makes
	// an empty list a fault (I6).
	TrustRequired bool
}

// A Fault is one thing that is wrong, or looks wrong, in a Config.
type Fault struct {
	Index   int    // in Trusted; -1 for the header or for the list as a whole
	Field   string // "trusted_proxies" or "header"
	Value   string // as configured
	Message string // what is the matter with it
	Fix     string // what to write instead: the text itself where it follows from Value, else a hint
}

const (
	fieldTrusted = "trusted_proxies"
	fieldHeader  = "header"
)

// New compiles a Config. All faults are reported at once, in the order of the
// list, the header after them; with any error the Resolver is nil. Warnings
// are legal but suspicious and come with or without errors. New keeps nothing
// of cfg.
func New(cfg Config) (*Resolver, []Fault, []Fault) {
	list := trustList{allowAny: cfg.AllowAny}
	for i, entry := range cfg.Trusted {
		list.add(i, entry)
	}
	errors, warnings := list.errors, list.warnings
	if len(cfg.Trusted) == 0 && cfg.TrustRequired {
		errors = append(errors, Fault{-1, fieldTrusted, "",
			"headers are to be trusted, but no proxy is listed",
			"the networks that the proxies connect from, such as 10.0.0.0/8"})
	}

	r := &Resolver{trusted: newPrefixSet(list.prefixes), unix: list.unix, realIP: cfg.XRealIP}
	var fault *Fault
	r.mode, r.name, fault = parseHeader(cfg.Header)
	switch {
	case fault != nil:
		errors = append(errors, *fault)
	case len(cfg.Trusted) == 0 && r.mode != modeXFF && !cfg.TrustRequired:
		warnings = append(warnings, Fault{-1, fieldHeader, cfg.Header,
			"never read, because no proxy is trusted",
			"the networks that the proxies connect from, in " + fieldTrusted})
	}
	if len(errors) > 0 {
		return nil, errors, warnings
	}
	return r, nil, warnings
}

// parseHeader reads Config.Header; name is set in mode single.
func parseHeader(value string) (m mode, name string, fault *Fault) {
	switch lower := strings.ToLower(value); {
	case lower == "" || lower == "x-forwarded-for":
		return modeXFF, "", nil
	case lower == "forwarded":
		return modeForwarded, "", nil
	case strings.HasPrefix(lower, "single:"):
		name = http.CanonicalHeaderKey(value[len("single:"):])
	}
	bad := func(message, fix string) (mode, string, *Fault) {
		return 0, "", &Fault{-1, fieldHeader, value, message, fix}
	}
	const choices = "x-forwarded-for, forwarded or single:NAME"
	switch {
	case strings.ContainsAny(value, ",; "):
		// Reading whichever is there lets the client choose the one that
		// the proxy does not set.
		return bad("names more than one header, or has blanks in it", "exactly one of "+choices)
	case name == "":
		return bad("is no way to find a client", choices)
	case name == headerXFF || name == headerForwarded:
		return bad("reads a list as if it were one address", strings.ToLower(name))
	case name == "Host":
		return bad("is not a header that holds an address", choices)
	case !isHeaderName(name):
		return bad("is not a header name", "single:NAME with letters, digits and dashes")
	}
	return modeSingle, name, nil
}

func isHeaderName(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}
