package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"
)

// serveConfig is what the command line says about serving.
type serveConfig struct {
	https, http string // addresses
	dir         string // where certificates are written; "" is a new temporary folder, removed at the end
	limits      string // a preset
	maxWait     time.Duration
	keys        keyConfig
	log         *log.Logger
}

// serve keeps a whole PKI up until ctx is done. It writes where everything is as
// lines of name=value, "ready" when it is.
func serve(ctx context.Context, w io.Writer, cfg serveConfig) (err error) {
	limits, err := preset(cfg.limits, cfg.maxWait)
	if err != nil {
		return err
	}
	signer, closeKeys, err := openKeys(cfg.keys)
	if err != nil {
		return err
	}
	defer closeKeys()
	p, err := openWhole(wholeConfig{signer: signer, limits: limits, https: cfg.https, http: cfg.http, log: cfg.log})
	if err != nil {
		return err
	}
	defer p.Close()
	if cfg.dir == "" {
		if cfg.dir, err = os.MkdirTemp("", "weir-pki-"); err != nil {
			return err
		}
		defer os.RemoveAll(cfg.dir)
	}
	root, issuer := filepath.Join(cfg.dir, "root.pem"), filepath.Join(cfg.dir, "issuer.pem")
	if err := writePEM(root, p.authority.Root); err != nil {
		return err
	}
	if err := writePEM(issuer, p.authority.Issuer); err != nil {
		return err
	}
	for _, line := range [][2]string{
		{"acme_directory", p.urls.directory},
		{"est_url", p.urls.est},
		{"ocsp_url", p.urls.ocsp},
		{"crl_url", p.urls.crl},
		{"scep_url", p.urls.scep},
		{"root_cert", root},
		{"issuer_cert", issuer},
		{"est_user", p.user},
		{"est_password", p.password},
		{"scep_challenge", p.challenge},
	} {
		if _, err := fmt.Fprintf(w, "%s=%s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w, "ready"); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.serving:
		p.serving <- err // Close counts them
		return err
	}
}

func writePEM(path string, cert *x509.Certificate) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o644)
}
