package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/weir-go/weir/examples/pki/clients"
)

// A crowdSpec tells a crowd in a process of its own whom to enrol with. There it
// has the lowest priority: clients are not to take the processors from the
// servers, whose answers are measured.
type crowdSpec struct {
	URL, User, Password string
	Root                []byte        // DER, of whom to trust
	Devices             int           // each with an address and a connection of its own
	Again               time.Duration // after a refusal, on average
}

// inCrowd is set in the environment of the process that is to be a crowd.
const inCrowd = "WEIR_PKI_CROWD"

// A crowdElsewhere is such a process.
type crowdElsewhere struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

// startCrowd returns once every device has connected; from then on as many
// enrolments are under way as there are devices that have not been refused just
// now.
func startCrowd(ctx context.Context, spec crowdSpec) (*crowdElsewhere, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", self)
	cmd.Env = append(os.Environ(), inCrowd+"=yes")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &crowdElsewhere{cmd, in, bufio.NewScanner(out)}
	if err := json.NewEncoder(in).Encode(spec); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	if !c.out.Scan() {
		return nil, errors.Join(errors.New("the crowd did not connect"), c.stop())
	}
	return c, nil
}

// stop ends it. The error is that of an enrolment that was neither served nor
// refused in good order.
func (c *crowdElsewhere) stop() error {
	_ = c.in.Close()
	var said []byte
	for c.out.Scan() {
		said = append(said, c.out.Bytes()...)
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the crowd: %w: %s", err, said)
	}
	return nil
}

// crowdMain is main of that process. It says what went wrong on its output.
func crowdMain() int {
	if err := beCrowd(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// beCrowd enrols until its input ends.
func beCrowd(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec crowdSpec
	d := json.NewDecoder(in)
	if err := d.Decode(&spec); err != nil {
		return err
	}
	root, err := x509.ParseCertificate(spec.Root)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	csr, err := clients.Request("device.example.test", key)
	if err != nil {
		return err
	}
	trust := &tls.Config{RootCAs: x509.NewCertPool()}
	trust.RootCAs.AddCert(root)
	devices := make([]clients.EST, spec.Devices)
	if err := connect(ctx, spec, trust, devices); err != nil {
		return err
	}
	fmt.Fprintln(out, "connected")

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		t  tally
		wg sync.WaitGroup
	)
	for _, device := range devices {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := device.Enrol(ctx, csr)
				if ctx.Err() != nil {
					return // cut off by the end
				}
				if t.add(err); err != nil {
					pause(ctx, spec.Again/2+mathrand.N(spec.Again))
				}
			}
		})
	}
	_, err = io.Copy(io.Discard, in)
	cancel()
	wg.Wait()
	return errors.Join(err, t.err())
}

// connect has each device shake hands, a few at a time.
func connect(ctx context.Context, spec crowdSpec, trust *tls.Config, devices []clients.EST) error {
	const atOnce = 16
	var (
		wg     sync.WaitGroup
		places = make(chan struct{}, atOnce)
		failed = make([]error, len(devices))
	)
	for i := range devices {
		// HTTP/1.1: over HTTP/2 they would share a connection.
		t := visitor{&http.Transport{TLSClientConfig: trust}, fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250)}
		devices[i] = clients.EST{URL: spec.URL, User: spec.User, Password: spec.Password, HTTP: &http.Client{Transport: t}}
		places <- struct{}{}
		wg.Go(func() {
			_, failed[i] = devices[i].CACerts(ctx)
			<-places
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}
