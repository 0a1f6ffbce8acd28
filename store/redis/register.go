package redis

import (
	"context"

	"github.com/weir-go/weir/store"
)

// init makes the store available as backend "redis" to every program that
// imports the package. Nothing is dialled before a configuration chooses it.
func init() {
	store.Register("redis", func(ctx context.Context, c store.OpenConfig) (store.Store, error) {
		s, err := Open(ctx, Options{
			DSN: c.DSN, KeyPrefix: c.KeyPrefix, Namespace: c.Namespace,
			Fingerprint: c.Fingerprint, ConnectTimeout: c.ConnectTimeout, CommandTimeout: c.CommandTimeout,
		})
		if err != nil {
			return nil, err // a nil *Store would be a Store
		}
		return s, nil
	})
}

var _ store.Pinger = (*Store)(nil)

// StoreReason implements [store.Reasoner].
func (e *Error) StoreReason() string { return string(e.Reason) }

var _ store.Reasoner = (*Error)(nil)
