package problem

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
)

// HTML writes a page for people: what happened, the wait in words, a link to
// Help where there is one, and status, reason and class in small print for
// whoever they ask.
//
// The page is whole in itself (no script, image or font to fetch, which would
// be more requests from a caller that made too many), follows the reader's
// light or dark scheme, and fits a phone. It does not reload itself: a crowd
// refused together would come back together, and a form would be lost.
// Content-Security-Policy, replacing one found in the header, allows the page
// its own style sheet and nothing else.
func HTML(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce = ""
	b := newBody()
	b.buf = rej.appendPage(b.buf)
	w.Header().Set("Content-Security-Policy", pagePolicy)
	send(w, r, &rej, "text/html; charset=utf-8", b)
}

func (rej *Rejection) appendPage(dst []byte) []byte {
	c := rej.cause()

	dst = append(dst, pageHead...)
	dst = append(dst, c.heading...)
	dst = append(dst, pageStyled...)
	dst = append(dst, c.heading...)
	dst = append(dst, "</h1>\n<p>"...)
	dst = append(dst, c.text...)
	dst = append(dst, "</p>\n"...)
	if rej.saysWhen() {
		secs := RetryAfterSeconds(rej.RetryAfter)
		dst = append(dst, `<p class="wait">Please try again <time datetime="PT`...)
		dst = strconv.AppendInt(dst, secs, 10)
		dst = append(dst, `S">`...)
		dst = appendWait(dst, secs)
		dst = append(dst, "</time>.</p>\n"...)
	}
	if ValidHelp(rej.Help) {
		dst = append(dst, `<p><a rel="help noreferrer" href="`...)
		dst = appendMarkup(dst, rej.Help)
		dst = append(dst, "\">Why did this happen?</a></p>\n"...)
	}

	dst = append(dst, "<p class=\"ref\">"...)
	dst = strconv.AppendInt(dst, int64(rej.StatusCode()), 10)
	for _, word := range [...]string{rej.Reason, rej.Class} {
		if word != "" {
			dst = append(dst, " &middot; "...)
			dst = appendMarkup(dst, word)
		}
	}
	return append(dst, pageTail...)
}

const (
	pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>`

	pageStyled = "</title>\n<style>" + pageStyle + "</style>\n</head>\n<body>\n<main>\n<h1>"

	pageTail = "</p>\n</main>\n</body>\n</html>\n"

	// Contrast is at least 4.5:1 for the small print in both schemes (WCAG 1.4.3).
	pageStyle = `
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d9dee3; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0f1318; --card: #181d24; --ink: #e8ebef; --soft: #98a3af; --line: #2c343d; --link: #79b8ff; }
}
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; min-height: 100dvh; padding: 1.25rem; display: flex; align-items: center; justify-content: center; background: var(--page); color: var(--ink); font: 1.0625rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { width: 100%; max-width: 30rem; padding: 2rem; background: var(--card); border: 1px solid var(--line); border-radius: .75rem; overflow-wrap: anywhere; }
h1 { margin: 0 0 .75rem; font-size: 1.5rem; line-height: 1.25; }
p { margin: 0 0 .75rem; }
.wait { font-weight: 600; }
a { color: var(--link); }
.ref { margin: 1.5rem 0 0; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft); font-size: .8125rem; }
`
)

// pagePolicy names the style sheet by its hash: 'unsafe-inline' would also
// bless a style that someone managed to inject.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()
