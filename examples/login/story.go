package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	owner, password = "bob", "the-97th-of-the-word-list"
	home            = "198.51.100.7"
	crowd           = 500
)

// run starts the site, plays the story against it, and fails if it does not go
// as it is told.
func run(ctx context.Context, w io.Writer) error {
	s, err := newSite(map[string]string{owner: password, "eve": "another secret"})
	if err != nil {
		return err
	}
	defer s.limiter.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler}
	// Answers that are kept back must not keep a shutdown waiting.
	server.RegisterOnShutdown(func() { _ = s.limiter.Close() })
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Shutdown(context.WithoutCancel(ctx)) }()
	p := &play{ctx: ctx, w: w, s: s, base: "http://" + ln.Addr().String()}

	fmt.Fprintln(w, "A login page and an EST endpoint behind the auth lock.")
	return errors.Join(p.ownerSignsIn(), p.crowdGuesses(), p.ownerStillGetsIn(), p.strangersAreTold(), p.sprayIsStopped(), p.metrics())
}

// play is one performance.
type play struct {
	ctx  context.Context
	w    io.Writer
	s    *site
	base string
}

func (p *play) tell(format string, args ...any) { fmt.Fprintf(p.w, format+"\n", args...) }

func (p *play) ownerSignsIn() error {
	a, err := newClient(p.base, home).signIn(p.ctx, owner, password)
	p.tell("\n1. Bob signs in at home, %s: %d.", home, a.status)
	return as(err, a.session, "bob cannot sign in")
}

// crowdGuesses has a crowd try passwords at one account from as many addresses,
// half by the form and half over EST. The right one is among them, where it
// comes after ten wrong ones.
func (p *play) crowdGuesses() error {
	var guesses []guess
	for i := range crowd {
		guesses = append(guesses, guess{fmt.Sprintf("203.0.%d.%d", i/250, i%250+1), owner, fmt.Sprintf("word-%d", i), i%2 == 0})
	}
	asked := p.s.users.asked.Load()
	t, err := guessAll(p.ctx, p.base, guesses)
	if err == nil { // and now, with the account locked, the right one
		var right tally
		right, err = guessAll(p.ctx, p.base, []guess{{"203.0.113.200", owner, password, false}, {"203.0.113.201", owner, password, true}})
		t.in, t.refused = t.in+right.in, t.refused+right.refused
	}
	p.tell("\n2. A crowd guesses at his password from %d addresses, up to 64 at once, the right one included.", crowd)
	p.tell("   told that a guess is wrong  %4d", t.wrong)
	p.tell("   told that a guess is right  %4d", t.in)
	p.tell("   refused unchecked           %4d", t.refused)
	p.tell("   passwords hashed            %4d", p.s.users.asked.Load()-asked)
	return as(err, t.wrong == 10 && t.in == 0, "the crowd has learnt more than ten guesses")
}

func (p *play) ownerStillGetsIn() error {
	c := newClient(p.base, home)
	a, err := c.signIn(p.ctx, owner, password)
	if err != nil {
		return err
	}
	b, err := c.enrol(p.ctx, owner, password)
	p.tell("\n3. Bob, at home, where he is known, signs in again: %d. He enrols over EST: %d, %d bytes of PKCS #7.", a.status, b.status, len(b.body))
	return as(err, a.session && b.status == http.StatusOK, "bob is locked out at home")
}

func (p *play) strangersAreTold() error {
	c := newClient(p.base, "192.0.2.99")
	a, err := c.signIn(p.ctx, owner, password)
	if err != nil {
		return err
	}
	b, err := c.enrol(p.ctx, owner, password)
	p.tell("\n4. From anywhere else his account is locked, the right password or not.")
	p.tell("   the login page says  %d, Retry-After %s: %s", a.status, a.retryAfter, sentence(a.body))
	p.tell("   EST says             %d, Retry-After %s: %s", b.status, b.retryAfter, sentence(b.body))
	return as(err, !a.session && a.status == http.StatusTooManyRequests && b.status == http.StatusTooManyRequests, "the lock does not hold")
}

// sprayIsStopped has one address try one password at many accounts.
func (p *play) sprayIsStopped() error {
	var guesses []guess
	for i := range 200 {
		guesses = append(guesses, guess{"203.0.113.66", fmt.Sprintf("user-%d", i), "Winter2026!", false})
	}
	t, err := guessAll(p.ctx, p.base, guesses)
	a, signIn := newClient(p.base, home).signIn(p.ctx, "eve", "another secret")
	p.tell("\n5. One address tries one password at 200 accounts: %d told, %d refused. Eve, elsewhere, signs in: %d.", t.wrong, t.refused, a.status)
	return as(errors.Join(err, signIn), t.wrong <= 100 && a.session, "the spray was not stopped at 100")
}

func (p *play) metrics() error {
	res, err := http.Get(p.base + "/metrics")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	p.tell("\n6. What an operator sees. No name, no address.")
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "weir_auth_") && !strings.HasSuffix(line, " 0") && !strings.Contains(line, "_bucket") && !strings.Contains(line, "max_keys") {
			p.tell("   %s", line)
		}
	}
	return nil
}

// sentence finds the wait in words in a refusal.
func sentence(body string) string {
	for line := range strings.SplitSeq(body, "\n") {
		if i := strings.Index(line, "lease try again"); i > 0 {
			text := line[i-1:]
			for strings.Contains(text, "<") { // a page marks the time up
				from := strings.Index(text, "<")
				text = text[:from] + text[from+strings.Index(text[from:], ">")+1:]
			}
			return strings.TrimSpace(text)
		}
	}
	return strings.TrimSpace(body)
}

// as returns err or, where the story went otherwise, what is wrong with it.
func as(err error, told bool, otherwise string) error {
	if err == nil && !told {
		return errors.New(otherwise)
	}
	return err
}
