package problem

import "net/http"

// Negotiate returns a Writer that lets the Accept field choose between three,
// by the q-values and precedence of RFC 9110 section 12.5.1:
//
//   - html for text/html or application/xhtml+xml,
//   - json for application/problem+json or application/json,
//   - plain for text/plain; a nil plain leaves these to json.
//
// Between equal q-values the range that names its type outright wins, then the
// one named first. Under a wildcard, html is the last choice: whoever sends */*,
// or no Accept at all, is a program and gets json. So does a field that accepts
// none of the three, is malformed, or is longer than 1 KiB, which is not parsed.
//
// It adds no Vary: what SetHeaders marks no-store is in no cache that could ask
// (RFC 9110, section 12.5.5, wants it on what is cacheable), and a ninth field
// makes the header of a 429 grow, which costs more than the rest of it. A Writer of
// yours that lets its answer be cached sets its own. Negotiate panics if html or
// json is nil.
func Negotiate(html, json, plain Writer) Writer {
	if html == nil || json == nil {
		panic("problem: Negotiate needs an html and a json Writer")
	}
	if plain == nil {
		plain = json
	}
	return func(w http.ResponseWriter, r *http.Request, rej Rejection) {
		switch preferred(r.Header["Accept"]) {
		case preferHTML:
			html(w, r, rej)
		case preferPlain:
			plain(w, r, rej)
		default:
			json(w, r, rej)
		}
	}
}

// ByAccept returns a Writer that answers with html where the Accept field
// prefers a page, and with other everywhere else, by the rules of [Negotiate].
// It panics if either is nil.
func ByAccept(html, other Writer) Writer {
	return Negotiate(html, other, other)
}
