// Command login protects a login page and an EST enrolment endpoint with the
// auth lock, has a crowd guess at an account's password, and shows that the
// crowd learns next to nothing while the account's owner still gets in.
//
//	go run ./login
//
// Read limits.go for the configuration, site.go for a handler that reports its
// verdict, enrol.go for one that knows nothing of the lock, then story.go.
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
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
