//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

// A stapler is a web server that shows its certificate's status with it.
type stapler struct {
	name    string
	version func(*testing.T) string
	start   func(t *testing.T, p *pki, address string) *exec.Cmd
	// refused is what it shows once the responder has refused it, although it
	// would not again, and asked how often it has asked by then.
	refused string
	asked   int
}

const (
	good     = "OCSP Response Status: successful (0x0)"
	tryLater = "OCSP Response Status: trylater (0x3)"
	noStaple = "OCSP response: no response sent"
)

var staplers = []stapler{
	{"nginx", packaged("nginx-core"), nginx, noStaple, 1},
	{"Apache httpd", packaged("apache2-bin"), apache(""), tryLater, 1},
	{"Apache httpd, errors off", packaged("apache2-bin"),
		apache("SSLStaplingReturnResponderErrors off\nSSLStaplingFakeTryLater off\n"), good, 2},
}

func nginx(t *testing.T, p *pki, address string) *exec.Cmd {
	c := command{home: p.dir}
	config := c.write(t, "nginx.conf", strings.NewReplacer("DIR", p.dir, "ADDRESS", address, "RESPONDER", p.plain+"/ocsp").Replace(`
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log stderr error;
events {}
http {
	access_log off;
	client_body_temp_path DIR/body;
	proxy_temp_path DIR/proxy;
	fastcgi_temp_path DIR/fastcgi;
	uwsgi_temp_path DIR/uwsgi;
	scgi_temp_path DIR/scgi;
	server {
		listen ADDRESS ssl;
		ssl_certificate DIR/host.pem;
		ssl_certificate_key DIR/host.key;
		ssl_trusted_certificate DIR/root.pem;
		ssl_stapling on;
		ssl_stapling_responder RESPONDER;
	}
}
`), 0o600)
	return exec.Command("/usr/sbin/nginx", "-e", "stderr", "-c", config)
}

// apache has mod_ssl's defaults but for options.
func apache(options string) func(*testing.T, *pki, string) *exec.Cmd {
	return func(t *testing.T, p *pki, address string) *exec.Cmd {
		c := command{home: p.dir}
		config := c.write(t, "httpd.conf", strings.NewReplacer("DIR", p.dir, "ADDRESS", address, "RESPONDER", p.plain+"/ocsp").Replace(`
ServerName localhost
ServerRoot DIR
DefaultRuntimeDir DIR
PidFile DIR/httpd.pid
Listen ADDRESS https
ErrorLog /dev/stderr
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule socache_shmcb_module /usr/lib/apache2/modules/mod_socache_shmcb.so
LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so
SSLStaplingCache shmcb:DIR/stapling(128000)
SSLStaplingForceURL RESPONDER
SSLUseStapling on
SSLEngine on
SSLCertificateFile DIR/host.pem
SSLCertificateKeyFile DIR/host.key
DocumentRoot DIR
`)+options, 0o600)
		return exec.Command("/usr/sbin/apache2", "-X", "-f", config)
	}
}

// By default a server that staples keeps a refusal and does not come back for
// minutes, so one refusal is seen by all browsers that come meanwhile. Apache can
// be told not to keep it; then it asks with each client until it is answered.
func TestStaplingServers(t *testing.T) {
	for _, s := range []struct {
		name    string
		limits  limits
		refused bool
	}{
		{"answered", limits{class: weir.ClassOCSP, every: time.Millisecond}, false},
		{"held for its tokens", limits{class: weir.ClassOCSP, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}, false},
		{"429 once", limits{class: weir.ClassOCSP, every: time.Second, drain: lifted}, true},
		{"503 once", limits{class: weir.ClassOCSP, every: time.Second, drain: lifted, status: busy}, true},
	} {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range staplers {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p := open(t, s.limits)
					address := serving(t, func(address string) *exec.Cmd { return c.start(t, p, address) })
					want, asked := good, 1
					if s.refused {
						want, asked = c.refused, c.asked
					}
					shown := p.staple(t, address, want)
					tell(c.name, c.version(t), "stapling, OCSP "+s.name, fmt.Sprintf("shows %q, asked the responder %d×", shown, len(p.answers.to("/ocsp"))))
					assert.Equal(t, want, shown)
					assert.Len(t, p.answers.to("/ocsp"), asked)
				})
			}
		})
	}
}

// staple connects until the server has asked its responder and has then shown
// want to a few clients, or the test has taken too long.
func (p *pki) staple(t *testing.T, address, want string) string {
	t.Helper()
	var shown string
	since := 0
	for range attempts(t) {
		if len(p.answers.to("/ocsp")) > 0 {
			since++
		}
		// It fails where what is stapled is no good response: that is shown too.
		said, _ := command{home: p.dir}.run(t.Context(), "openssl", "s_client", "-connect", address,
			"-servername", host, "-status", "-CAfile", "root.pem")
		shown = strings.TrimSpace(lineWith(said, "OCSP Response Status", noStaple))
		if since > 5 && shown == want {
			break
		}
	}
	return shown
}

// serving starts a server that ends with t, and returns the address at which
// it has begun to take connections.
func serving(t *testing.T, program func(address string) *exec.Cmd) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := ln.Addr().String()
	require.NoError(t, ln.Close())
	cmd := program(address)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Log(said.String())
		}
	})
	for range attempts(t) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return address
		}
	}
	t.Fatal("it does not listen at", address)
	return ""
}

// attempts paces what is tried until it succeeds, for as long as a run may take.
func attempts(t *testing.T) iter.Seq[int] {
	return func(yield func(int) bool) {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		pace := time.NewTicker(50 * time.Millisecond)
		defer pace.Stop()
		for n := 0; yield(n); n++ {
			select {
			case <-pace.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
