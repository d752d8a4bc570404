package cachetest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// item is a member of a list of structured fields (RFC 8941 section 3.1): an int64, float64, string, token, []byte or bool, and its
// parameters, which are of the same types.
type item struct {
	value  any
	params map[string]any
}

// token is a token of RFC 8941 section 3.3.4, which is no string.
type token string

// parseList reads the lines of a field that is a list, as strictly as RFC 8941 section 4.2 has it. Inner lists are not read: no field
// that a cache adds has any.
func parseList(lines []string) ([]item, error) {
	p := parser{strings.Join(lines, ", ")}
	p.skip(" ")
	var list []item
	for p.rest != "" {
		i, err := p.item()
		if err != nil {
			return nil, fmt.Errorf("%w at %q", err, p.rest)
		}
		list = append(list, i)
		p.skip(" \t")
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return nil, fmt.Errorf("no comma at %q", p.rest)
		}
		p.skip(" \t")
		if p.rest == "" {
			return nil, errors.New("a comma at the end")
		}
	}
	return list, nil
}

type parser struct{ rest string }

func (p *parser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

func (p *parser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// run cuts what is in set, or accepted by also.
func (p *parser) run(also func(byte) bool, set string) string {
	n := 0
	for n < len(p.rest) && (also(p.rest[n]) || strings.IndexByte(set, p.rest[n]) >= 0) {
		n++
	}
	s := p.rest[:n]
	p.rest = p.rest[n:]
	return s
}

func (p *parser) item() (i item, err error) {
	if i.value, err = p.bare(); err != nil {
		return i, err
	}
	i.params = map[string]any{}
	for p.take(';') {
		p.skip(" ")
		if p.rest == "" || !lower(p.rest[0]) && p.rest[0] != '*' {
			return i, errors.New("no key")
		}
		key := p.run(func(c byte) bool { return lower(c) || digit(c) }, "_-.*")
		i.params[key] = true
		if p.take('=') {
			if i.params[key], err = p.bare(); err != nil {
				return i, err
			}
		}
	}
	return i, nil
}

// bare reads a bare item, whose first byte tells its type.
func (p *parser) bare() (any, error) {
	if p.rest == "" {
		return nil, errors.New("no item")
	}
	switch c := p.rest[0]; {
	case c == '-' || digit(c):
		return p.number()
	case c == '"':
		return p.quoted()
	case c == '*' || letter(c):
		return token(p.run(func(c byte) bool { return letter(c) || digit(c) }, "!#$%&'*+-.^_`|~:/")), nil
	case c == ':':
		return p.bytes()
	case c == '?':
		return p.boolean()
	}
	return nil, errors.New("no item")
}

func (p *parser) number() (any, error) {
	sign := ""
	if p.take('-') {
		sign = "-"
	}
	whole := p.run(digit, "")
	if whole == "" {
		return nil, errors.New("no digit")
	}
	if !p.take('.') {
		if len(whole) > 15 {
			return nil, errors.New("too long an integer")
		}
		return strconv.ParseInt(sign+whole, 10, 64)
	}
	fraction := p.run(digit, "")
	if len(whole) > 12 || len(fraction) < 1 || len(fraction) > 3 {
		return nil, errors.New("no decimal")
	}
	return strconv.ParseFloat(sign+whole+"."+fraction, 64)
}

func (p *parser) quoted() (any, error) {
	p.take('"')
	var b strings.Builder
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return b.String(), nil
		case c == '\\':
			if p.rest == "" || p.rest[0] != '"' && p.rest[0] != '\\' {
				return nil, errors.New("an escape of what needs none")
			}
			c = p.rest[0]
			p.rest = p.rest[1:]
		case c < ' ' || c > '~':
			return nil, errors.New("not ASCII in a string")
		}
		b.WriteByte(c)
	}
	return nil, errors.New("no end of a string")
}

func (p *parser) bytes() (any, error) {
	p.take(':')
	coded, rest, found := strings.Cut(p.rest, ":")
	if !found {
		return nil, errors.New("no end of bytes")
	}
	p.rest = rest
	return base64.StdEncoding.DecodeString(coded)
}

func (p *parser) boolean() (any, error) {
	p.take('?')
	switch {
	case p.take('1'):
		return true, nil
	case p.take('0'):
		return false, nil
	}
	return nil, errors.New("no boolean")
}

func digit(c byte) bool  { return '0' <= c && c <= '9' }
func lower(c byte) bool  { return 'a' <= c && c <= 'z' }
func letter(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' }
