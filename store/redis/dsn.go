package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// topology is how many servers there are and who says which one to ask.
type topology int

const (
	single topology = iota
	sentinel
	cluster
)

// target is a DSN, read.
type target struct {
	topology                           topology
	network                            string // "tcp" or "unix"
	addrs                              []string
	username, password                 string
	sentinelUsername, sentinelPassword string
	masterName                         string
	db                                 int
	tls                                *tls.Config
}

// parseDSN reads a DSN. Its errors name the part that is wrong, never what
// stands in it where that may be a secret, and so never wrap those of net/url.
func parseDSN(dsn string, config *tls.Config) (*target, error) {
	if dsn == "" {
		return nil, errors.New("the DSN is empty: give one like redis://user:password@host:6379/0")
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("the DSN is no URL: write redis://user:password@host:6379/0, and escape special characters of the password (@ is %40, / is %2F, : is %3A)")
	}
	t := &target{network: "tcp", username: u.User.Username(), tls: config}
	t.password, _ = u.User.Password()
	switch u.Scheme {
	case "redis":
	case "rediss":
		if t.tls == nil {
			t.tls = &tls.Config{}
		}
	case "unix":
		t.network = "unix"
	default:
		return nil, errors.New("the DSN's scheme is unknown: use redis://, rediss:// (TLS) or unix://")
	}
	if u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("the DSN has parts that mean nothing: write redis://user:password@host:6379/0")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the DSN's parameters cannot be read: write ?name=value&name=value")
	}
	if err := t.addresses(u, q["addr"]); err != nil {
		return nil, err
	}
	delete(q, "addr")
	return t, t.parameters(u, q)
}

func (t *target) addresses(u *url.URL, more []string) error {
	if t.network == "unix" {
		if u.Path == "" || u.Host != "" || len(more) > 0 {
			return errors.New("the DSN names no socket: write unix:///path/to/redis.sock, with user:password@ before the path if need be")
		}
		t.addrs = []string{u.Path}
		return nil
	}
	if u.Hostname() == "" {
		return errors.New("the DSN names no host: write redis://host:6379")
	}
	for _, addr := range append([]string{u.Host}, more...) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil { // no port
			host, port = strings.Trim(addr, "[]"), "6379"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return fmt.Errorf("the DSN's address %q is none: write host:port", addr)
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, port))
	}
	return nil
}

func (t *target) parameters(u *url.URL, q url.Values) error {
	var ca, cert, key string
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if len(q[name]) != 1 {
			return fmt.Errorf("the DSN gives %s more than once", name)
		}
		value := q[name][0]
		switch name {
		case "db":
			if err := t.database(value); err != nil {
				return err
			}
		case "cluster":
			on, err := strconv.ParseBool(value)
			if err != nil {
				return errors.New("the DSN's cluster is neither true nor false")
			}
			if on {
				t.topology = cluster
			}
		case "master_name":
			t.masterName = value
		case "sentinel_username":
			t.sentinelUsername = value
		case "sentinel_password":
			t.sentinelPassword = value
		case "tls_ca":
			ca = value
		case "tls_cert":
			cert = value
		case "tls_key":
			key = value
		case "tls_server_name":
			if t.tls != nil {
				t.tls = t.tls.Clone()
				t.tls.ServerName = value
			}
		default:
			return fmt.Errorf("the DSN's parameter %q is unknown: use addr, cluster, master_name, sentinel_username, sentinel_password, db, tls_ca, tls_cert, tls_key or tls_server_name", name)
		}
	}
	if path := strings.Trim(u.Path, "/"); path != "" && t.network == "tcp" {
		if err := t.database(path); err != nil {
			return err
		}
	}
	switch {
	case t.masterName != "" && t.topology == cluster:
		return errors.New("the DSN asks for Sentinel (master_name) and for Cluster: leave one out")
	case t.masterName != "":
		t.topology = sentinel
	case t.sentinelUsername != "" || t.sentinelPassword != "":
		return errors.New("the DSN has credentials for Sentinel and no master_name")
	case t.topology == cluster && t.db != 0:
		return errors.New("the DSN names a database, and a Cluster has only database 0")
	case t.topology == single && len(t.addrs) > 1:
		return errors.New("the DSN has several addresses: say cluster=true, or master_name=… if they are Sentinels")
	}
	if t.network == "unix" && t.topology != single {
		return errors.New("the DSN names a socket: Sentinel and Cluster need redis:// or rediss://")
	}
	return t.certificates(ca, cert, key)
}

func (t *target) database(value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return errors.New("the DSN's database is no number: write redis://host:6379/0")
	}
	t.db = int(n)
	return nil
}

// certificates reads the PEM files that the DSN names.
func (t *target) certificates(ca, cert, key string) error {
	if ca == "" && cert == "" && key == "" {
		return nil
	}
	if t.tls == nil {
		return errors.New("the DSN has TLS parameters without TLS: use rediss://")
	}
	t.tls = t.tls.Clone()
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("tls_ca: %w", err)
		}
		t.tls.RootCAs = x509.NewCertPool()
		if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls_ca: no certificate in %s", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("the DSN has one of tls_cert and tls_key: give both, or neither")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// secrets are what no error may repeat.
func (t *target) secrets() (s secrets) {
	s.add(t.password, t.sentinelPassword)
	return s
}

// client makes a client for the target. Nothing is dialled yet.
func (t *target) client(o *Options) goredis.UniversalClient {
	u := &goredis.UniversalOptions{
		Addrs: t.addrs, DB: t.db, TLSConfig: t.tls,
		Username: t.username, Password: t.password,
		MasterName: t.masterName, SentinelUsername: t.sentinelUsername, SentinelPassword: t.sentinelPassword,

		// One try, and the caller's deadline holds: left to its defaults, the
		// client answers for a hung server after seconds, and for a black hole
		// after more than a minute and a half.
		MaxRetries:            -1,
		DialerRetries:         1,
		MaxRedirects:          2,
		ContextTimeoutEnabled: true,
		// Not sooner than the deadline that every call has: a Cluster client
		// takes a read timeout of its own as leave to ask again.
		DialTimeout:  max(o.CommandTimeout, minDial),
		ReadTimeout:  max(2*o.CommandTimeout, 2*minDial),
		WriteTimeout: max(2*o.CommandTimeout, 2*minDial),
		PoolTimeout:  o.CommandTimeout,
		PoolSize:     o.PoolSize,

		MaxActiveConns: o.PoolSize,
		MinIdleConns:   min(4, o.PoolSize),

		DisableIdentity: true, // CLIENT SETINFO would need a right
	}
	if o.Coalesce < 0 {
		u.PipelinePoolSize = -1
	}
	switch t.topology {
	case sentinel:
		return goredis.NewFailoverClient(u.Failover())
	case cluster:
		c := u.Cluster()
		c.DisableRoutingPolicies = true // it would ask COMMAND for what we know
		c.ClusterStateReloadInterval = slotsInterval
		c.MaintNotificationsConfig = quiet()
		return goredis.NewClusterClient(c)
	}
	s := u.Simple()
	s.Network = t.network
	s.MaintNotificationsConfig = quiet()
	return goredis.NewClient(s)
}
