package jws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// modelKeyID is KeyID written for plainness only, on encoding/json's tokens,
// encoding/base64 and the expression of RFC 3986 appendix B.
func modelKeyID(body []byte) (kid string, ok bool) {
	outer, ok := modelMembers(body)
	if !ok || len(modelFolded(outer, "signatures")) > 0 || len(modelFolded(outer, "protected")) != 1 || len(outer["protected"]) != 1 {
		return "", false
	}
	protected, ok := outer["protected"][0].(string)
	if !ok {
		return "", false
	}
	protected = strings.NewReplacer("\r", "", "\n", "", "=", "", "+", "-", "/", "_").Replace(protected)
	header, err := base64.RawURLEncoding.DecodeString(protected)
	if err != nil {
		return "", false
	}
	inner, ok := modelMembers(header)
	if !ok || len(modelFolded(inner, "jwk")) > 0 || len(modelFolded(inner, "kid")) != 1 || len(inner["kid"]) != 1 {
		return "", false
	}
	kid, ok = inner["kid"][0].(string)
	if !ok || kid == "" || strings.ContainsRune(kid, utf8.RuneError) {
		return "", false
	}
	if id := uniqueAtEnd.FindStringSubmatch(kid); id != nil && modelUnique(id[1]) {
		return id[1], true
	}
	if url := absoluteURL.FindStringSubmatch(kid); url != nil {
		kid = "/" + strings.TrimPrefix(url[1], "/")
		if id := uniqueAtEnd.FindStringSubmatch(kid); id != nil && modelUnique(id[1]) {
			return id[1], true
		}
	}
	return numberAtEnd.ReplaceAllString(kid, "$1$2"), true
}

// modelFolded lists the values of a name in any letter case.
func modelFolded(members map[string][]json.Token, word string) (values []json.Token) {
	for name, list := range members {
		if strings.EqualFold(name, word) {
			values = append(values, list...)
		}
	}
	return values
}

var uniqueAtEnd = regexp.MustCompile(`(?s)^(?:.*/)?([A-Za-z0-9]{32}|[[:xdigit:]]{8}(?:-[[:xdigit:]]{4}){3}-[[:xdigit:]]{12})/*$`)

func modelUnique(id string) bool {
	return len(id) == 36 || !regexp.MustCompile(`^(?:[a-z]+|[A-Z]+|[0-9]+)$`).MatchString(id)
}

var numberAtEnd = regexp.MustCompile(`(?s)^(/(?:.*/)?)\+?0*([0-9]+)$`)

var absoluteURL = regexp.MustCompile(`(?s)^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*([^?#]*)(?:\?[^#]*)?(?:#.*)?$`)

// modelMembers lists the values of each name of the one object in text. A value
// that is an object or an array is listed as the json.Delim that opens it.
func modelMembers(text []byte) (values map[string][]json.Token, ok bool) {
	if !json.Valid(text) {
		return nil, false
	}
	tokens := json.NewDecoder(bytes.NewReader(text))
	tokens.UseNumber()
	if first, _ := tokens.Token(); first != json.Delim('{') {
		return nil, false
	}
	values = make(map[string][]json.Token)
	deepest := 1
	for tokens.More() {
		name, err := tokens.Token()
		if err != nil {
			return nil, false
		}
		value, err := tokens.Token()
		if err != nil {
			return nil, false
		}
		values[name.(string)] = append(values[name.(string)], value)
		deepest = max(deepest, 1+opens(value))
		for depth := opens(value); depth > 0; {
			inside, err := tokens.Token()
			if err != nil {
				return nil, false
			}
			depth += opens(inside)
			deepest = max(deepest, 1+depth)
		}
	}
	if _, err := tokens.Token(); err != nil {
		return nil, false
	}
	_, err := tokens.Token()
	return values, err == io.EOF && deepest <= maxDepth
}

// opens is by how much a token changes the depth.
func opens(token json.Token) int {
	switch token {
	case json.Delim('{'), json.Delim('['):
		return 1
	case json.Delim('}'), json.Delim(']'):
		return -1
	}
	return 0
}

// agree fails the test unless KeyID and its model say the same of body and of
// a JWS that has body for its protected header.
func agree(t *testing.T, body []byte) {
	t.Helper()
	for _, text := range [][]byte{body, []byte(signed(string(body)))} {
		before := bytes.Clone(text)
		got, ok := KeyID(text)
		want, wantOK := modelKeyID(text)
		if got != want || ok != wantOK {
			t.Fatalf("KeyID(%q) = %q, %v, the model says %q, %v", text, got, ok, want, wantOK)
		}
		if !ok && got != "" || ok && got == "" {
			t.Fatalf("KeyID(%q) = %q, %v: a name without ok, or ok without one", text, got, ok)
		}
		if !bytes.Equal(text, before) {
			t.Fatalf("KeyID wrote to %q", before)
		}
	}
}

func FuzzKeyID(f *testing.F) {
	for _, tt := range claims {
		f.Add([]byte(tt.body))
	}
	for _, body := range hostileBodies(256) {
		f.Add([]byte(body))
	}
	f.Add([]byte(header(`"kid":` + quoted(own))))
	f.Fuzz(agree)
}

// Bytes at random hardly ever make a JWS, so this puts together members that
// matter, in any order and number, and then spoils a byte of some.
func TestKeyIDAgreesWithItsModel(t *testing.T) {
	names := []string{"protected", "kid", "jwk", "signatures", "Protected", "KID", "payload", "", `\u006bid`, `\u0070rotected`, `kid\\`, `\"kid`, "kid\xff"}
	values := []string{`"x"`, `""`, quoted(own), quoted(victim), `1`, `-0.1E+9`, `null`, `[]`, `[[{"kid":"x"},"]\\"],1]`, `{}`, `{"kid":{"jwk":"}"}}`,
		`"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`, `"\ude00\ud83d"`, `"` + "\xff" + `"`, `"a://b"`, `"a+1://?x/y#z"`, `"1://b/c"`, `"/a/007"`, `"a://b/+00"`, quoted("a://b/c?/" + someUUID), quoted("/x/" + someAlnum + "/"), quoted(someAlnum + "?#"), quoted("a://b/" + someAlnum + "#/"), `"\n:\/\/\\"`}
	spaces := []string{"", "", "", " ", "\n\t", "\r\n "}
	const spoilers = "\"\\{}[],:=\xff0a"

	rnd := rand.New(rand.NewPCG(1, 2))
	pick := func(of []string) string { return of[rnd.IntN(len(of))] }
	object := func(fixed ...string) []byte {
		members := fixed
		for range rnd.IntN(4) {
			members = append(members, pick(spaces)+quoted(pick(names))+pick(spaces)+":"+pick(spaces)+pick(values)+pick(spaces))
		}
		rnd.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		return []byte(pick(spaces) + "{" + strings.Join(members, ",") + "}" + pick(spaces))
	}
	named := 0
	for range 3_000 {
		head := object(`"kid":` + pick(values))
		body := object(`"protected":` + quoted(encode(string(head))))
		if rnd.IntN(4) == 0 {
			body[rnd.IntN(len(body))] = spoilers[rnd.IntN(len(spoilers))]
		}
		agree(t, body)
		agree(t, head)
		if _, ok := KeyID(body); ok {
			named++
		}
	}
	if named < 150 {
		t.Errorf("only %d of 3000 bodies named an account: the generator tests nothing", named)
	}
}

func FuzzUnescape(f *testing.F) {
	for _, text := range []string{`a`, `\u0041`, `\ud83d\ude00`, `\ud83d`, `\ud83d\ud83d\ude00`, `\ude00\n`, `\ud83d\\u0041`, `\"\\\/\b\f\n\r\t`, "\xff\\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		quoted := `"` + string(text) + `"`
		var want string
		if json.Unmarshal([]byte(quoted), &want) != nil {
			return // unescape asks for a valid string
		}
		// encoding/json also replaces invalid UTF-8; unescape leaves that to its caller.
		got := strings.ToValidUTF8(string(unescape(nil, text)), "\ufffd")
		if collapse(got) != collapse(want) {
			t.Errorf("unescape(%q) = %q, encoding/json says %q", text, got, want)
		}
	})
}

// collapse makes one U+FFFD of several in a row: encoding/json writes one for
// each invalid byte, strings.ToValidUTF8 one for each run of them.
func collapse(s string) string {
	return regexp.MustCompile("\ufffd+").ReplaceAllString(s, "\ufffd")
}
