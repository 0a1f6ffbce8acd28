package softhsm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// label is the name of the one token.
const label = "weir"

// libraries are where distributions put the PKCS#11 module of SoftHSM2.
var libraries = []string{
	"/usr/lib/softhsm/libsofthsm2.so", // Debian, Ubuntu
	"/usr/lib64/pkcs11/libsofthsm2.so",
	"/usr/lib/pkcs11/libsofthsm2.so",
	"/usr/local/lib/softhsm/libsofthsm2.so",
	"/opt/homebrew/lib/softhsm/libsofthsm2.so",
}

// token is a token of this process alone: in a temporary folder, with a PIN
// that nobody else knows. A PKCS#11 module is initialized once in a process and
// reads its configuration then, so all who want the token share it; it goes
// when the last has closed it.
type token struct {
	library, dir, pin string
}

var shared struct {
	sync.Mutex
	token *token
	users int
}

// acquire returns the process's token, made if need be. Call release for it.
func acquire() (*token, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.token == nil {
		t, err := newToken()
		if err != nil {
			return nil, err
		}
		shared.token = t
	}
	shared.users++
	return shared.token, nil
}

// release gives the token back. No session may be open on it any more.
func release() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users > 0 {
		return nil
	}
	dir := shared.token.dir
	shared.token = nil
	return errors.Join(os.Unsetenv(configVariable), os.RemoveAll(dir))
}

// configVariable is where SoftHSM2 looks for the path of its configuration.
const configVariable = "SOFTHSM2_CONF"

func newToken() (_ *token, err error) {
	t := &token{}
	for _, path := range libraries {
		if _, err := os.Stat(path); err == nil {
			t.library = path
			break
		}
	}
	if t.library == "" {
		return nil, errors.New("SoftHSM2 is not installed: apt-get install softhsm2")
	}
	if t.dir, err = os.MkdirTemp("", "weir-softhsm-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Unsetenv(configVariable), os.RemoveAll(t.dir))
		}
	}()
	tokens, config := filepath.Join(t.dir, "tokens"), filepath.Join(t.dir, "softhsm2.conf")
	if err := os.Mkdir(tokens, 0o700); err != nil {
		return nil, err
	}
	lines := fmt.Sprintf("directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n", tokens)
	if err := os.WriteFile(config, []byte(lines), 0o600); err != nil {
		return nil, err
	}
	// The module reads it with getenv when it is initialized, the command when
	// it starts.
	if err := os.Setenv(configVariable, config); err != nil {
		return nil, err
	}
	t.pin = rand.Text()
	out, err := exec.Command("softhsm2-util", "--init-token", "--free",
		"--label", label, "--pin", t.pin, "--so-pin", rand.Text()).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("softhsm2-util: %w: %s", err, out)
	}
	return t, nil
}
