package quota

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A parser of Structured Field Lists, strict as RFC 9651, section 4.2, and in
// two places stricter: inner lists, which the fields of this package never
// have, and a parameter given twice are errors.

type sfItem struct {
	Value  any // int64, sfDecimal, string, sfToken, []byte, bool, sfDate or sfDisplay
	Params map[string]any
}

type (
	sfDecimal string
	sfToken   string
	sfDate    int64
	sfDisplay string
)

// parseList parses the lines of one field, which is no different from one line
// with commas between them.
func parseList(lines ...string) ([]sfItem, error) {
	p := &sfParser{rest: strings.Join(lines, ", ")}
	p.skip(" ")
	var list []sfItem
	for p.rest != "" {
		it, err := p.item()
		if err != nil {
			return nil, fmt.Errorf("%w, before %q", err, p.rest)
		}
		list = append(list, it)
		p.skip(" \t")
		if p.rest == "" {
			break
		}
		if !p.take(",") {
			return nil, fmt.Errorf("no comma before %q", p.rest)
		}
		p.skip(" \t")
		if p.rest == "" {
			return nil, errors.New("a comma at the end")
		}
	}
	return list, nil
}

type sfParser struct{ rest string }

func (p *sfParser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

func (p *sfParser) take(prefix string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, prefix)
	return ok
}

// while takes the longest prefix of bytes from set.
func (p *sfParser) while(set string) string {
	all := p.rest
	p.skip(set)
	return all[:len(all)-len(p.rest)]
}

func (p *sfParser) item() (it sfItem, err error) {
	if it.Value, err = p.bare(); err != nil {
		return it, err
	}
	it.Params = map[string]any{}
	for p.take(";") {
		p.skip(" ")
		key, err := p.key()
		if err != nil {
			return it, err
		}
		if _, twice := it.Params[key]; twice {
			return it, fmt.Errorf("parameter %s twice", key)
		}
		it.Params[key] = true
		if p.take("=") {
			if it.Params[key], err = p.bare(); err != nil {
				return it, err
			}
		}
	}
	return it, nil
}

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

func (p *sfParser) key() (string, error) {
	if p.rest == "" || !strings.Contains(lower+"*", p.rest[:1]) {
		return "", errors.New("no key")
	}
	return p.while(lower + digits + "_-.*"), nil
}

func (p *sfParser) bare() (any, error) {
	if p.rest == "" {
		return nil, errors.New("no item")
	}
	switch c := p.rest[0]; {
	case c == '-' || strings.IndexByte(digits, c) >= 0:
		return p.number()
	case c == '"':
		return p.text()
	case c == '*' || strings.IndexByte(lower+upper, c) >= 0:
		return sfToken(p.while(lower + upper + digits + "!#$%&'*+-.^_`|~:/")), nil
	case c == ':':
		content, after, ok := strings.Cut(p.rest[1:], ":")
		if !ok {
			return nil, errors.New("a byte sequence without end")
		}
		if strings.Trim(content, lower+upper+digits+"+/=") != "" { // the decoder would skip line breaks
			return nil, errors.New("no base64")
		}
		p.rest = after
		return base64.StdEncoding.DecodeString(content)
	case p.take("?0"):
		return false, nil
	case p.take("?1"):
		return true, nil
	case p.take("@"):
		n, err := p.number()
		date, ok := n.(int64)
		if err == nil && !ok {
			err = errors.New("a date with a fraction")
		}
		return sfDate(date), err
	case p.take(`%"`):
		return p.display()
	}
	return nil, errors.New("no item")
}

func (p *sfParser) number() (any, error) {
	sign := ""
	if p.take("-") {
		sign = "-"
	}
	whole := p.while(digits)
	if whole == "" {
		return nil, errors.New("no digits")
	}
	if p.take(".") {
		fraction := p.while(digits)
		if len(whole) > 12 || len(fraction) < 1 || len(fraction) > 3 {
			return nil, errors.New("no decimal")
		}
		return sfDecimal(sign + whole + "." + fraction), nil
	}
	if len(whole) > 15 {
		return nil, errors.New("an integer of more than 15 digits")
	}
	return strconv.ParseInt(sign+whole, 10, 64)
}

func (p *sfParser) text() (string, error) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			return b.String(), nil
		case c < ' ' || c > '~':
			return "", fmt.Errorf("byte %#x in a string", c)
		case c == '\\':
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return "", errors.New("a backslash before neither quote nor backslash")
			}
			c = p.rest[i]
		}
		b.WriteByte(c)
	}
	return "", errors.New("a string without end")
}

func (p *sfParser) display() (any, error) {
	var b []byte
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			if !utf8.Valid(b) {
				return nil, errors.New("a display string that is no UTF-8")
			}
			return sfDisplay(b), nil
		case c < ' ' || c > '~':
			return nil, fmt.Errorf("byte %#x in a display string", c)
		case c == '%':
			if i+3 > len(p.rest) || strings.Trim(p.rest[i+1:i+3], digits+"abcdef") != "" {
				return nil, errors.New("a percent sign without two lower-case digits")
			}
			n, err := strconv.ParseUint(p.rest[i+1:i+3], 16, 8)
			if err != nil {
				return nil, err
			}
			c, i = byte(n), i+2
		}
		b = append(b, c)
	}
	return nil, errors.New("a display string without end")
}
