package quota

import (
	"net/http"
	"testing"
	"time"
)

func BenchmarkWrite(b *testing.B) {
	all := []Quota{global, perIP, subject}
	now := noon.Add(123 * time.Millisecond)
	for _, bm := range []struct {
		name  string
		h     Headers
		outer []string
	}{
		{"fields=none", Headers{}, nil},
		{"fields=three", legacy, nil},
		{"fields=three/outer=tighter", legacy, []string{"3"}},
		{"fields=five/policies=3", ietf, nil},
		{"fields=five/policies=3/outer=looser", ietf, []string{"300"}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				header := make(http.Header)
				for pb.Next() {
					clear(header)
					if bm.outer != nil {
						header[keyRemaining] = bm.outer
					}
					bm.h.Write(header, now, perIP, all)
				}
			})
		})
	}
}
