package redis

import (
	"context"
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// run has a server run a script, and returns what it answers, a text. It waits no longer
// than the command timeout and the deadline of ctx, and sends a call a second
// time in one case only: the server says that it does not know the script, and so
// has not run it.
func (s *Store) run(ctx context.Context, op string, sc script, c *call) (string, error) {
	if err := ctx.Err(); err != nil {
		e := s.fail(op, err).(*Error)
		e.MayHaveRun = false
		e.text = "the context was over before the call: " + err.Error()
		return "", e
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.CommandTimeout)
	defer cancel()
	reply, err := s.send(ctx, c.args("evalsha", sc.digest))
	if err != nil && goredis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.send(ctx, c.args("eval", sc.source))
	}
	if err == nil {
		if text, ok := reply.(string); ok {
			return text, nil
		}
		err = badReply{fmt.Errorf("no answer of our script, but a %T", reply)}
	}
	if s.closed.Load() {
		return "", store.ErrClosed
	}
	err = s.fail(op, err)
	if e := (*Error)(nil); errors.As(err, &e) && e.Reason != ReasonCanceled {
		s.lookAgain(ctx)
	}
	return "", err
}

// send sends one command and waits for its answer. Few callers are served best
// by connections of their own, many by sharing round trips (measured figures are
// in the documentation of [Options]).
func (s *Store) send(ctx context.Context, args []any) (any, error) {
	cmd := once{goredis.NewCmd(ctx, args...)}
	n := s.flying.Add(1)
	defer s.flying.Add(-1)
	if s.pipe == nil || n <= int64(s.opts.Coalesce) {
		err := s.client.Process(ctx, cmd)
		return cmd.Val(), err
	}
	// After a deadline the pipeline still has the command: it must not be touched.
	if err := s.pipe.Submit(ctx, cmd).WaitContext(ctx); err != nil {
		return nil, err
	}
	return cmd.Val(), cmd.Err()
}
