package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/weir-go/weir/store"
)

// Keys are the keys of a run, by number: addresses, as texts for limiters that
// want those, and as 16 bytes for the others.
type Keys interface {
	Text(i int) string
	Key(i int) store.Key
}

// Fresh makes each key when it is asked for, as a server does with that of a
// request: a limiter that keeps it pays for it.
var Fresh Keys = fresh{}

type fresh struct{}

// Text is an address of 10.0.0.0/8, for 16 million different ones.
func (fresh) Text(i int) string {
	b := make([]byte, 0, 16)
	b = append(b, "10."...)
	b = strconv.AppendInt(b, int64(i>>16&255), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(i>>8&255), 10)
	b = append(b, '.')
	return string(strconv.AppendInt(b, int64(i&255), 10))
}

func (fresh) Key(i int) (k store.Key) {
	k[10], k[11] = 0xff, 0xff
	binary.BigEndian.PutUint32(k[12:], 10<<24|uint32(i))
	return k
}

// listed are keys that exist: what is measured is the limiter, not the making
// of a text.
type listed struct {
	text []string
	key  []store.Key
}

func (l *listed) Text(i int) string   { return l.text[i] }
func (l *listed) Key(i int) store.Key { return l.key[i] }

var (
	lists   = map[int]*listed{}
	listsMu sync.Mutex
)

// Listed returns n keys that are made once for all limiters.
func Listed(n int) Keys {
	listsMu.Lock()
	defer listsMu.Unlock()
	l := lists[n]
	if l == nil {
		l = &listed{make([]string, n), make([]store.Key, n)}
		for i := range n {
			l.text[i], l.key[i] = Fresh.Text(i), Fresh.Key(i)
		}
		lists[n] = l
	}
	return l
}

// Order is a sequence of key numbers that is long enough not to be learnt:
// uniform, or zipf with the exponent 1.1, in which some few keys make most
// requests.
func Order(keys int, spread string) []uint32 {
	r := rand.New(rand.NewPCG(1, 1))
	order := make([]uint32, 1<<20)
	if keys == 1 {
		return order[:1024]
	}
	z := rand.NewZipf(r, 1.1, 1, uint64(keys-1))
	for i := range order {
		if spread == "zipf" {
			order[i] = uint32(z.Uint64())
		} else {
			order[i] = uint32(r.IntN(keys))
		}
	}
	return order
}
