package softhsm

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThalesGroup/crypto11"
	"github.com/stretchr/testify/require"
)

func opened(t *testing.T, cfg Config) *HSM {
	t.Helper()
	cfg.Bits = 2048 // larger ones take long to make
	h, err := Open(cfg)
	require.NoError(t, err)
	return h
}

var digest = sha256.Sum256([]byte("to be signed"))

func sign(h *HSM) error {
	signature, err := h.Key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		return err
	}
	return rsa.VerifyPKCS1v15(h.Key.Public().(*rsa.PublicKey), crypto.SHA256, digest[:], signature)
}

// The tests of this package share a token, so they are not parallel.

func TestTwoHSMsOfOneProcessHaveAKeyEachAndTheLastClearsAway(t *testing.T) {
	one, two := opened(t, Config{}), opened(t, Config{})
	dir := shared.token.dir
	require.DirExists(t, dir)
	require.NoError(t, sign(one))
	require.NoError(t, sign(two))
	require.NotEqual(t, one.Key.Public(), two.Key.Public())
	require.NoError(t, one.Close())
	require.NoError(t, sign(two))
	require.NoError(t, two.Close())
	require.NoDirExists(t, dir)
	require.Empty(t, os.Getenv(configVariable))
	require.NoError(t, opened(t, Config{}).Close(), "and another may be opened")
}

func TestAsManySignaturesAtOnceAsSessionsNeverFail(t *testing.T) {
	h := opened(t, Config{Sessions: 8})
	require.Equal(t, 8, h.Sessions())
	var wg sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed {
		wg.Go(func() {
			for range 20 {
				if err := sign(h); err != nil {
					failed[i] = err
				}
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		require.NoError(t, err)
	}
	usage := h.Key.Usage()
	require.EqualValues(t, 160, usage.Signed)
	require.Zero(t, usage.Failed+usage.AtWork)
	require.LessOrEqual(t, usage.Most, int64(8))
	require.NoError(t, h.Close())
}

// crypto11 keeps a session of its own beside those that it is asked for, so to
// have 8 is to ask for 9. A cipher keeps one in use until it is closed.
func TestThereAreAsManySessionsAsWereAskedFor(t *testing.T) {
	h := opened(t, Config{Sessions: 8, Wait: time.Millisecond})
	key, err := h.context.GenerateSecretKey([]byte("test"), 128, crypto11.CipherAES)
	require.NoError(t, err)
	var inUse []crypto11.BlockModeCloser
	for range h.Sessions() {
		cipher, err := key.NewCBCEncrypterCloser(make([]byte, 16))
		require.NoError(t, err, "after %d", len(inUse))
		inUse = append(inUse, cipher)
	}
	require.ErrorContains(t, sign(h), "resource pool timed out")
	for _, cipher := range inUse {
		cipher.Close()
	}
	require.NoError(t, sign(h))
	require.NoError(t, h.Close())
}

func TestWithALatencyThereAreNoMoreSessionsThanWithout(t *testing.T) {
	h := opened(t, Config{Sessions: 2, Wait: time.Millisecond, Latency: time.Millisecond})
	require.NoError(t, sign(h))
	h.Key.sessions <- struct{}{}
	require.NoError(t, sign(h), "one is free")
	h.Key.sessions <- struct{}{}
	require.ErrorIs(t, sign(h), ErrNoSession)
	require.Equal(t, Usage{Signed: 2, Failed: 1, Most: 1}, h.Key.Usage())
	require.NoError(t, h.Close())
}
