package weir

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/quota"
	"github.com/weir-go/weir/store"
)

// The fixed windows (requirements W1–W5), by the names that metrics, documents
// and Config.Shadow use.
const (
	WindowProcess = "process" // all arrivals, whoever they are from
	WindowSubject = "subject" // the requests of one verified account
	WindowAddress = "address" // the requests of one address without one
)

var windowNames = []string{WindowProcess, WindowSubject, WindowAddress}

// classOther is the endpoint label of requests without a class, which the
// process ceiling still counts.
const classOther Class = "unclassified"

// windowUses are the windows that the requests of one class are counted in; nil
// is off.
type windowUses struct{ process, subject, address *tierUse }

// compileWindows resolves the windows of a class. The keyed ones are for
// requests that have a class; arrivals are counted for all.
func (p *policy) compileWindows(l *Limiter, c *classPolicy) {
	cfg := &p.cfg.Windows
	if !cfg.Enabled {
		return
	}
	c.windows.process = p.windowUse(l, c, WindowProcess, fromNothing, cfg.Process)
	if c != p.endpoints.other {
		c.windows.subject = p.windowUse(l, c, WindowSubject, fromAccount, cfg.PerSubject)
		c.windows.address = p.windowUse(l, c, WindowAddress, fromAddress, cfg.PerAddress)
	}
}

func (p *policy) windowUse(l *Limiter, c *classPolicy, name string, from source, limit int) *tierUse {
	if limit <= 0 {
		return nil
	}
	u := &tierUse{
		tier: &tier{name: name, source: from}, scope: p.cfg.Namespace + "/" + name,
		limit: store.Limit{Burst: float64(limit)}, cost: 1,
		window: time.Duration(p.cfg.Windows.Window), always: name == WindowProcess,
	}
	p.count(l, c, u)
	p.addScope(name, u)
	return u
}

// outside marks the patterns of WindowsConfig.Exclude in a ServeMux.
type outside struct{}

// ServeHTTP makes it a http.Handler. It is never called.
func (outside) ServeHTTP(http.ResponseWriter, *http.Request) {}

// exclusions are the patterns of WindowsConfig.Exclude (requirement W5): probes
// come from the proxy's address, and one page asks for many assets.
type exclusions struct {
	mux *http.ServeMux // nil: there are none
	// first are the first segments of the patterns' paths, so that requests with
	// another are spared the mux. Nil: a pattern may begin with any.
	first map[string]bool
}

func newExclusions(patterns []string) exclusions {
	if len(patterns) == 0 {
		return exclusions{}
	}
	x := exclusions{mux: http.NewServeMux(), first: map[string]bool{}}
	for _, pattern := range patterns {
		x.mux.Handle(pattern, outside{})
		segment := firstSegment(pattern[strings.IndexByte(pattern, '/'):])
		if literal, err := url.PathUnescape(segment); err != nil || segment == "" || segment[0] == '{' || strings.Contains(literal, "/") {
			x.first = nil // a wildcard, the root, or one that decodes to several
		} else if x.first != nil {
			x.first[literal] = true
		}
	}
	// Where nothing matches ServeMux looks for methods that would, which is most
	// of what it costs. An error is a pattern that matches all itself.
	_ = register(x.mux, "/")
	return x
}

// have reports whether a request is outside the keyed windows. One with a path
// that the ServeMux would clean first (it never does for CONNECT), or that is
// another one when it is decoded or has lost its parameters (see endpoints), is
// not: below an excluded tree it would be a way to anywhere, for the handler
// behind may clean or decode it too.
func (x *exclusions) have(r *http.Request) bool {
	switch {
	case x.mux == nil, r.Method == http.MethodConnect:
		return false
	case x.first != nil && !x.first[firstSegment(r.URL.Path)]: // the decoded path must match in any case
		return false
	case strings.ContainsAny(r.URL.Path, `;\`), !x.match(r):
		return false
	}
	return r.URL.RawPath == "" || x.match(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: r.URL.Path}})
}

func (x *exclusions) match(r *http.Request) bool {
	h, _ := x.mux.Handler(r)
	_, ok := h.(outside)
	return ok
}

// firstSegment returns what stands between the first two slashes of a path.
func firstSegment(path string) string {
	path = strings.TrimPrefix(path, "/")
	if i := strings.IndexByte(path, '/'); i >= 0 {
		path = path[:i]
	}
	return path
}

// addWindow counts the request in exactly one keyed window (requirement W1):
// the account's if somebody vouches for it, else the address's. A mere claim
// counts for nothing here, or each new claim would be a new budget. Switched
// off, the subject's window leaves an account uncounted.
func (b *basket) addWindow(l *Limiter, t *transit) {
	w := &t.c.windows
	switch {
	case w.address == nil || t.p.exclude.have(t.r):
	case !t.sure:
		b.add(w.address, t.who.key, w.address.limit)
	case w.subject != nil:
		b.add(w.subject, l.keyer.key(TierPerAccount, t.account), w.subject.limit)
	}
}

// arrive counts a request that is decided without the store, on a list say, as
// an arrival (requirement W3).
func (l *Limiter) arrive(t *transit) {
	u := t.c.windows.process
	if u == nil || t.stages&stageWindows == 0 || t.arrived {
		return
	}
	t.arrived = true
	b := l.baskets.Get().(*basket)
	b.reset()
	b.add(u, store.Key{}, u.limit)
	b.checks[0].Shadow = true
	l.admit(t.r.Context(), t.p, b)
	l.baskets.Put(b)
}

// arrived makes sure that a request which is held, and asks the store again, is
// one arrival. If it has passed the process ceiling, it is done with that; if
// not, nothing else lets it in.
func (b *basket) arrived() {
	for i := range b.checks {
		c, s := &b.checks[i], &b.states[i]
		if !c.Always {
			continue
		}
		b.hasArrived, b.arrivalWait = true, s.Wait
		if c.Always = false; c.Shadow || s.Wait == 0 {
			c.Shadow, c.Cost = true, 0
		}
	}
}

// tell writes what is left into the header, where the configuration wants it
// (requirement W4): of the tightest tier or window or, on a refusal, of the
// one that refused. Answers that a shared cache may keep are left alone.
func (t *transit) tell(b *basket, at int, refused bool) {
	h := t.p.headers
	if at < 0 || at >= len(b.states) || !h.Wanted(refused) || !refused && (t.c.kind == KindOCSP || t.c.kind == KindCRL) {
		return
	}
	var all []quota.Quota
	if h.IETF {
		all = make([]quota.Quota, 0, len(b.states))
		for i := range b.states {
			if !b.uses[i].shadow {
				all = append(all, b.quota(i))
			}
		}
	}
	h.Write(t.w.Header(), time.Now(), b.quota(at), all)
}

func (b *basket) quota(i int) quota.Quota {
	c, s := &b.checks[i], &b.states[i]
	return quota.Quota{
		Name: b.uses[i].tier.name, Limit: c.Limit.Burst, Remaining: s.Tokens,
		Rate: c.Limit.Rate, Window: c.Window, Reset: s.Reset,
	}
}
