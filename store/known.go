package store

import (
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// known remembers which callers have signed in to which account (requirement
// L3): the newest [KnownCallers] of each, and in all no more than a bound, at
// which the account goes whose last sign-in is longest ago. A strict order of
// recency is the point here, and a sign-in is rare beside a request.
type known struct {
	max, total int
	accounts   *simplelru.LRU[Key, []caller]
}

// caller is one address and when it last signed in.
type caller struct {
	key Key
	at  int64
}

func newKnown(max int) *known {
	k := &known{max: max}
	// Every account has at least one caller, so the bound on callers is one on
	// accounts as well.
	k.accounts, _ = simplelru.NewLRU(max, func(_ Key, list []caller) { k.total -= len(list) })
	return k
}

// has reports whether the caller signed in within the time, inclusively.
func (k *known) has(account, who Key, now int64, within time.Duration) bool {
	if within <= 0 {
		return false
	}
	list, ok := k.accounts.Peek(account)
	if !ok {
		return false
	}
	i := slices.IndexFunc(list, func(c caller) bool { return c.key == who })
	return i >= 0 && now-list[i].at <= int64(within)
}

// add remembers a sign-in.
func (k *known) add(account, who Key, now int64) {
	list, _ := k.accounts.Get(account) // and moves it to the front
	if i := slices.IndexFunc(list, func(c caller) bool { return c.key == who }); i >= 0 {
		list[i].at = now
		return
	}
	if len(list) >= min(KnownCallers, k.max) {
		oldest := 0
		for i := range list {
			if list[i].at < list[oldest].at {
				oldest = i
			}
		}
		list[oldest] = caller{who, now}
		return
	}
	if len(list) == 0 && k.accounts.Len() >= k.max {
		k.accounts.RemoveOldest()
	}
	k.total++
	k.accounts.Add(account, append(list, caller{who, now}))
	for k.total > k.max && k.accounts.Len() > 1 {
		k.accounts.RemoveOldest()
	}
}

// resize sets the bound.
func (k *known) resize(max int) {
	k.max = max
	for k.total > k.max && k.accounts.Len() > 1 {
		k.accounts.RemoveOldest()
	}
	k.accounts.Resize(max)
}
