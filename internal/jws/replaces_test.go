package jws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// certID is the example of RFC 9773 §4.1.
const certID = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"

// ordering is a flattened JWS with that payload.
func ordering(payload string) string {
	return fmt.Sprintf(`{"protected":"e30","payload":%q,"signature":"c2ln"}`, base64.RawURLEncoding.EncodeToString([]byte(payload)))
}

var replacesCases = []struct {
	name, body string
	want       bool
}{
	{"an order that replaces a certificate", ordering(`{"identifiers":[{"type":"dns","value":"example.org"}],"replaces":"` + certID + `"}`), true},
	{"first of its members", ordering(`{"replaces":"` + certID + `","profile":"short"}`), true},
	{"written with blanks and lines", ordering("\n{ \"replaces\" :\t\"" + certID + "\" }\n"), true},
	{"a name with an escape", ordering(`{"\u0072eplaces":"` + certID + `"}`), true},
	{"a member of that name deeper inside", ordering(`{"x":{"replaces":"` + certID + `"}}`), false},
	{"an order that does not", ordering(`{"identifiers":[]}`), false},
	{"an empty payload", ordering(""), false},
	{"no payload", `{"protected":"e30","signature":"c2ln"}`, false},
	{"two payloads", strings.Replace(ordering(`{"replaces":"`+certID+`"}`), `{"pro`, `{"payload":"e30","pro`, 1), false},
	{"a payload in another case as well", strings.Replace(ordering(`{"replaces":"`+certID+`"}`), `{"pro`, `{"Payload":"e30","pro`, 1), false},
	{"a payload in another case only", strings.Replace(ordering(`{"replaces":"`+certID+`"}`), `"payload"`, `"PAYLOAD"`, 1), false},
	{"twice", ordering(`{"replaces":"` + certID + `","replaces":"` + certID + `"}`), false},
	{"in another case as well", ordering(`{"replaces":"` + certID + `","Replaces":"x.y"}`), false},
	{"in another case only", ordering(`{"REPLACES":"` + certID + `"}`), false},
	{"with a long s as well", ordering(`{"replaces":"` + certID + `","replace\u017f":"x.y"}`), false},
	{"a number", ordering(`{"replaces":17}`), false},
	{"null", ordering(`{"replaces":null}`), false},
	{"a value with an escape", ordering(`{"replaces":"\u0061YhbA4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"}`), false},
	{"a payload with padding", strings.Replace(ordering(`{"replaces":"`+certID+`"}`), `","sig`, `=","sig`, 1), false},
	{"a payload with an escaped line break", strings.Replace(ordering(`{"replaces":"`+certID+`"}`), `"payload":"`, `"payload":"\n`, 1), false},
	{"two values in the payload", ordering(`{"replaces":"` + certID + `"}{}`), false},
	{"a list", ordering(`["replaces","` + certID + `"]`), false},
	{"bytes behind the JWS", ordering(`{"replaces":"`+certID+`"}`) + "x", false},
	{"no dot", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ"}`), false},
	{"two dots", ordering(`{"replaces":"` + certID + `.AA"}`), false},
	{"nothing before the dot", ordering(`{"replaces":".AIdlQyE"}`), false},
	{"nothing behind the dot", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ."}`), false},
	{"the other alphabet", ordering(`{"replaces":"++++.AIdlQyE"}`), false},
	{"padding", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ=.AIdlQyE="}`), false},
	{"bits left over", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNR.AIdlQyE"}`), false},
	{"a zero too many", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ.AABl"}`), false},
	{"a negative serial number", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ.h2VDIQ"}`), false},
	{"the serial number 0", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ.AA"}`), false},
	{"a serial number of 22 bytes", ordering(`{"replaces":"aYhba4dGQEHhs3uEe6CuLN4ByNQ.` + strings.Repeat("e", 30) + `"}`), false},
	{"a key identifier of 65 bytes", ordering(`{"replaces":"` + strings.Repeat("e", 87) + `.AIdlQyE"}`), false},
	{"a megabyte", ordering(`{"replaces":"` + strings.Repeat("e", 1<<20) + `.AIdlQyE"}`), false},
}

func TestReplaces(t *testing.T) {
	for _, tt := range replacesCases {
		t.Run(tt.name, func(t *testing.T) {
			id, ok := Replaces([]byte(tt.body))
			assert.Equal(t, tt.want, ok)
			if tt.want {
				assert.Equal(t, certID, id)
			} else {
				assert.Empty(t, id)
			}
		})
	}
}

// Whatever is found, a server that decodes with encoding/json finds the same,
// and it has one spelling only.
func FuzzReplacesIsWhatAServerReads(f *testing.F) {
	for _, tt := range replacesCases[:len(replacesCases)-1] {
		f.Add([]byte(tt.body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		id, ok := Replaces(body)
		if !ok {
			return
		}
		var outer struct{ Payload string }
		var inner struct{ Replaces string }
		if err := json.Unmarshal(body, &outer); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		payload, err := base64.RawURLEncoding.DecodeString(outer.Payload)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if err := json.Unmarshal(payload, &inner); err != nil || inner.Replaces != id {
			t.Fatalf("%q is read as %q by a server, as %q here: %v", body, inner.Replaces, id, err)
		}
		var again []string
		for part := range strings.SplitSeq(id, ".") {
			raw, err := base64.RawURLEncoding.DecodeString(part)
			if err != nil || len(raw) == 0 {
				t.Fatalf("%q is no identifier", id)
			}
			again = append(again, base64.RawURLEncoding.EncodeToString(raw))
		}
		if strings.Join(again, ".") != id || len(again) != 2 {
			t.Fatalf("%q has another spelling", id)
		}
	})
}
