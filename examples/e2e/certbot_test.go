//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/problem"
)

// Before version 2.3 certbot fails on Python 3.11 when it is about to raise
// the problem that it has read (certbot/certbot#9539), and tells of that
// instead. What is no JSON it tells by its status, which is all that it can be
// made to say; the log has the whole answer in either case.
func TestCertbotOnPython311(t *testing.T) {
	for _, form := range []struct {
		name   string
		writer problem.Writer
		says   string
	}{
		{"reads nothing from a problem document", problem.ACME, "AttributeError: can't set attribute"},
		{"reads the status of plain text", problem.Plain, "<Response [429]>"},
		{"reads the status of no document", problem.Empty, "<Response [429]>"},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			l := limits{every: 10 * time.Minute, drain: always}
			got := certbot(t, acme(t, l, weir.WithRejection(weir.KindACME, form.writer)))
			tell("certbot", debian(t, "certbot"), "form of the refusal: "+form.name, lineWith(got.said, "rror:"))
			require.Error(t, got.err)
			assert.Contains(t, got.said, form.says)
			assert.Regexp(t, `(?i)retry-after: 600`, got.log)
		})
	}
}
