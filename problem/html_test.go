package problem

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// A page is what a parser makes of a document: every element in order, and the
// text that a reader sees.
type page struct {
	elements []string // "a href rel": name and attribute names
	text     string
	href     string
	style    string
}

func parsePage(t *testing.T, document []byte) page {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(document))
	require.NoError(t, err)
	var p page
	for node := range root.Descendants() {
		switch node.Type {
		case html.ElementNode:
			words := []string{node.Data}
			for _, attribute := range node.Attr {
				words = append(words, attribute.Key)
				if attribute.Key == "href" {
					p.href = attribute.Val
				}
			}
			p.elements = append(p.elements, strings.Join(words, " "))
		case html.TextNode:
			if node.Parent.Data == "style" {
				p.style += node.Data
			} else {
				p.text += node.Data
			}
		case html.CommentNode:
			t.Errorf("a comment: %q", node.Data)
		}
	}
	return p
}

func TestHTMLPage(t *testing.T) {
	rej := Rejection{Status: 429, Reason: ReasonLocked, Class: "login", RetryAfter: 15 * time.Minute, Help: "https://ca.example/limits?a=1&b='2'"}
	w := refused(t, HTML, get(), rej)
	p := parsePage(t, w.Body.Bytes())

	for _, want := range []string{"Locked for now", "too many failed attempts", "in 15 minutes", "429 · locked · login"} {
		require.Contains(t, p.text, want)
	}
	require.Equal(t, rej.Help, p.href)
	require.Contains(t, w.Body.String(), `<time datetime="PT900S">`)
	require.Contains(t, w.Body.String(), `name="viewport"`)
	require.Contains(t, p.style, "prefers-color-scheme: dark")

	t.Run("it fetches nothing and runs nothing", func(t *testing.T) {
		for _, element := range p.elements {
			name, attributes, _ := strings.Cut(element, " ")
			require.NotContains(t, []string{"script", "img", "link", "iframe", "form", "base", "object"}, name)
			for attribute := range strings.FieldsSeq(attributes) {
				require.NotEqual(t, "src", attribute)
				require.False(t, strings.HasPrefix(attribute, "on"), "an event handler: %s", element)
			}
		}
		require.NotContains(t, p.style, "url(")
		require.NotContains(t, p.style, "@import")
		require.NotContains(t, w.Body.String(), "http-equiv")
	})
	t.Run("its policy allows the style that is in it", func(t *testing.T) {
		sum := sha256.Sum256([]byte(p.style))
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	})
	t.Run("without help there is no link", func(t *testing.T) {
		for _, help := range []string{"", "javascript:alert(1)"} {
			p := parsePage(t, refused(t, HTML, get(), Rejection{Help: help}).Body.Bytes())
			require.NotContains(t, strings.Join(p.elements, "\n"), "a rel")
		}
	})
	t.Run("a denial without a wait names none", func(t *testing.T) {
		p := parsePage(t, refused(t, HTML, get(), Rejection{Status: 403, Reason: ReasonDenied}).Body.Bytes())
		require.NotContains(t, p.text, "try again")
	})
}

// Markup has to end where it began whatever the words are.
func TestPageElementsAreBalanced(t *testing.T) {
	document := refused(t, HTML, get(), Rejection{Reason: ReasonRate, Class: "ocsp", Help: "https://ca.example/"}).Body
	tokens := html.NewTokenizer(document)
	var open []string
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			break
		}
		name, _ := tokens.TagName()
		switch kind {
		case html.StartTagToken:
			if string(name) != "meta" {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			require.NotEmpty(t, open)
			require.Equal(t, open[len(open)-1], string(name))
			open = open[:len(open)-1]
		}
	}
	require.Empty(t, open)
}
