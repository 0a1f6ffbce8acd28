package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	legolog "github.com/go-acme/lego/v5/log"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(inCrowd) != "" {
		os.Exit(crowdMain()) // the test that runs this is another process
	}
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func TestTheStoryGoesAsItIsTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, act{opening, story, true}), "\n%s", &out)
	for _, line := range []string{
		"the Limiter, of newOrder  2 admitted, 0 held before, 1 throttled\n",
		"the Limiter, of newOrder  1 admitted, 0 held before, 1 throttled\n",
		"the Limiter, of newOrder  2 admitted, 1 held before, 0 throttled\n",
		"urn:ietf:params:acme:error:rateLimited, Retry-After ",
		"signing at once           at most 1\n",
		"shed                      0\n",
	} {
		require.Contains(t, out.String(), line)
	}
}

// Not parallel: it keeps the processors busy.
func TestTheStoryOfTheHSMGoesAsItIsTold(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, hsmStory(2048)), "\n%s", &out)
	for _, line := range []string{
		"ACME  certificate for www.example.test     signatures: 1\n",
		"EST   certificate for device.example.test  signatures: 1\n",
		"SCEP  certificate for phone.example.test   signatures: 1\n",
		"OCSP  the EST certificate is good          signatures: 1\n",
		"CRL   number 1, 0 revoked                  signatures: 0\n",
		"resource pool timed out\n",
		" shed at once, 0 failed\n",
		" 0 without a session\n",
	} {
		require.Contains(t, out.String(), line)
	}
}

func TestASceneThatGoesOtherwiseIsReportedAndTheOthersAreToldAllTheSame(t *testing.T) {
	t.Parallel()
	flood := errors.New("the river is too high")
	scenes := []scene{
		{"The mill stands still.", func(context.Context, io.Writer) error { return flood }},
		{"The mill runs.", func(_ context.Context, w io.Writer) error {
			_, err := fmt.Fprintln(w, "   flour: 1 sack")
			return err
		}},
	}
	var out strings.Builder
	err := run(t.Context(), &out, act{scenes: scenes, atOnce: true})
	require.ErrorIs(t, err, flood)
	require.ErrorContains(t, err, "scene 1")
	require.Contains(t, out.String(), "1. The mill stands still.\n   It went otherwise: the river is too high\n")
	require.Contains(t, out.String(), "2. The mill runs.\n   flour: 1 sack\n")
}
