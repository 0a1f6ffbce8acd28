// Command replicas runs three servers that share one budget in Redis, behind a
// balancer, under a flood, and hangs and kills Redis in the middle of it.
//
//	go run ./replicas
//
// It needs redis-server, starts one of its own on a loopback port, and takes
// some 20 seconds. Read limits.go for the configuration, replica.go for a
// server that has it, then story.go.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if isReplica() {
		if err := serve(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout, 4*time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
}
