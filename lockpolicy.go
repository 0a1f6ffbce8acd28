package weir

import (
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// lockWord names one kind of failure counter, in metrics, logs, audit events
// and [LockedError].
type lockWord uint8

const (
	lockAddress lockWord = iota // one address, or one credential id at one address
	lockCeiling                 // all credential ids of one address
	lockSpray                   // distinct credential ids of one address
	lockAccount                 // one account, over all addresses
	lockCaller                  // one address at one account, while the account's own does not hold for it
	lockWords
)

var lockWordText = [lockWords]string{"address", "ceiling", "spray", "account", "caller"}

func (w lockWord) String() string { return lockWordText[w] }

// StageAuthLock is the auth lock's word in Config.Shadow.
const StageAuthLock = "auth_lock"

// lockPolicy is the auth lock compiled.
type lockPolicy struct {
	shadow  bool
	pair    bool
	limits  [lockWords]store.LockLimit // Max 0: not counted
	scopes  [lockWords]string          // in the store
	account store.Account              // what every attempt at an account has in common
	direct  bool                       // a direct loopback request is admitted to a locked account
	reserve store.Reserve
	ladder  ladder
}

// compileLock returns nil where the auth lock is off (requirement T7).
func compileLock(cfg *Config) *lockPolicy {
	c := &cfg.AuthLock
	if !c.Enabled {
		return nil
	}
	p := &lockPolicy{
		shadow: slices.Contains(cfg.Shadow, StageAuthLock),
		pair:   c.Address.PerCredential, direct: c.Account.AdmitLoopback,
		ladder: ladder{c.Delay.After, time.Duration(c.Delay.First), time.Duration(c.Delay.Max)},
	}
	if c.ReserveAlways {
		p.reserve = store.ReserveAlways
	}
	address := store.LockLimit{Max: c.Address.MaxFailures, Window: time.Duration(c.Address.Window), Lockout: time.Duration(c.Address.Lockout)}
	p.limits[lockAddress], p.limits[lockCeiling], p.limits[lockSpray] = address, address, address
	p.limits[lockCeiling].Max, p.limits[lockSpray].Max = c.Address.Ceiling, c.Address.MaxCredentials
	p.limits[lockAccount] = store.LockLimit{Max: c.Account.MaxFailures, Window: time.Duration(c.Account.Window), Lockout: time.Duration(c.Account.Lockout)}
	for w := range lockWords {
		p.scopes[w] = cfg.Namespace + "/auth_" + w.String()
	}
	if p.pair { // keys of another kind: a Reload that switches must not mix them
		p.scopes[lockAddress] = cfg.Namespace + "/auth_credential"
	}
	p.scopes[lockCaller] = p.scopes[lockAccount] // the store keeps them together
	p.account = store.Account{
		Counter:  store.Counter{Scope: p.scopes[lockAccount], Limit: p.limits[lockAccount]},
		Remember: time.Duration(c.Account.Remember), OwnOnly: c.Account.ClearSameAddress,
	}
	return p
}

// words returns the kinds of counter that are in use, the callers' apart.
func (p *lockPolicy) words() []lockWord {
	list := []lockWord{lockAddress}
	for _, w := range []lockWord{lockCeiling, lockSpray} {
		if p.pair && p.limits[w].Max > 0 {
			list = append(list, w)
		}
	}
	return append(list, lockAccount)
}

// fill makes a the attempt with a credential.
func (p *lockPolicy) fill(a *Attempt, k *keyer, c Credential, located bool) {
	id, _ := folded(c.ID, true)
	account, ok := folded(c.Account, true)
	list := a.counters[:0]
	add := func(w lockWord, key store.Key) {
		a.words[len(list)] = w
		list = append(list, store.Counter{Scope: p.scopes[w], Key: key, Limit: p.limits[w], First: w == lockSpray})
	}
	if located {
		if !p.pair {
			add(lockAddress, a.who.key)
		} else {
			add(lockAddress, k.key("auth/credential", string(a.who.key[:])+id))
			if p.limits[lockSpray].Max > 0 { // directly after the counter that it looks at
				add(lockSpray, a.who.key)
			}
			if p.limits[lockCeiling].Max > 0 {
				add(lockCeiling, a.who.key)
			}
		}
	}
	a.at.Counters, a.at.Reserve = list, p.reserve
	if !ok {
		return
	}
	a.words[len(list)] = lockAccount
	a.at.Account = p.account
	a.at.Account.Key = k.key("auth/account", account)
	if a.at.Account.Caller = a.who.key; !located {
		a.at.Account.Remember = 0
	}
	a.at.Account.Admitted = p.direct && a.who.direct
}
