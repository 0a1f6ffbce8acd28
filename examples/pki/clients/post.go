package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Refused is an answer that is not what was asked for.
type Refused struct {
	Status     int
	RetryAfter string // as sent; "" for none
	Text       string // of the answer, if it is text
}

func (e *Refused) Error() string {
	if e.RetryAfter != "" {
		return fmt.Sprintf("status %d, Retry-After %s: %s", e.Status, e.RetryAfter, e.Text)
	}
	return fmt.Sprintf("status %d: %s", e.Status, e.Text)
}

// maxAnswer is far above the size of any certificate.
const maxAnswer = 1 << 20

// post sends a body and returns that of the answer, or a *Refused.
func post(ctx context.Context, hc *http.Client, url, contentType string, body []byte, edit ...func(*http.Request)) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", contentType)
	for _, f := range edit {
		f(r)
	}
	return send(hc, r)
}

func get(ctx context.Context, hc *http.Client, url string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	return send(hc, r)
}

func send(hc *http.Client, r *http.Request) ([]byte, http.Header, error) {
	resp, err := hc.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		refused := &Refused{Status: resp.StatusCode, RetryAfter: resp.Header.Get("Retry-After")}
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
			refused.Text = strings.TrimSpace(string(answer))
		}
		return nil, nil, refused
	}
	return answer, resp.Header, nil
}
