package clientip

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// trustTens trusts 10.0.0.0/8, where the peer of xff is.
var trustTens = Config{Trusted: []string{"10.0.0.0/8"}, XRealIP: true}

func TestTheWalkStopsExactlyAtItsBudgets(t *testing.T) {
	const client = "203.0.113.7"
	hops := func(n int) string { return strings.Repeat(",10.0.0.1", n) }
	// scan makes a list whose text, with one byte a separator, is n bytes long
	// from the client's first byte to the end.
	scan := func(n int) string {
		return client + "," + strings.Repeat(" ", n-len(client)-1-len("10.0.0.1")) + "10.0.0.1"
	}
	tests := []struct {
		name   string
		lines  []string
		want   string
		reason Reason
	}{
		{"the client is entry 64", []string{client + hops(63)}, client, None},
		{"the client is entry 65", []string{client + hops(64)}, "10.0.0.5", TooLong},
		{"64 trusted entries and no more", []string{hops(64)}, "10.0.0.1", AllTrusted},
		{"65 trusted entries", []string{hops(65)}, "10.0.0.5", TooLong},
		{"64 empty elements on the right", []string{client + strings.Repeat(",", 64)}, client, None},
		{"65 empty elements on the right", []string{client + strings.Repeat(",", 65)}, "10.0.0.5", TooLong},
		{"65 empty elements out of reach", []string{strings.Repeat(",", 65) + client}, client, None},
		{"64 blank lines below", append([]string{client}, make([]string, 64)...), client, None},
		{"65 blank lines below", append([]string{client}, make([]string, 65)...), "10.0.0.5", TooLong},
		{"only 64 empty elements are as good as no header", []string{strings.Repeat(",", 63)}, "10.0.0.5", NoHeader},
		{"only 65 empty elements are an attack", []string{strings.Repeat(",", 64)}, "10.0.0.5", TooLong},
		{"8192 bytes", []string{scan(8192)}, client, None},
		{"8193 bytes", []string{scan(8193)}, "10.0.0.5", TooLong},
		{"8192 bytes over two lines", []string{client, scan(8192)[len(client)+1:]}, client, None},
		{"8193 bytes over two lines", []string{client, scan(8193)[len(client)+1:]}, "10.0.0.5", TooLong},
		{"more bytes out of reach", []string{strings.Repeat("x", 1<<20) + "," + client}, client, None},
		{"an entry of 129 bytes", []string{client + "," + strings.Repeat("1", 129)}, "10.0.0.5", TooLong},
		{"an entry without end", []string{strings.Repeat("1", 1<<20)}, "10.0.0.5", TooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := resolver(t, trustTens).Resolve(xff(tt.lines...))
			if addrText(got.Addr) != tt.want || got.Reason != tt.reason {
				t.Errorf("got %v (%v), want %s (%v)", got.Addr, got.Reason, tt.want, tt.reason)
			}
			wellFormed(t, got)
		})
	}
}

// hugeHeaders are what an attacker can send within the megabyte of header
// that net/http accepts by default.
var hugeHeaders = map[string][]string{
	"100 000 commas between trusted hops": {strings.Repeat("10.0.0.1, ", 100_000)},
	"100 000 commas before the client":    {strings.Repeat("6.6.6.6, ", 100_000) + "203.0.113.7"},
	"a million commas":                    {strings.Repeat(",", 1<<20)},
	"a million blanks":                    {strings.Repeat(" ", 1<<20)},
	"blanks and commas":                   {strings.Repeat("       ,", 1<<17)},
	"one word":                            {strings.Repeat("a", 1<<20)},
	"one open quote":                      {`for="` + strings.Repeat(`\\`, 1<<19)},
	"50 000 blank lines":                  make([]string, 50_000),
	"50 000 lines of one hop":             slices.Repeat([]string{"10.0.0.1"}, 50_000),
}

// TestWorkIsBoundedOnAHugeHeader counts what the walk is handed, in place of
// measuring how long it takes.
func TestWorkIsBoundedOnAHugeHeader(t *testing.T) {
	for name, lines := range hugeHeaders {
		t.Run(name, func(t *testing.T) {
			list := listFromRight{lines: lines, budget: fullBudget}
			elements, bytes := 0, 0
			for {
				elem, state := list.next()
				if state != listMore {
					break
				}
				elements++
				bytes += len(elem)
			}
			if elements > maxEntries || bytes > maxScan {
				t.Errorf("handed out %d elements of %d bytes", elements, bytes)
			}
			if read := len(lines) - len(list.lines); read > maxEntries+maxEmpty+1 {
				t.Errorf("began %d lines", read)
			}

			parsed := 0
			count := func(s string) (netip.Addr, Reason) { parsed++; return parseEntry(s) }
			resolver(t, trustTens).walk(lines, count, XForwardedFor)
			if parsed > maxEntries {
				t.Errorf("parsed %d entries", parsed)
			}
		})
	}
}

func TestTheListIsReadFromTheRightAcrossLines(t *testing.T) {
	list := listFromRight{lines: []string{"a, b", "", " ,c\t,, d ", "\te"}, budget: fullBudget}
	var got []string
	for {
		elem, state := list.next()
		if state != listMore {
			break
		}
		got = append(got, elem)
	}
	if want := []string{"e", "d", "c", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
