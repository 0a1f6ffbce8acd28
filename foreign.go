package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/store"
)

// storeTimeout is how long a store may take over one call. The contract says
// within the context's deadline, but most requests have none: a store that
// hangs must not hang them.
const storeTimeout = time.Second

// storeStall is at what age of its oldest call a store of the program's own that has
// a Ping is taken to hang, at least. Nobody has said how long it may take.
const storeStall = 25 * time.Millisecond

// foreign is a store that the program brought and that has no Ping, kept from taking requests down
// with it: a call that hangs ends at storeTimeout, and a panic is an error like
// any other. That the client leaves, or its deadline passes, ends no call: it would
// fail, and with on_error "allow" a client that hangs up half-way, and can still read
// the answer, would pass uncounted.
type foreign struct{ store.Store }

func (f foreign) Admit(ctx context.Context, checks []store.Check, dst []store.State) (v store.Verdict, states []store.State, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Store.Admit(ctx, checks, dst)
}

func (f foreign) Refund(ctx context.Context, checks []store.Check) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Store.Refund(ctx, checks)
}

type foreignPeeker struct{ store.Peeker }

func (f foreignPeeker) Peek(ctx context.Context, checks []store.Check, dst []store.State) (v store.Verdict, states []store.State, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Peeker.Peek(ctx, checks, dst)
}

// panicAsError must be called directly by defer, for recover to see the panic.
func panicAsError(err *error) {
	if v := recover(); v != nil {
		*err = &takeover.Panic{Value: v}
	}
}
