package acmeserver

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/letsencrypt/pebble/v2/core"
)

// Issuer signs in Pebble's place.
type Issuer interface {
	// Issue returns a certificate for the key and the names of csr, which has
	// been checked.
	Issue(csr *x509.CertificateRequest) (*x509.Certificate, error)
	// Chain returns what a client needs besides it, the issuer first. Its
	// subject key identifier should be the Authority's KeyID.
	Chain() []*x509.Certificate
	// Revoke is called for each certificate whose revocation Pebble has agreed to.
	Revoke(serial *big.Int, reason int) error
}

// SignedBy returns the authority with all that it issues signed by another. Pebble
// signs with keys of its own and takes no others, so an order is finalized in
// two steps: Pebble checks the request and signs, then the issuer signs for the
// same key and names and its certificate takes the place of Pebble's, before the
// client has its answer. A finalize request lasts as long as the signature does,
// and what Pebble signed is given to nobody.
//
// An order that the issuer fails to sign is lost: the client gets a 500, and
// 404 for the certificate. Log may be nil.
func (a *Authority) SignedBy(issuer Issuer, log *log.Logger) http.Handler {
	s := &reissuer{authority: a, issuer: issuer, log: log}
	for _, cert := range issuer.Chain() {
		s.chain = append(s.chain, stored(cert, ""))
	}
	return s
}

// reissuer is an Authority whose certificates an Issuer signs.
type reissuer struct {
	authority *Authority
	issuer    Issuer
	log       *log.Logger
	chain     []*core.Certificate
	issued    sync.Map // the ids of what the issuer signed
}

func (s *reissuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, PathFinalize):
		s.finalize(w, r, strings.TrimPrefix(path, PathFinalize))
	case strings.HasPrefix(path, PathCertificate):
		id, _, _ := strings.Cut(strings.TrimPrefix(path, PathCertificate), "/") // "/1" behind it is an alternate chain
		if _, ok := s.issued.Load(id); !ok {
			http.NotFound(w, r)
			return
		}
		s.authority.Handler.ServeHTTP(w, r)
	case path == PathRevokeCert:
		s.revoke(w, r)
	default:
		s.authority.Handler.ServeHTTP(w, r)
	}
}

// finalize lets Pebble check and sign, then has the issuer sign.
func (s *reissuer) finalize(w http.ResponseWriter, r *http.Request, orderID string) {
	answer := newKept()
	s.authority.Handler.ServeHTTP(answer, r)
	if answer.status == http.StatusOK {
		// Not the request's context: Pebble has begun, and a client that leaves
		// now may come back for its certificate.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
		defer cancel()
		if err := s.reissue(ctx, orderID); err != nil {
			if s.log != nil {
				s.log.Print("finalize: ", err)
			}
			failed(w, answer.header)
			return
		}
	}
	answer.sendTo(w)
}

// reissue puts a certificate of the issuer's in the place of Pebble's.
func (s *reissuer) reissue(ctx context.Context, orderID string) error {
	store := s.authority.store
	order := s.authority.order(orderID)
	if order == nil {
		return errors.New("no such order")
	}
	if err := s.signedByPebble(ctx, order); err != nil {
		return err
	}
	cert, err := s.issuer.Issue(order.ParsedCSR) // set, and not to be changed any more
	if err != nil {
		return err
	}
	mine := stored(cert, order.AccountID)
	mine.IssuerChains = [][]*core.Certificate{s.chain}
	if _, err := store.AddCertificate(mine); err != nil {
		return err
	}
	s.issued.Store(mine.ID, nil)
	order.Lock()
	order.CertificateObject = mine
	order.Unlock()
	// An order that replaces this certificate is found by its serial number
	// (RFC 9773, section 5).
	return store.AddOrderByIssuedSerial(order)
}

// signedByPebble waits until Pebble is done with the order. It signs in a
// goroutine of its own, tells nobody, and ends by filing the order under the
// serial number; the store's lock then orders what it did before what we do.
func (s *reissuer) signedByPebble(ctx context.Context, order *core.Order) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		order.RLock()
		cert := order.CertificateObject
		order.RUnlock()
		if cert != nil {
			if _, err := s.authority.store.GetOrderByIssuedSerial(cert.ID); err == nil {
				return nil
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("pebble did not sign order %s: %w", order.ID, ctx.Err())
		}
	}
}

// order looks an order up in its turn; nil if there is none.
func (a *Authority) order(id string) *core.Order {
	a.turns.mu.RLock()
	defer a.turns.mu.RUnlock()
	return a.store.GetOrderByID(id)
}

// stored is a certificate as Pebble's store keeps it.
func stored(cert *x509.Certificate, accountID string) *core.Certificate {
	return &core.Certificate{
		ID: hex.EncodeToString(cert.SerialNumber.Bytes()), AccountID: accountID,
		Cert: cert, DER: cert.Raw,
	}
}
