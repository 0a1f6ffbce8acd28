package redis

import (
	"context"
	_ "embed"
	"fmt"
)

//go:embed agree.lua
var agreeSource string

var agreeScript = newScript(agreeSource)

// fingerprint is the name of the key that the fingerprint is kept in.
func (k keyspace) fingerprint() string { return k.head + "}fingerprint" }

// agree makes sure that the limiters that share the counts key their ids alike:
// else each would count for itself what looks like other callers, and nobody would
// notice.
func (s *Store) agree(ctx context.Context) error {
	if s.opts.Fingerprint == "" {
		return nil
	}
	c := newCall(1)
	c.text(s.keys.fingerprint())
	c.keys++
	c.text(s.opts.Fingerprint)
	switch reply, err := s.run(ctx, "open", agreeScript, c); {
	case err != nil:
		return err
	case reply != "ok":
		return fmt.Errorf("store/redis: the limiters of namespace %q that were here before have another key secret: give all the same one; if it was changed on purpose, delete the key %q, and what was counted by id begins anew",
			s.opts.Namespace, s.keys.fingerprint())
	}
	return nil
}
