package gate

// A turn is whose turn it is: one Flow's or, with rest, that of all Flows of a site
// which have none of their own.
type turn struct {
	of   Flow
	rest bool
}

// siteTurns is how many flows of one site have turns of their own. Whoever has an
// IPv6 site has 65536 networks, and is not to get as many turns, or all places of
// the queue, by a request from each: the other networks of the site share one more
// turn. A site with more clients than that waits longer for each of them, which only
// happens while more than that many wait.
const siteTurns = 4

// site is the /48 of an IPv6 network, the size that a site gets (RFC 6177). has is
// false for IPv4, where addresses cost money, and for work without an address.
func (f Flow) site() (s Flow, has bool) {
	copy(s[:6], f[:])
	return s, s != Flow{}
}

// turnOf returns the turn of a newcomer. Where the rest of its site has waiters,
// somebody of its flow can be among them, so it does not pass them.
func (q *queue) turnOf(key Flow) turn {
	own := turn{of: key}
	site, has := key.site()
	if !has || q.flows[own] != nil {
		return own
	}
	if rest := (turn{site, true}); q.sites[site] >= siteTurns || q.flows[rest] != nil {
		return rest
	}
	return own
}

func (q *queue) countSite(t turn, n int) {
	site, has := t.of.site()
	if !has || t.rest {
		return
	}
	if q.sites[site] += n; q.sites[site] == 0 {
		delete(q.sites, site)
	}
}
