package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// Reason says in one word why a call failed; there are few, so that it can label
// a metric.
type Reason string

// What can go wrong. The server answered in all but the first four.
const (
	// ReasonUnreachable: no connection could be made, or none was free in time.
	ReasonUnreachable Reason = "unreachable"
	// ReasonTimeout: no answer within the command timeout or the caller's deadline.
	ReasonTimeout Reason = "timeout"
	// ReasonConnection: the connection broke before the answer was there.
	ReasonConnection Reason = "connection"
	// ReasonCanceled: the caller's context was over before there was an answer.
	ReasonCanceled Reason = "canceled"
	// ReasonTLS: the TLS handshake failed.
	ReasonTLS Reason = "tls"
	// ReasonAuth: wrong, missing or expired password.
	ReasonAuth Reason = "auth"
	// ReasonDenied: the ACL user lacks a right.
	ReasonDenied Reason = "noperm"
	// ReasonReadOnly: the server is a replica, or is being made one.
	ReasonReadOnly Reason = "readonly"
	// ReasonMemory: the server is out of memory and must not evict.
	ReasonMemory Reason = "oom"
	// ReasonLoading: the server reads its data from disk, or has lost its master.
	ReasonLoading Reason = "loading"
	// ReasonBusy: the server runs a script that does not end, or has too many
	// clients.
	ReasonBusy Reason = "busy"
	// ReasonMoved: the key is on another node; the client followed as often as it
	// may, or does not follow (it is not a Cluster client).
	ReasonMoved Reason = "moved"
	// ReasonCluster: the Cluster does not serve the slot now.
	ReasonCluster Reason = "cluster"
	// ReasonDisk: the server refuses writes, for it cannot save or replicate them.
	ReasonDisk Reason = "misconf"
	// ReasonNoScript: the server forgot the script between two calls, twice.
	ReasonNoScript Reason = "noscript"
	// ReasonReply: the answer was no answer to our script.
	ReasonReply Reason = "reply"
	// ReasonServer: any other error that the server answered.
	ReasonServer Reason = "server"
)

// Error is a call that failed. Its text names no secret: neither a DSN nor a
// password stands in it, even where a server's answer repeats one.
type Error struct {
	Op     string // "admit", "peek", "refund", "begin", "settle", "unlock", "locks", "ping" or "open"
	Reason Reason
	// MayHaveRun says that the server may have done it all the same: the answer
	// was lost, not the call. The store never sends such a call again, so what it
	// spent, if it did, is spent: at most its cost, too little admitted, never too
	// much.
	MayHaveRun bool

	text  string
	cause error // what went wrong on the wire, for errors.Is; nil if the server answered
}

func (e *Error) Error() string { return "store/redis: " + e.Op + ": " + e.text }

// Is matches the error of a context that is over.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Reason == ReasonTimeout
	case context.Canceled:
		return e.Reason == ReasonCanceled
	}
	return e.cause != nil && errors.Is(e.cause, target)
}

// Permanent reports whether trying again soon is in vain: somebody has to change
// a setting, a password or a certificate first.
func (e *Error) Permanent() bool {
	switch e.Reason {
	case ReasonTLS, ReasonAuth, ReasonDenied, ReasonReply, ReasonServer:
		return true
	}
	return false
}

// fail makes an Error of what go-redis returned.
func (s *Store) fail(op string, err error) error {
	e := &Error{Op: op}
	if answer := goredis.Error(nil); !errors.As(err, &answer) {
		e.cause = err
	}
	e.Reason, e.MayHaveRun = classify(err)
	e.text = s.secrets.mask(err.Error())
	switch e.Reason {
	case ReasonTimeout:
		e.text = fmt.Sprintf("no answer within %v (or the caller's deadline, if that was sooner)", s.opts.CommandTimeout)
	case ReasonConnection:
		e.text = "the connection broke: " + e.text
	}
	return e
}

// codes are the words that Redis errors begin with, or carry inside where a
// server (Redis 6) wraps what went wrong within a script.
var codes = []struct {
	code   string
	reason Reason
}{
	{"NOSCRIPT", ReasonNoScript},
	{"READONLY", ReasonReadOnly},
	{"OOM", ReasonMemory},
	{"LOADING", ReasonLoading},
	{"MASTERDOWN", ReasonLoading},
	{"NOPERM", ReasonDenied},
	{"NOAUTH", ReasonAuth},
	{"WRONGPASS", ReasonAuth},
	{"MOVED", ReasonMoved},
	{"ASK", ReasonMoved},
	{"CLUSTERDOWN", ReasonCluster},
	{"TRYAGAIN", ReasonCluster},
	{"CROSSSLOT", ReasonCluster},
	{"BUSY", ReasonBusy},
	{"MISCONF", ReasonDisk},
	{"NOREPLICAS", ReasonDisk},
}

// classify finds the reason of an error, and whether the call may have run.
func classify(err error) (reason Reason, mayHaveRun bool) {
	var answer goredis.Error
	var dial *net.OpError
	var network net.Error
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var reply badReply
	switch {
	case errors.As(err, &answer):
		return classifyAnswer(answer.Error()), false
	case errors.As(err, &reply):
		return ReasonReply, true
	case errors.As(err, &record), errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &authority), errors.As(err, &name):
		return ReasonTLS, false
	case errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted):
		return ReasonUnreachable, false
	case errors.As(err, &dial) && dial.Op == "dial":
		return ReasonUnreachable, false
	case errors.Is(err, context.Canceled):
		return ReasonCanceled, true
	case errors.Is(err, context.DeadlineExceeded):
		return ReasonTimeout, true
	case errors.As(err, &network):
		if network.Timeout() {
			return ReasonTimeout, true
		}
		return ReasonConnection, true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ReasonConnection, true
	}
	// What go-redis says without having sent anything: its pool has given up on a
	// server that is down, no Sentinel knows the master, no node has the slot.
	return ReasonUnreachable, false
}

func classifyAnswer(text string) Reason {
	word, rest, _ := strings.Cut(strings.TrimPrefix(text, "-"), " ")
	for _, c := range codes {
		if word == c.code {
			return c.reason
		}
	}
	switch {
	case strings.Contains(text, "max number of clients"):
		return ReasonBusy
	case strings.Contains(text, "AUTH") && strings.Contains(text, "password"), strings.Contains(text, "invalid password"), strings.Contains(text, "invalid username-password"):
		return ReasonAuth
	case strings.Contains(text, "can't run this command"), strings.Contains(text, "can't access at least one"):
		return ReasonDenied // within a script
	}
	for _, c := range codes {
		if strings.Contains(rest, "-"+c.code+" ") {
			return c.reason
		}
	}
	return ReasonServer
}

// badReply is an answer that is not of our script.
type badReply struct{ error }

// secrets are the words that no error may repeat.
type secrets []string

func (s secrets) mask(text string) string {
	for _, word := range s {
		text = strings.ReplaceAll(text, word, "***")
	}
	return text
}

// add keeps a word out of error texts.
func (s *secrets) add(words ...string) {
	for _, w := range words {
		if w != "" {
			*s = append(*s, w)
		}
	}
}
