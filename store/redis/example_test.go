package redis_test

import (
	"context"
	"log"
	"time"

	"github.com/weir-go/weir/store/redis"
)

// The server must answer before the program starts to serve.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := redis.Open(ctx, redis.Options{
		DSN:       "rediss://weir:password@redis.example:6379/0?tls_ca=/etc/pki/redis-ca.pem",
		Namespace: "acme",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	// weir.New(cfg, weir.WithStore(s))
}

// Two Sentinels that know the master.
func ExampleOpen_sentinel() {
	s, err := redis.Open(context.Background(), redis.Options{
		DSN: "redis://weir:password@sentinel1:26379?addr=sentinel2:26379&master_name=limits",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()
}
