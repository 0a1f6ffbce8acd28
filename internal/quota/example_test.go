package quota_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/quota"
)

func ExampleHeaders_Write() {
	bucket := quota.Quota{Name: "per_ip", Limit: 40, Remaining: 12.7, Rate: 20}
	window := quota.Quota{Name: "per_subject", Limit: 600, Remaining: 431, Window: time.Minute, Reset: 17 * time.Second}

	header := http.Header{}
	headers := quota.Headers{Mode: quota.Always, IETF: true}
	if headers.Wanted(false) {
		now := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
		headers.Write(header, now, bucket, []quota.Quota{bucket, window})
	}
	for _, key := range slices.Sorted(maps.Keys(header)) {
		fmt.Printf("%s: %s\n", key, header.Get(key))
	}
	// Output:
	// Ratelimit: "per_ip";r=12;t=1
	// Ratelimit-Policy: "per_ip";q=40;w=2, "per_subject";q=600;w=60
	// X-Ratelimit-Limit: 40
	// X-Ratelimit-Remaining: 12
	// X-Ratelimit-Reset: 1800000002
}
