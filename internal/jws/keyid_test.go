package jws

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	own    = "https://ca.example/acme/acct/1"
	victim = "https://ca.example/acme/acct/2"

	ownPath = "/acme/acct/1"
)

// encode returns base64url without padding, as RFC 7515 §2 has it.
func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// header returns a protected header with the given members beside the usual ones.
func header(members string) string {
	return `{"alg":"ES256",` + members + `,"nonce":"bm9uY2U","url":"https://ca.example/acme/new-order"}`
}

// withProtected returns a flattened JWS with the given text as the value of "protected".
func withProtected(value string) string {
	return `{"protected":` + value + `,"payload":"e30","signature":"c2ln"}`
}

// signed returns a flattened JWS with the given protected header.
func signed(header string) string { return withProtected(`"` + encode(header) + `"`) }

// byKID returns a flattened JWS whose kid is the given JSON value.
func byKID(value string) string { return signed(header(`"kid":` + value)) }

func quoted(text string) string { return `"` + text + `"` }

// escaped writes every character of an ASCII text as \uXXXX.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range text {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

// nested returns empty arrays inside each other.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// IDs as Vault and step-ca make them.
const (
	someUUID  = "c8f0ae3e-1b52-4d0f-8d55-9c0c1b5a6f11"
	someAlnum = "Jr2bWUe0zJ5mZs8oQ7yNq3tHc1vKx9Ad"
)

const anyJWK = `"jwk":{"kty":"EC","crv":"P-256","x":"eA","y":"eQ"}`

// claims holds one row for each form of a JWS that servers were seen to tell
// apart, and for each rule of KeyID. It also seeds the fuzz target.
var claims = []struct {
	name string
	body string
	want string // "" for no account
}{
	// What ordinary clients send.
	{"a number at the end is one however it is written", byKID(`"https://ca.example/acme/acct/007"`), "/acme/acct/7"},
	{"with a sign too", byKID(`"https://ca.example/acme/acct/+0070"`), "/acme/acct/70"},
	{"the number 0", byKID(`"https://ca.example/acme/acct/00"`), "/acme/acct/0"},
	{"without a host too", byKID(`"/acme/acct/007"`), "/acme/acct/7"},
	{"two signs are no number", byKID(`"https://ca.example/acme/acct/++7"`), "/acme/acct/++7"},
	{"a sign alone is no number", byKID(`"https://ca.example/acme/acct/+"`), "/acme/acct/+"},
	{"a name that begins with zeros is no number", byKID(`"https://ca.example/acme/acct/007a"`), "/acme/acct/007a"},
	{"a number in the middle stays as it is", byKID(`"https://ca.example/acme/007/x"`), "/acme/007/x"},
	{"a UUID is the account whatever is before it", byKID(quoted("https://vault.example/v1/pki/acme/account/" + someUUID)), someUUID},
	{"below another path", byKID(quoted("https://vault.example/v1/pki/x/" + someUUID)), someUUID},
	{"behind a query", byKID(quoted("https://vault.example/x?y/" + someUUID)), someUUID},
	{"before a query", byKID(quoted("https://vault.example/x/" + someUUID + "?y/z")), someUUID},
	{"behind no URL", byKID(quoted("a b/" + someUUID)), someUUID},
	{"alone", byKID(quoted(someUUID)), someUUID},
	{"32 letters and digits are it too", byKID(quoted("https://ca.example/acme/prov/account/x/" + someAlnum)), someAlnum},
	{"with slashes at the end", byKID(quoted("https://ca.example/acme/prov/account/" + someAlnum + "//")), someAlnum},
	{"32 digits may be a number", byKID(quoted("https://ca.example/a/" + strings.Repeat("1", 32))), "/a/" + strings.Repeat("1", 32)},
	{"32 letters may be a word", byKID(quoted("https://ca.example/a/" + strings.Repeat("x", 32))), "/a/" + strings.Repeat("x", 32)},
	{"in both cases they are an id", byKID(quoted("https://ca.example/a/" + strings.Repeat("xY", 16))), strings.Repeat("xY", 16)},
	{"33 are no id that is known", byKID(quoted("https://ca.example/a/" + someAlnum + "1")), "/a/" + someAlnum + "1"},
	{"no UUID", byKID(quoted("https://ca.example/a/" + strings.Replace(someUUID, "-", "0", 1))), "/a/" + strings.Replace(someUUID, "-", "0", 1)},
	{"a UUID has no other letters", byKID(quoted("https://ca.example/a/g" + someUUID[1:])), "/a/g" + someUUID[1:]},
	{"a kid is reduced to its path", byKID(quoted(own)), ownPath},
	{"white space between all tokens", " \t\r\n{ \"protected\" : " + quoted(encode("\n{ \"kid\" : "+quoted(own)+" }\t")) + " , \"payload\" : \"\" , \"signature\" : \"c2ln\" }\n ", ownPath},
	{"protected is the last member", `{"payload":"e30","signature":"c2ln","protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},
	{"POST-as-GET has an empty payload", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","payload":"","signature":"c2ln"}`, ownPath},
	{"a certificate of 100 names has a payload of 13 KiB", `{"payload":"` + strings.Repeat("QUJD", 3300) + `","protected":"` + encode(header(`"kid":`+quoted(own))) + `","signature":"c2ln"}`, ownPath},
	{"other header members of any type are passed over", signed(header(`"crit":["b64",{"kid":"x"}],"x":{"jwk":null},"n":-1.5e+3,"t":[true,false,null],"kid":` + quoted(own))), ownPath},

	// The signature is not looked at: a claim is a claim.
	{"a stranger names the victim and signs with nothing", `{"protected":"` + encode(header(`"kid":`+quoted(victim))) + `","payload":"e30","signature":""}`, "/acme/acct/2"},
	{"payload and signature are missing", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},

	// Other serialisations (RFC 7515 §7.1, §7.2.1).
	{"general JWS", `{"payload":"e30","signatures":[{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","signature":"c2ln"}]}`, ""},
	{"signatures beside protected", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","payload":"e30","signature":"c2ln","signatures":[]}`, ""},
	{"signatures that are null", `{"signatures":null,"protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"signatures with an escaped name", `{"\u0073ignatures":null,"protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"compact JWS", encode(header(`"kid":`+quoted(own))) + ".e30.c2ln", ""},
	{"compact JWS as a JSON string", quoted(encode(header(`"kid":`+quoted(own))) + ".e30.c2ln"), ""},
	{"an array around the JWS", "[" + byKID(quoted(own)) + "]", ""},

	// Names: exact, escapes resolved, no duplicates.
	{"two protected members", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","protected":"` + encode(header(`"kid":`+quoted(victim))) + `"}`, ""},
	{"two protected members alike", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"two protected members of which one is escaped", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","prot\u0065cted":"` + encode(header(`"kid":`+quoted(victim))) + `"}`, ""},
	{"Protected names the victim behind protected", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","Protected":"` + encode(header(`"kid":`+quoted(victim))) + `"}`, ""},
	{"Protected names the victim before protected", `{"Protected":"` + encode(header(`"kid":`+quoted(victim))) + `","protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"only PROTECTED", `{"PROTECTED":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"one escape in the name protected", `{"\u0070rotected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},
	{"every letter of the name protected escaped", `{"` + escaped("protected") + `":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},
	{"protected with an escaped capital", `{"\u0050rotected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"a name that begins with protected", `{"protected\u0000":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ""},
	{"the Kelvin sign is no k", signed(header(`"\u212aid":` + quoted(own))), ""},
	{"two kid members", signed(header(`"kid":` + quoted(own) + `,"kid":` + quoted(victim))), ""},
	{"two kid members of which one is escaped", signed(header(`"kid":` + quoted(own) + `,"\u006bid":` + quoted(victim))), ""},
	{"KID names the victim behind kid", signed(header(`"kid":` + quoted(own) + `,"KID":` + quoted(victim))), ""},
	{"KID names the victim before kid", signed(header(`"KID":` + quoted(victim) + `,"kid":` + quoted(own))), ""},
	{"kid names the victim, and the Kelvin sign makes another", signed(header(`"kid":` + quoted(victim) + `,"\u212aid":` + quoted(own))), ""},
	{"only KID", signed(header(`"KID":` + quoted(own))), ""},
	{"an escape in the name kid", signed(header(`"\u006bid":` + quoted(own))), ownPath},
	{"a backslash at the end of a name", `{"protected\\":"x","protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},
	{"a quote in a name", `{"\"protected":"x","protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},

	// kid or jwk, not both and not neither (RFC 8555 §6.2).
	{"jwk", signed(header(anyJWK)), ""},
	{"kid and jwk", signed(header(`"kid":` + quoted(own) + `,` + anyJWK)), ""},
	{"jwk and kid", signed(header(anyJWK + `,"kid":` + quoted(own))), ""},
	{"two jwk members", signed(header(anyJWK + `,` + anyJWK)), ""},
	{"kid and a jwk that is null", signed(header(`"kid":` + quoted(own) + `,"jwk":null`)), ""},
	{"kid and JWK", signed(header(`"kid":` + quoted(own) + `,"JWK":{}`)), ""},
	{"neither", signed(header(`"x":1`)), ""},
	{"an empty header", signed(`{}`), ""},
	{"a kid one level down", signed(header(`"x":{"kid":` + quoted(own) + `}`)), ""},

	// Values.
	{"kid is a number", byKID(`1`), ""},
	{"kid is null", byKID(`null`), ""},
	{"kid is true", byKID(`true`), ""},
	{"kid is an array", byKID(`[` + quoted(own) + `]`), ""},
	{"kid is an object", byKID(`{}`), ""},
	{"kid is empty", byKID(`""`), ""},
	{"kid with escaped slashes", byKID(`"https:\u002f\u002fca.example\u002facme\u002facct\u002f1"`), ownPath},
	{"kid with slashes escaped as PHP does", byKID(`"https:\/\/ca.example\/acme\/acct\/1"`), ownPath},
	{"kid with every escape there is", byKID(`"\"\\\/\b\f\n\r\tA\u00e9\ud83d\ude00"`), "\"\\/\b\f\n\r\tAé😀"},
	{"protected is null", withProtected(`null`), ""},
	{"protected is a number", withProtected(`1`), ""},
	{"protected is an object", withProtected(header(`"kid":` + quoted(own))), ""},
	{"protected is empty", withProtected(`""`), ""},
	{"protected is the JSON itself", withProtected(`"{\"kid\":\"x\"}"`), ""},

	// One account has one name.
	{"a kid on another host", byKID(`"https://evil.example/acme/acct/1"`), ownPath},
	{"a kid on another port", byKID(`"https://ca.example:14000/acme/acct/1"`), ownPath},
	{"a kid on an IPv6 host", byKID(`"https://[2001:db8::1]:443/acme/acct/1"`), ownPath},
	{"a kid with another scheme", byKID(`"http://ca.example/acme/acct/1"`), ownPath},
	{"a kid with a scheme in capitals", byKID(`"HTTPS://CA.example/acme/acct/1"`), ownPath},
	{"a kid with user information", byKID(`"https://a:b@ca.example/acme/acct/1"`), ownPath},
	{"a kid without a host", byKID(`"https:///acme/acct/1"`), ownPath},
	{"a kid whose host holds what no host may", byKID(`"https://a b%zz/acme/acct/1"`), ownPath},
	{"a kid with a query", byKID(`"https://ca.example/acme/acct/1?x=/2"`), ownPath},
	{"a kid with a fragment", byKID(`"https://ca.example/acme/acct/1#?/2"`), ownPath},
	{"a kid with a slash too many is another account", byKID(`"https://ca.example/acme/acct/1/"`), "/acme/acct/1/"},
	{"a path is not cleaned", byKID(`"https://ca.example//acme/./acct/1"`), "//acme/./acct/1"},
	{"a path is not decoded", byKID(`"https://ca.example/acme/acct/%31%zz"`), "/acme/acct/%31%zz"},
	{"a URL without a path", byKID(`"https://ca.example"`), "/"},
	{"a URL with a query for a path", byKID(`"https://ca.example?a/b"`), "/"},
	{"a kid that is no URL", byKID(`"kid-17"`), "kid-17"},
	{"a kid that is a path", byKID(`"/acme/acct/1"`), ownPath},
	{"a kid that is a URN", byKID(`"urn:example:1"`), "urn:example:1"},
	{"a kid without a scheme", byKID(`"://ca.example/1"`), "://ca.example/1"},
	{"a kid whose scheme begins with a digit", byKID(`"9p://ca.example/1"`), "9p://ca.example/1"},
	{"a kid with a URL inside", byKID(`"x/https://ca.example/1"`), "x/https://ca.example/1"},

	// Base64 as servers take it.
	{"a line break written as an escape in protected", withProtected(`"` + encode(`{"kid":  `) + `\r\n` + encode(quoted(own)+"}") + `"`), ownPath},
	{"padding at the end of protected", withProtected(`"` + encode(`{"kid":"x"} `) + `="`), "x"},
	{"padding after half a group of protected", withProtected(`"` + encode(`{"kid":`) + `==` + encode(`"x"}`) + `"`), ""},
	{"padding between whole groups of protected", withProtected(`"` + encode(`{"kid":  `) + `==` + encode(`"x"}`) + `"`), "x"},
	{"the standard alphabet", withProtected(quoted(base64.StdEncoding.EncodeToString([]byte(`{"a":"ÿþ~~~???","kid":"x"}`)))), "x"},
	{"the standard alphabet with escaped slashes", withProtected(quoted(strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(`{"a":"ÿþ~~~???","kid":"x"}`)), "/", `\/`))), "x"},
	{"a space in protected", withProtected(`"` + encode(`{"kid":  `) + ` ` + encode(`"x"}`) + `"`), ""},
	{"protected cut after the first digit of a group", withProtected(`"` + encode(`{"kid":"x"}  `)[:17] + `"`), ""},
	{"every digit of protected escaped", withProtected(quoted(escaped(encode(`{"kid":"x"}`)))), "x"},

	// What is not the protected header.
	{"the unprotected header names the victim", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","header":{"kid":` + quoted(victim) + `},"payload":"e30"}`, ownPath},
	{"only the unprotected header has a kid", `{"protected":"` + encode(header(`"x":1`)) + `","header":{"kid":` + quoted(own) + `},"payload":"e30"}`, ""},
	{"key change: the outer kid is the account", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","payload":"` + encode(signed(header(anyJWK))) + `","signature":"c2ln"}`, ownPath},
	{"a JWS of the victim in the payload", `{"protected":"` + encode(header(`"kid":`+quoted(own))) + `","payload":"` + encode(byKID(quoted(victim))) + `","signature":"c2ln"}`, ownPath},
	{"external account binding: its kid is not an account", `{"protected":"` + encode(header(anyJWK)) + `","payload":"` + encode(`{"externalAccountBinding":`+byKID(`"eab-1"`)+`}`) + `","signature":"c2ln"}`, ""},
	{"a payload that is an object with a protected of its own", `{"payload":` + byKID(quoted(victim)) + `,"protected":"` + encode(header(`"kid":`+quoted(own))) + `"}`, ownPath},

	// Not exactly one JSON text.
	{"nothing", "", ""},
	{"white space", " \n", ""},
	{"null", "null", ""},
	{"a number", "1", ""},
	{"a byte order mark", "\ufeff" + byKID(quoted(own)), ""},
	{"a byte order mark in the header", signed("\ufeff" + header(`"kid":`+quoted(own))), ""},
	{"a trailing byte", byKID(quoted(own)) + "x", ""},
	{"a trailing NUL", byKID(quoted(own)) + "\x00", ""},
	{"a second object", byKID(quoted(own)) + byKID(quoted(own)), ""},
	{"a trailing byte in the header", signed(header(`"kid":`+quoted(own)) + "x"), ""},
	{"a second object in the header", signed(`{"kid":"a"}{"kid":"b"}`), ""},
	{"a trailing comma", `{"protected":"` + encode(`{"kid":"x"}`) + `",}`, ""},
	{"the last brace is missing", `{"protected":"` + encode(`{"kid":"x"}`) + `"`, ""},
	{"a string that does not end", `{"protected":"`, ""},
	{"a line break in a string", "{\"protected\":\"" + encode(`{"kid":"x"}`) + "\n\"}", ""},
	{"a comment", `{/**/"protected":"` + encode(`{"kid":"x"}`) + `"}`, ""},
	{"single quotes", `{'protected':'` + encode(`{"kid":"x"}`) + `'}`, ""},
	{"a header that is an array", signed(`["kid","x"]`), ""},
	{"a header that is a string", signed(`"kid"`), ""},

	// Depth.
	{"64 levels in the body", `{"a":` + nested(63) + `,"protected":"` + encode(`{"kid":"x"}`) + `"}`, "x"},
	{"65 levels in the body", `{"a":` + nested(64) + `,"protected":"` + encode(`{"kid":"x"}`) + `"}`, ""},
	{"64 levels in the header", signed(`{"a":` + nested(63) + `,"kid":"x"}`), "x"},
	{"65 levels in the header", signed(`{"a":` + nested(64) + `,"kid":"x"}`), ""},
	{"65 levels of objects", `{"protected":"` + encode(`{"kid":"x"}`) + `","a":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 65), ""},

	// No two names become one through U+FFFD.
	{"invalid UTF-8 in the kid", byKID("\"https://ca.example/acct/\xff\""), ""},
	{"U+FFFD in the kid", byKID("\"https://ca.example/acct/\ufffd\""), ""},
	{"an escaped U+FFFD in the kid", byKID(`"https://ca.example/acct/\ufffd"`), ""},
	{"the first half of a surrogate pair in the kid", byKID(`"https://ca.example/acct/\ud800"`), ""},
	{"the second half of a surrogate pair in the kid", byKID(`"https://ca.example/acct/\udc00x"`), ""},
	{"two first halves in the kid", byKID(`"https://ca.example/acct/\ud800\ud800"`), ""},
	{"a surrogate of WTF-8 in the kid", byKID("\"\xed\xa0\x80\""), ""},
	{"an overlong slash in the kid", byKID("\"https://ca.example/acct\xc0\xaf1\""), ""},
	{"invalid UTF-8 on the host in the kid", byKID("\"https://\xff/acct/1\""), ""},
	{"invalid UTF-8 elsewhere changes no name", `{"x":"` + "\xff" + `","` + "\xff" + `":1,"protected":"` + encode(`{"`+"\xff"+`":"`+"\xff"+`","kid":"x"}`) + `"}`, "x"},
	{"another script in the kid", byKID(`"https://ca.example/konto/ä"`), "/konto/ä"},
}

func TestKeyID(t *testing.T) {
	for _, tt := range claims {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			got, ok := KeyID(body)
			assert.Equal(t, tt.want, got, "of %s", tt.body)
			assert.Equal(t, tt.want != "", ok, "of %s", tt.body)
			assert.Equal(t, tt.body, string(body), "the body was written to")
		})
	}
}

// Every name that a caller can give one account on a server that goes by the
// Host header must be one name here, and other accounts other names.
func TestKeyIDNamesAnAccountOnce(t *testing.T) {
	names := make(map[string]bool)
	for account := range 3 {
		for host := range 50 {
			kid, ok := KeyID([]byte(byKID(fmt.Sprintf(`"https://h%d.example/acme/acct/%d"`, host, account))))
			require.True(t, ok)
			names[kid] = true
		}
	}
	assert.Len(t, names, 3)
}

// Texts made to cost. That each is answered, and that all of them together end
// at once, is the test: anything quadratic in 64 KiB would not.
func TestKeyIDOnHostileBodies(t *testing.T) {
	for name, body := range hostileBodies(64 << 10) {
		t.Run(name, func(t *testing.T) {
			_, ok := KeyID([]byte(body))
			assert.False(t, ok)
		})
	}
}

// hostileBodies are texts of about size bytes, none of which names an account.
func hostileBodies(size int) map[string]string {
	fill := func(before, unit, after string) string {
		return before + strings.Repeat(unit, (size-len(before)-len(after))/len(unit)) + after
	}
	inHeader := func(before, unit, after string) string {
		n := (size*3/4 - 64 - len(before) - len(after)) / len(unit)
		return signed(before + strings.Repeat(unit, n) + after)
	}
	return map[string]string{
		"only opening brackets":        fill("", "[", ""),
		"only opening braces":          fill("", `{"":`, ""),
		"brackets that close":          `{"a":` + nested(size/2-8) + `}`,
		"many deep values":             fill("{", `"a":`+nested(63)+`,`, `"b":1}`),
		"many members":                 fill("{", `"a":1,`, `"b":1}`),
		"many empty members":           fill("{", `"":"",`, `"":""}`),
		"many escaped members":         fill("{", `"\u0061":1,`, `"b":1}`),
		"many long escaped members":    fill("{", `"`+strings.Repeat(`\n`, 80)+`":1,`, `"b":1}`),
		"a long escaped name":          fill(`{"`, `\u0070`, `":1}`),
		"a string of backslashes":      fill(`{"a":"`, `\\`, `"}`),
		"a string of quotes":           fill(`{"a":"`, `\"`, `"}`),
		"a huge number":                fill(`{"a":1`, "0", `}`),
		"a huge exponent":              fill(`{"a":1e`, "9", `}`),
		"many decimals":                fill(`{"a":0.`, "1", `}`),
		"white space":                  fill("{", " ", "}"),
		"many objects in an array":     fill(`{"a":[`, `{},`, `{}]}`),
		"a header of white space":      inHeader("{", " ", "}"),
		"a header of padding":          fill(`{"protected":"`, "=", `"}`),
		"a header of escaped padding":  fill(`{"protected":"`, `\u003d`, `"}`),
		"a header of members":          inHeader("{", `"a":1,`, `"b":1}`),
		"a header of brackets":         inHeader(`{"kid":`, "[", ""),
		"a header of surrogate halves": inHeader(`{"kid":"`, `\ud800`, `"}`),
		"a kid of replacements":        inHeader(`{"kid":"`, "\ufffd", `"}`),
	}
}

func TestKeyIDOfALongKID(t *testing.T) {
	long := "/" + strings.Repeat("a", 40<<10)
	kid, ok := KeyID([]byte(byKID(quoted("https://ca.example" + long))))
	assert.True(t, ok)
	assert.Equal(t, long, kid)
}
