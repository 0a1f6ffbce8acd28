package jws

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// posting returns a POST with the body, of no announced length.
func posting(body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/acme/new-order", body)
	r.ContentLength = -1
	r.Header.Set("Content-Type", mediaType)
	return r
}

// closable is a body that counts how often it was closed.
type closable struct {
	io.Reader
	closed int
	err    error
}

func (c *closable) Close() error { c.closed++; return c.err }

var errBroken = errors.New("the line is broken")

func TestPeekHandsTheBodyOn(t *testing.T) {
	ten := func() io.Reader { return strings.NewReader("0123456789") }
	for _, tt := range []struct {
		name      string
		body      io.Reader
		announced int64
		limit     int64
		peeked    string
		complete  bool
		whole     string
		err       error
	}{
		{"a body below the limit", ten(), -1, 100, "0123456789", true, "0123456789", nil},
		{"a body as long as the limit", ten(), -1, 10, "0123456789", true, "0123456789", nil},
		{"a body one byte above the limit", ten(), -1, 9, "012345678", false, "0123456789", nil},
		{"a body far above the limit", ten(), -1, 3, "012", false, "0123456789", nil},
		{"a limit of 0", ten(), -1, 0, "", false, "0123456789", nil},
		{"a negative limit", ten(), -1, -5, "", false, "0123456789", nil},
		{"an empty body and a limit of 0", strings.NewReader(""), -1, 0, "", true, "", nil},
		{"no limit to speak of", ten(), -1, math.MaxInt64, "0123456789", true, "0123456789", nil},
		{"an announced length", ten(), 10, 100, "0123456789", true, "0123456789", nil},
		{"an announced length as long as the limit", ten(), 10, 10, "0123456789", true, "0123456789", nil},
		{"an announced length above the limit", ten(), 10, 9, "", false, "0123456789", nil},
		{"an announced length that is too short", ten(), 2, 100, "0123456789", true, "0123456789", nil},
		{"an announced length that is too long", ten(), 99, 100, "0123456789", true, "0123456789", nil},
		{"one byte at a time", iotest.OneByteReader(ten()), -1, 100, "0123456789", true, "0123456789", nil},
		{"halves", iotest.HalfReader(ten()), -1, 100, "0123456789", true, "0123456789", nil},
		{"the end comes with the last byte", iotest.DataErrReader(ten()), -1, 100, "0123456789", true, "0123456789", nil},
		{"the end comes with the byte past the limit", iotest.DataErrReader(ten()), -1, 9, "012345678", false, "0123456789", nil},
		{"an error after some bytes", io.MultiReader(ten(), iotest.ErrReader(errBroken)), -1, 100, "0123456789", false, "0123456789", errBroken},
		{"an error with the last byte", iotest.DataErrReader(io.MultiReader(ten(), iotest.ErrReader(errBroken))), -1, 100, "0123456789", false, "0123456789", errBroken},
		{"an error at once", iotest.ErrReader(errBroken), -1, 100, "", false, "", errBroken},
		{"an error at the limit", io.MultiReader(ten(), iotest.ErrReader(errBroken)), -1, 10, "0123456789", false, "0123456789", errBroken},
		{"an error past the limit", io.MultiReader(ten(), iotest.ErrReader(errBroken)), -1, 5, "01234", false, "0123456789", errBroken},
		{"an unexpected end is not the end", io.MultiReader(ten(), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, 100, "0123456789", false, "0123456789", io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := posting(tt.body)
			r.ContentLength = tt.announced
			peeked, complete := Peek(r, tt.limit)
			assert.Equal(t, tt.peeked, string(peeked))
			assert.Equal(t, tt.complete, complete)
			assert.Equal(t, len(peeked), cap(peeked), "an append would write into what the handler reads")
			assert.Equal(t, tt.announced, r.ContentLength)

			whole, err := io.ReadAll(r.Body)
			assert.Equal(t, tt.whole, string(whole))
			assert.Equal(t, tt.err, err)
		})
	}
}

// A body as the rest of net/http and its own test suite expects one.
func TestPeekLeavesAProperReader(t *testing.T) {
	text := []byte(strings.Repeat("a proper reader ", 50))
	for _, limit := range []int64{0, 1, 100, 799, 800, 801, 5000} {
		r := posting(bytes.NewReader(text))
		Peek(r, limit)
		assert.NoError(t, iotest.TestReader(r.Body, text), "limit %d", limit)
	}
}

func TestPeekTwiceSeesTheSame(t *testing.T) {
	r := posting(iotest.OneByteReader(strings.NewReader("0123456789")))
	for _, limit := range []int64{3, 20, 0, 10, 5} {
		peeked, complete := Peek(r, limit)
		assert.Equal(t, "0123456789"[:min(limit, 10)], string(peeked))
		assert.Equal(t, limit >= 10, complete)
	}
	whole, err := io.ReadAll(r.Body)
	assert.NoError(t, err)
	assert.Equal(t, "0123456789", string(whole))
}

func TestPeekChangesNothingElse(t *testing.T) {
	r := posting(strings.NewReader("0123456789"))
	r.Trailer = http.Header{"Checksum": nil}
	r.TransferEncoding = []string{"chunked"}
	want := r.Clone(t.Context())
	Peek(r, 5)
	got := r.Clone(t.Context())
	got.Body, want.Body = nil, nil
	assert.Equal(t, want, got)
}

func TestPeekLeavesNoBodyAlone(t *testing.T) {
	for name, body := range map[string]io.ReadCloser{"nil": nil, "http.NoBody": http.NoBody} {
		t.Run(name, func(t *testing.T) {
			r := &http.Request{Method: http.MethodPost, Body: body}
			peeked, complete := Peek(r, 10)
			assert.Empty(t, peeked)
			assert.True(t, complete)
			assert.Equal(t, body, r.Body)
		})
	}
}

func TestPeekReadsAtMostOneByteMoreThanItsLimit(t *testing.T) {
	for _, limit := range []int64{0, 1, 511, 512, 4096, 4097, 65536} {
		text := strings.NewReader(strings.Repeat("x", 100_000))
		r := posting(text)
		Peek(r, limit)
		assert.EqualValues(t, limit+1, text.Size()-int64(text.Len()), "limit %d", limit)
	}
}

func TestPeekGivesUpOnABodyThatSaysNothing(t *testing.T) {
	asked := 0
	body := readerFunc(func(p []byte) (int, error) {
		if asked++; asked > 3*maxEmptyReads {
			return copy(p, "late"), io.EOF
		}
		return 0, nil
	})
	r := posting(body)
	peeked, complete := Peek(r, 10)
	assert.Empty(t, peeked)
	assert.False(t, complete)
	assert.Equal(t, maxEmptyReads, asked)

	whole, err := io.ReadAll(r.Body)
	assert.NoError(t, err)
	assert.Equal(t, "late", string(whole))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Memory follows what arrived: a client may announce what it likes.
func TestPeekHoldsNoMoreThanArrived(t *testing.T) {
	const limit = 1 << 30
	for _, tt := range []struct{ arrived, announced, most int }{
		{0, limit, firstRead},
		{1, limit, firstRead},
		{firstRead, limit, 2 * firstRead},
		{10_000, limit, 20_000},
		{10_000, -1, 20_000},
		{600, 600, 601},
		{0, -1, 512},
	} {
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", tt.arrived)), iotest.ErrReader(errBroken))
		read, err := readSome(body, limit+1, int64(tt.announced))
		assert.Equal(t, errBroken, err)
		assert.Len(t, read, tt.arrived)
		assert.LessOrEqual(t, cap(read), tt.most, "%+v", tt)
	}
}

func TestPeekLetsGoOfWhatWasRead(t *testing.T) {
	r := posting(io.MultiReader(strings.NewReader(strings.Repeat("x", 10_000)), strings.NewReader("rest")))
	peeked, _ := Peek(r, 9_999)
	freed := make(chan struct{})
	runtime.AddCleanup(&peeked[0], func(struct{}) { close(freed) }, struct{}{})
	peeked = nil
	_, err := io.ReadFull(r.Body, make([]byte, 10_000))
	require.NoError(t, err)
	runtime.GC()
	<-freed
	runtime.KeepAlive(r)
}

func TestClosingThePeekedBodyClosesTheOriginal(t *testing.T) {
	for _, limit := range []int64{0, 5, 100} {
		original := &closable{Reader: strings.NewReader("0123456789"), err: errBroken}
		r := posting(original)
		Peek(r, limit)
		assert.Zero(t, original.closed, "closed by Peek")
		assert.Equal(t, errBroken, r.Body.Close(), "the error of Close")
		assert.Equal(t, 1, original.closed)

		n, err := r.Body.Read(make([]byte, 10))
		assert.Zero(t, n)
		assert.Equal(t, http.ErrBodyReadAfterClose, err)
	}
}

// http.Transport closes the body of an outgoing request while another goroutine
// still waits in Read; the Close must get through to the original.
func TestClosingThePeekedBodyDuringARead(t *testing.T) {
	original, client := io.Pipe()
	r := posting(original)
	go client.Write([]byte("0123"))
	Peek(r, 3)
	_, err := io.ReadFull(r.Body, make([]byte, 4))
	require.NoError(t, err)

	said := make(chan error)
	go func() {
		_, err := r.Body.Read(make([]byte, 1))
		said <- err
	}()
	require.NoError(t, r.Body.Close())
	assert.Contains(t, []error{io.ErrClosedPipe, http.ErrBodyReadAfterClose}, <-said)
}

func TestPeekInsideMaxBytesReader(t *testing.T) {
	r := posting(strings.NewReader(strings.Repeat("x", 200)))
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 100)
	peeked, complete := Peek(r, 1000)
	assert.Len(t, peeked, 100)
	assert.False(t, complete)

	whole, err := io.ReadAll(r.Body)
	assert.Len(t, whole, 100)
	var tooLarge *http.MaxBytesError
	require.ErrorAs(t, err, &tooLarge)
	assert.EqualValues(t, 100, tooLarge.Limit)
	_, again := r.Body.Read(make([]byte, 1))
	assert.Same(t, tooLarge, again, "the error stays")
}

func TestPeekOutsideMaxBytesReader(t *testing.T) {
	for _, limit := range []int64{50, 100, 150, 1000} {
		r := posting(strings.NewReader(strings.Repeat("x", 200)))
		Peek(r, limit)
		r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 100)
		whole, err := io.ReadAll(r.Body)
		assert.Len(t, whole, 100, "limit %d", limit)
		var tooLarge *http.MaxBytesError
		assert.ErrorAs(t, err, &tooLarge, "limit %d", limit)
	}
}

// script is a body that plays a part: pieces of the given sizes, empty ones
// included, and an error behind failAt bytes, with or without the bytes before
// it. Told once, the error either stays or gives way to the rest.
type script struct {
	text    []byte
	sizes   []byte
	step    int
	at      int
	failAt  int
	joined  bool // the error comes together with the bytes before it
	passing bool // the error comes once
	failed  bool
}

func (s *script) Read(p []byte) (int, error) {
	n := len(p)
	if len(s.sizes) > 0 {
		n = min(n, int(s.sizes[s.step%len(s.sizes)]))
		s.step++
	}
	end := len(s.text)
	failing := s.failAt <= end && !(s.failed && s.passing)
	if failing {
		end = s.failAt
	}
	n = copy(p[:n], s.text[s.at:end])
	s.at += n
	switch {
	case s.at < end || n > 0 && !s.joined:
		return n, nil
	case failing:
		s.failed = true
		return n, errBroken
	default:
		return n, io.EOF
	}
}

// transcript is all that a reader says, three errors long.
func transcript(r io.Reader, size int) (said []string) {
	p := make([]byte, size)
	var bytes []byte
	for empty := 0; len(said) < 3 && empty < 1000; empty++ {
		n, err := r.Read(p)
		if n > 0 {
			empty = 0
		}
		bytes = append(bytes, p[:n]...)
		if err != nil {
			said = append(said, string(bytes), err.Error())
			bytes = nil
		}
	}
	return said
}

// Whatever the original body does, the one that Peek puts back says the same in
// the same order, and Peek itself tells the truth about it.
func FuzzPeek(f *testing.F) {
	f.Add([]byte("0123456789"), int64(5), []byte{3, 0, 1}, uint16(7), uint8(0), uint8(4), int64(-1))
	f.Add([]byte("0123456789"), int64(10), []byte{}, uint16(99), uint8(1), uint8(100), int64(10))
	f.Add([]byte("0123456789"), int64(9), []byte{255}, uint16(10), uint8(2), uint8(1), int64(3))
	f.Add([]byte("0123456789"), int64(11), []byte{1}, uint16(0), uint8(3), uint8(9), int64(11))
	f.Add(bytes.Repeat([]byte("x"), 9000), int64(8192), []byte{255, 254}, uint16(8193), uint8(3), uint8(255), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, limit int64, sizes []byte, failAt uint16, manner, readSize uint8, announced int64) {
		if len(bytes.Trim(sizes, "\x00")) == 0 {
			sizes = nil // a body that says nothing has a test of its own
		}
		if len(sizes) > maxEmptyReads {
			sizes = sizes[:maxEmptyReads]
		}
		play := func() *script {
			return &script{text: text, sizes: sizes, failAt: int(failAt), joined: manner&1 != 0, passing: manner&2 != 0}
		}
		size := int(readSize) + 1
		r := posting(play())
		r.ContentLength = announced
		peeked, complete := Peek(r, limit)

		end := min(len(text), int(failAt))
		if !bytes.HasPrefix(text, peeked) || int64(len(peeked)) > max(limit, 0) || len(peeked) > end {
			t.Fatalf("Peek(%d) of %q, failing at %d, = %q", limit, text, failAt, peeked)
		}
		within := max(limit, 0)
		whole := int(failAt) > len(text) && int64(len(text)) <= within && announced <= within
		if complete != whole {
			t.Fatalf("Peek(%d) of %d bytes, announced as %d, failing at %d: complete = %v", limit, len(text), announced, failAt, complete)
		}
		if complete && len(peeked) != len(text) {
			t.Fatalf("complete with %d of %d bytes", len(peeked), len(text))
		}
		got, want := transcript(r.Body, size), transcript(play(), size)
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("after Peek(%d) the body said %q, the original %q", limit, got, want)
		}
	})
}
