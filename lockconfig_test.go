package weir

import "testing"

// locked switches the auth lock on and changes it.
func locked(change func(*AuthLockConfig)) func(*Config) {
	return func(c *Config) {
		c.AuthLock = DefaultConfig().AuthLock
		c.AuthLock.Enabled = true
		change(&c.AuthLock)
	}
}

func TestTheAuthLockAdvises(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		path   string // "": nothing
	}{
		{"nothing while it is off", func(*Config) {}, ""},
		{"nothing where an endpoint has a credential", locked(func(*AuthLockConfig) {}), ""},
		{"where no endpoint has one", func(c *Config) {
			locked(func(*AuthLockConfig) {})(c)
			c.Endpoints[0].Auth = AuthNone
		}, "auth_lock"},
		{"where pairs are counted and nothing else", locked(func(a *AuthLockConfig) { a.Address.PerCredential = true }), "auth_lock.address.per_credential"},
		{"nothing where a ceiling stops who tries many", locked(func(a *AuthLockConfig) { a.Address.PerCredential, a.Address.Ceiling = true, 1000 }), ""},
		{"where this machine is admitted", locked(func(a *AuthLockConfig) { a.Account.AdmitLoopback = true }), "auth_lock.account.admit_loopback"},
		{"where delays are longer than clients wait", locked(func(a *AuthLockConfig) { a.Delay.Max = Duration(60e9) }), "auth_lock.delay.max"},
		{"where it only watches", func(c *Config) {
			locked(func(*AuthLockConfig) {})(c)
			c.Shadow = []string{StageAuthLock}
		}, "shadow[0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.ClientIP.TrustedProxies = []string{"192.0.2.1"}
			cfg.Endpoints = []Endpoint{{Pattern: "/est", Class: "est", Kind: KindEST}}
			tt.change(&cfg)
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, a := range cfg.Advise() {
				paths = append(paths, a.Path)
			}
			if want := tt.path; len(paths) > 1 || len(paths) == 1 && paths[0] != want || len(paths) == 0 && want != "" {
				t.Errorf("advice on %q, want %q", paths, want)
			}
		})
	}
}
