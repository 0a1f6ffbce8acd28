package weir

import (
	"math"
	"slices"
)

// auth is where requests of a kind have their credential, unless the endpoint
// says otherwise.
func (k Kind) auth() string {
	switch k {
	case KindEST: // RFC 7030, section 3.2.3
		return AuthBasic
	case KindS3:
		return AuthSigV4
	}
	return AuthNone
}

// defaults fills in the knobs for which 0 means the default.
func (c *AuthLockConfig) defaults(d AuthLockConfig) {
	orDefault(&c.Address.MaxFailures, d.Address.MaxFailures)
	orDefault(&c.Address.Window, d.Address.Window)
	orDefault(&c.Address.Lockout, d.Address.Lockout)
	orDefault(&c.Account.MaxFailures, d.Account.MaxFailures)
	orDefault(&c.Account.Window, d.Account.Window)
	orDefault(&c.Account.Lockout, d.Account.Lockout)
	orDefault(&c.Account.Remember, d.Account.Remember)
	orDefault(&c.Delay.After, d.Delay.After)
	orDefault(&c.Delay.First, d.Delay.First)
	orDefault(&c.Delay.Max, d.Delay.Max)
	orDefault(&c.Delay.MaxSleeping, d.Delay.MaxSleeping)
	orDefault(&c.Delay.MaxPerAddress, d.Delay.MaxPerAddress)
	orDefault(&c.MaxKeys, d.MaxKeys)
}

func (c *Config) validateAuthLock(f *faults) {
	a := &c.AuthLock
	for _, one := range []struct {
		path  string
		value int
		zero  string
	}{
		{"address.max_failures", a.Address.MaxFailures, "100"}, {"account.max_failures", a.Account.MaxFailures, "10"},
		{"delay.after", a.Delay.After, "10"}, {"delay.max_sleeping", a.Delay.MaxSleeping, "1024"},
		{"delay.max_per_address", a.Delay.MaxPerAddress, "8"}, {"max_keys", a.MaxKeys, "100000"},
	} {
		if one.value < 1 || one.value > math.MaxInt32 {
			f.add("auth_lock."+one.path, one.value, ReasonOutOfRange, "write a positive number; 0 means %s", one.zero)
		}
	}
	for _, one := range []struct {
		path  string
		value Duration
		zero  string
	}{
		{"address.window", a.Address.Window, "5m"}, {"address.lockout", a.Address.Lockout, "10m"},
		{"account.window", a.Account.Window, "1h"}, {"account.lockout", a.Account.Lockout, "1h"},
		{"account.remember", a.Account.Remember, "720h"},
		{"delay.first", a.Delay.First, "200ms"}, {"delay.max", a.Delay.Max, "5s"},
	} {
		if one.value < 0 {
			f.add("auth_lock."+one.path, one.value, ReasonOutOfRange, "write a duration; 0 means %s", one.zero)
		}
	}
	if a.Delay.First > 0 && a.Delay.Max > 0 && a.Delay.Max < a.Delay.First {
		f.add("auth_lock.delay.max", a.Delay.Max, ReasonConflict, "below the first delay (%v): raise it, or lower delay.first", a.Delay.First)
	}
	c.validatePairs(f)
}

// validatePairs looks at what has a meaning only where each credential id at an
// address is counted by itself.
func (c *Config) validatePairs(f *faults) {
	a := &c.AuthLock.Address
	for _, one := range []struct {
		path  string
		value int
	}{{"ceiling", a.Ceiling}, {"max_credentials", a.MaxCredentials}} {
		path := "auth_lock.address." + one.path
		switch {
		case one.value < 0 || one.value > math.MaxInt32:
			f.add(path, one.value, ReasonOutOfRange, "write a positive number, or 0 for none")
		case one.value > 0 && !a.PerCredential:
			f.add(path, one.value, ReasonInert, "it counts over the credentials of an address, which are counted together already: set per_credential, or drop it")
		}
	}
	if a.PerCredential && a.Ceiling > 0 && a.Ceiling < a.MaxFailures {
		f.add("auth_lock.address.ceiling", a.Ceiling, ReasonConflict, "below max_failures (%d), which one credential then never reaches: raise the one or lower the other", a.MaxFailures)
	}
}

// validateAuth looks at where an endpoint says that its credential is.
func (c *Config) validateAuth(f *faults, path string, e Endpoint) {
	if !slices.Contains([]string{AuthNone, AuthBasic, AuthSigV4, AuthBearer, AuthHandler}, e.Auth) {
		f.add(path+".auth", e.Auth, ReasonUnknown, "write none, basic, sigv4, bearer or handler")
	}
}

// adviseAuthLock returns what is legal in the auth lock but suspicious.
func (c *Config) adviseAuthLock(add func(path, text string, args ...any)) {
	a := &c.AuthLock
	if !a.Enabled {
		return
	}
	if !slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Auth != AuthNone }) {
		add("auth_lock", "no endpoint has an auth: it holds only where the program calls AuthLock or Attempt itself")
	}
	if a.Address.PerCredential && a.Address.Ceiling == 0 && a.Address.MaxCredentials == 0 {
		add("auth_lock.address.per_credential", "each credential id at an address has failures of its own, so an address that tries many ids is never locked; set ceiling or max_credentials")
	}
	if a.Account.AdmitLoopback {
		add("auth_lock.account.admit_loopback", "whoever reaches this server from this machine is admitted to locked accounts; behind a proxy on this machine that adds no forwarding header that is everybody")
	}
	if c.Store.OnError == "allow" {
		add("store.on_error", "while the store fails, guesses are neither counted nor refused: whoever can overload it turns the auth lock off; local counts in each process meanwhile")
	}
	if a.Delay.Max > Duration(30e9) {
		add("auth_lock.delay.max", "clients give up after some %v and try again, which is one more attempt each time", Duration(30e9))
	}
}
