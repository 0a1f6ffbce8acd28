//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// longest bounds one run of a client: a test that fails is to end, and say
// what the client had said till then.
const longest = 90 * time.Second

// A command is one run of a program, in a home of its own.
type command struct {
	home string
	env  []string
}

// run runs a program to its end and returns all that it printed, and its exit
// status as an error.
func (c command) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.home
	cmd.Env = append(os.Environ(), "HOME="+c.home, "LC_ALL=C.UTF-8")
	cmd.Env = append(cmd.Env, c.env...)
	cmd.WaitDelay = time.Second // a child may hold the output open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// all runs commands one after the other, up to the first that fails, and
// returns what all of them printed.
func (c command) all(ctx context.Context, commands ...[]string) (string, error) {
	var said strings.Builder
	for _, words := range commands {
		out, err := c.run(ctx, words[0], words[1:]...)
		said.WriteString(out)
		if err != nil {
			return said.String(), err
		}
	}
	return said.String(), nil
}

// write puts a file into the home and returns its path.
func (c command) write(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(c.home, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), mode))
	return path
}

// debian returns the version of an installed package, without Debian's part.
func debian(t *testing.T, pkg string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dpkg-query", "-W", "-f", "${Version}", pkg).Output()
	require.NoErrorf(t, err, "%s is not installed; make test-e2e does it", pkg)
	version, _, _ := strings.Cut(string(out), "-")
	if _, rest, found := strings.Cut(version, ":"); found {
		version = rest
	}
	return version
}
