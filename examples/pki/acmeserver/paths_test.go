package acmeserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDirectoryListsThePathsOfTheTable(t *testing.T) {
	srv := start(t, Config{})
	resp, err := srv.Client().Get(srv.DirectoryURL)
	require.NoError(t, err)
	defer resp.Body.Close()
	var directory map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&directory))
	delete(directory, "meta") // about the authority, not a resource
	require.NotEmpty(t, directory)

	base := strings.TrimSuffix(srv.DirectoryURL, PathDirectory)
	for _, e := range Endpoints() {
		if url, listed := directory[e.Resource]; listed {
			// The directory gives a prefix without its slash for renewalInfo
			// (RFC 9773, section 4.1).
			require.Equal(t, base+strings.TrimSuffix(e.Path, "/"), url, e.Resource)
			delete(directory, e.Resource)
		}
	}
	require.Empty(t, directory, "resources that the table does not name")
}

func TestEveryEndpointServesItsMethodsAndNoOther(t *testing.T) {
	srv := start(t, Config{})
	for _, e := range Endpoints() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			path := e.Path
			if strings.HasSuffix(path, "/") {
				path += "no-such-id"
			}
			r := httptest.NewRequest(method, "https://ca.example.test"+path, nil)
			r.Header.Set("User-Agent", "paths test")
			w := httptest.NewRecorder()
			srv.Handler.ServeHTTP(w, r)
			require.Equal(t, slices.Contains(e.Methods, method), w.Code != http.StatusMethodNotAllowed,
				"%s %s: %d", method, path, w.Code)
		}
	}
}

func TestAPathOutsideTheTableIsNotServed(t *testing.T) {
	srv := start(t, Config{})
	for _, path := range []string{"/", "/acme/new-order", "/roots/0", "/set-renewal-info/"} {
		r := httptest.NewRequest("GET", "https://ca.example.test"+path, nil)
		r.Header.Set("User-Agent", "paths test")
		w := httptest.NewRecorder()
		srv.Handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusNotFound, w.Code, path)
	}
}
