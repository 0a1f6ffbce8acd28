package store

import (
	"context"
	"errors"
)

// ErrNoNode is the error of [Sharded.PingNode] for a node that has no bucket any
// more: others have taken over what it had.
var ErrNoNode = errors.New("store: no such node")

// Sharded is implemented by stores that can keep their buckets on several nodes,
// each of which can fail alone. A limiter then stands in for the buckets of the
// node that fails, and goes on asking the others.
type Sharded interface {
	// Watch has begin called before each call to a node. If it errs, the call is
	// not made and fails with that error. Else the call is made with the context
	// that it returns, and ends by handing its error, or nil, to end, and
	// failing with what end returns. Watch is called once, before any
	// other call, and returns false, and nothing is watched, if all
	// buckets are on one node. Both functions are quick and safe for concurrent use.
	Watch(begin func(ctx context.Context, node string) (_ context.Context, end func(error) error, err error)) bool
	// Node names the node that has the bucket or window of a check now. It makes no
	// call.
	Node(c *Check) string
	// PingNode does what [Pinger.Ping] does, at one node.
	PingNode(ctx context.Context, node string) error
}
