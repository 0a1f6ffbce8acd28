package weir

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// endpoints finds the class of a request: a real ServeMux does the matching.
//
// Two plain kinds of pattern are found in maps, which spares the requests that
// come most often the walk of the tree and its allocations. A pattern that is
// nothing but a path (/acme/new-order) is the best one wherever it matches, or
// ServeMux would have refused it as conflicting with the other. One that is a
// path and all below (/ocsp/{request...}) is the best wherever it is the
// longest, unless some pattern with a wildcard of another kind matches there.
// Methods come first in both, as in ServeMux.
type endpoints struct {
	mux       *http.ServeMux // nil: no patterns
	byPattern map[string]*route
	literal   map[methodPath]*route // by the whole path
	subtree   map[methodPath]*tree  // by the path down to its last slash
	root      map[methodPath]*tree  // the same without that slash: ServeMux redirects there
	plain     bool                  // these maps are of use
	fallback  *classPolicy          // may be nil
	other     *classPolicy          // of requests without a class: nothing but the process ceiling
}

// of returns the request's class, or nil if it has none.
//
// A path can be read in several ways. ServeMux takes /acme%2Fnew-order for one
// segment; routers that match URL.Path do not. Servlet containers drop what is
// behind a semicolon in each segment (RFC 3986, section 3.3), IIS takes a
// backslash for a slash. Which one stands behind is not known here, so all
// readings are looked at, and the class that one of them finds holds. Where they
// find two, the sender could choose how it is limited: /ocsp/..%2Facme%2Fdirectory
// is an OCSP request to the one and a directory to the other. Such a path, and
// any with a segment . or .. in one of the readings, which clients resolve
// before they send (RFC 3986, section 5.2.4) and servers resolve differently,
// has the class ambiguous, and is refused. A host that is spelled in another
// way (RFC 9110, section 4.2.3) is looked at as it is meant, too. What has no
// class has that of the path without a slash at its end, if there is one: many
// routers see no difference.
func (e *endpoints) of(r *http.Request) *classPolicy {
	if e.mux == nil {
		return e.fallback
	}
	foreign := strings.IndexByte(r.URL.Path, ';') >= 0 || strings.IndexByte(r.URL.Path, '\\') >= 0
	if e.plain && r.URL.RawPath == "" && r.Method != http.MethodConnect && !foreign {
		if rt := e.shortcut(r.Method, r.URL.Path); rt != nil {
			return rt.of(r)
		}
	}
	bare, early := r.URL.Path, r.URL.Path // what is left when parameters go after, or before, escapes are decoded
	if foreign {
		bare = withoutParameters(bare)
		if early = bare; r.URL.RawPath != "" {
			if path, err := url.PathUnescape(withoutParameters(r.URL.RawPath)); err == nil {
				early = path
			}
		}
	}
	if hasDots(r.URL.Path) || foreign && (hasDots(bare) || hasDots(early)) {
		return ambiguous
	}
	c := e.match(r)
	if host := plainHost(r.Host); host != r.Host || r.URL.RawPath != "" || foreign {
		meant := &http.Request{Method: r.Method, Host: host, ContentLength: r.ContentLength, URL: &url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}}
		if m := e.match(meant); m != nil {
			c = m
		}
		for _, path := range [...]string{r.URL.Path, bare, early} {
			meant.URL.Path, meant.URL.RawPath = path, ""
			if m := e.match(meant); m != nil && c != nil && m != c {
				return ambiguous
			} else if m != nil {
				c = m
			}
		}
	}
	if trimmed := strings.TrimRight(early, "/"); c == nil && trimmed != early && trimmed != "" {
		c = e.match(&http.Request{Method: r.Method, Host: plainHost(r.Host), ContentLength: r.ContentLength, URL: &url.URL{Path: trimmed, RawQuery: r.URL.RawQuery}})
	}
	if c != nil {
		return c
	}
	return e.fallback
}

// withoutParameters is a path as servlet containers and IIS read it.
func withoutParameters(path string) string {
	var b strings.Builder
	inside := false
	for i := range len(path) {
		switch c := path[i]; {
		case c == '/' || c == '\\':
			inside = false
			b.WriteByte('/')
		case inside || c == ';':
			inside = true
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// ambiguous is the class of a request whose path means different things to
// different routers.
var ambiguous = &classPolicy{name: classOther, kind: KindAPI}

// hasDots reports whether a path has a segment . or ...
func hasDots(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// plainHost is a host in small letters and without the dot of the root, which
// ServeMux, comparing texts, takes for another.
func plainHost(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if at := strings.Index(host, ".:"); at >= 0 {
		host = host[:at] + host[at+1:]
	}
	return host
}

// match asks the mux. Where it would redirect (a path that is not clean) the
// request has the class of the pattern that it would be sent to: the handler
// behind may clean paths too.
func (e *endpoints) match(r *http.Request) *classPolicy {
	h, pattern := e.mux.Handler(r)
	rt, ok := h.(*route)
	if !ok {
		rt = e.byPattern[pattern]
	}
	if rt == nil {
		return nil
	}
	return rt.of(r)
}

// methodPath is a plain pattern; the method is "" for all.
type methodPath struct{ method, path string }

// tree is a pattern of a path and all below, and the others that reach into it.
type tree struct {
	*route
	wild []wildPath
}

// wildPath is the path of a pattern with a wildcard, segment by segment.
type wildPath struct {
	segments []string // "" is a wildcard
	open     bool     // more may follow, or a slash
}

func newWildPath(path string) (w wildPath) {
	for segment := range strings.SplitSeq(path[1:], "/") {
		switch {
		case segment == "" || segment == "{$}" || strings.HasSuffix(segment, "...}"):
			w.open = true
			return w
		case segment[0] == '{':
			segment = ""
		}
		w.segments = append(w.segments, segment)
	}
	return w
}

// mayMatch is false if ServeMux matches the pattern to the path in no way, nor
// redirects the one to the other.
func (w *wildPath) mayMatch(path string) bool {
	rest, more := path[1:], true
	for _, want := range w.segments {
		if !more {
			return false
		}
		var segment string
		if segment, rest, more = strings.Cut(rest, "/"); want != "" && want != segment {
			return false
		}
	}
	return w.open || !more
}

// decides reports whether no other pattern has a say in what path is.
func (t *tree) decides(path string) bool {
	for i := range t.wild {
		if t.wild[i].mayMatch(path) {
			return false
		}
	}
	return true
}

// newEndpoints registers patterns, which are known to be sound, and distinct.
func newEndpoints(patterns []string, routes []*route) endpoints {
	e := endpoints{
		byPattern: map[string]*route{},
		literal:   map[methodPath]*route{}, subtree: map[methodPath]*tree{}, root: map[methodPath]*tree{}, plain: true,
	}
	reach := map[string][]wildPath{} // patterns with other wildcards, by what they have before those
	for i, pattern := range patterns {
		if e.mux == nil {
			e.mux = http.NewServeMux()
		}
		e.mux.Handle(pattern, routes[i])
		e.byPattern[pattern] = routes[i]
		method, rest := "", pattern
		if at := strings.IndexAny(pattern, " \t"); at >= 0 {
			method, rest = pattern[:at], strings.TrimLeft(pattern[at:], " \t")
		}
		fixed, wildcard, found := strings.Cut(rest, "{")
		switch {
		case rest[0] != '/' || !plainPath(fixed):
			// A host's pattern goes before all without one, and one with escapes
			// may mean the same path as another.
			e.plain = false
		case !found && fixed[len(fixed)-1] != '/':
			e.literal[methodPath{method, fixed}] = routes[i]
		case !found || strings.HasSuffix(wildcard, "...}") && strings.Count(wildcard, "{") == 0:
			e.subtree[methodPath{method, fixed}] = &tree{route: routes[i]}
		case plainWild(wildcard):
			reach[fixed] = append(reach[fixed], newWildPath(rest))
		default:
			e.plain = false
		}
	}
	for at, t := range e.subtree {
		for fixed, list := range reach {
			if strings.HasPrefix(at.path, fixed) || strings.HasPrefix(fixed, at.path) {
				t.wild = append(t.wild, list...)
			}
		}
		e.root[methodPath{at.method, at.path[:len(at.path)-1]}] = t
	}
	return e
}

// plainWild reports whether what follows the first brace of a pattern can be
// compared to a path as it is: nothing in it is escaped.
func plainWild(wildcard string) bool { return !strings.Contains(wildcard, "%") }

// plainPath reports whether a path, or the beginning of one that ends in a
// slash, stands for itself only: nothing in it could be escaped or cleaned.
func plainPath(p string) bool {
	return !strings.ContainsFunc(p, notPlain) && cleanPath(p)
}

func notPlain(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return !strings.ContainsRune("/-_.~", c)
}

// cleanPath reports whether ServeMux would leave a path as it is.
func cleanPath(p string) bool {
	if p == "" || p[0] != '/' {
		return false
	}
	if n := len(p) - 1; n > 0 && p[n] == '/' {
		if p = p[:n]; p[n-1] == '/' {
			return false
		}
	}
	return path.Clean(p) == p
}

// maxDepth is how many slashes of a path are looked at for a subtree.
const maxDepth = 16

// shortcut finds the pattern where a plain one decides, or nil where the mux
// has to be asked.
func (e *endpoints) shortcut(method, path string) *route {
	if rt := inPlain(e.literal, method, path); rt != nil {
		return rt
	}
	if len(e.subtree) == 0 || !cleanPath(path) {
		return nil
	}
	if t := inPlain(e.root, method, path); t != nil {
		return t.shortcut(path)
	}
	for depth, at := 0, path; depth < maxDepth; depth++ {
		slash := strings.LastIndexByte(at, '/')
		if slash < 0 {
			return nil
		}
		if t := inPlain(e.subtree, method, at[:slash+1]); t != nil {
			return t.shortcut(path)
		}
		at = at[:slash]
	}
	return nil
}

func (t *tree) shortcut(path string) *route {
	if t.decides(path) {
		return t.route
	}
	return nil
}

// inPlain looks a path up by its method. GET is HEAD's too.
func inPlain[T any](m map[methodPath]*T, method, path string) *T {
	if v := m[methodPath{method, path}]; v != nil {
		return v
	}
	if method == http.MethodHead {
		if v := m[methodPath{http.MethodGet, path}]; v != nil {
			return v
		}
	}
	return m[methodPath{"", path}]
}
