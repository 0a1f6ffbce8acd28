// Package bench measures weir beside its peers, in one run on one machine.
package bench

import (
	_ "github.com/didip/tollbooth/v8"
	_ "github.com/failsafe-go/failsafe-go"
	_ "github.com/go-chi/httprate"
	_ "github.com/go-redis/redis_rate/v10"
	_ "github.com/hashicorp/golang-lru/v2"
	_ "github.com/maypok86/otter/v2"
	_ "github.com/mennanov/limiters"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/realclientip/realclientip-go"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/sethvargo/go-limiter"
	_ "github.com/throttled/throttled/v2"
	_ "github.com/ulule/limiter/v3"
	_ "github.com/weir-go/weir"
	_ "golang.org/x/sync/semaphore"
	_ "golang.org/x/time/rate"
)
