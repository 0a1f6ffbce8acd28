// Package gate bounds how much work is in flight at once.
//
// A [Gate] has a number of slots and a queue. Work takes a slot before it
// begins and gives it back when it ends. When every slot is taken, a bounded
// number of callers wait, first come, first served; everybody beyond that is
// refused at once, so that overload shows as a quick refusal and not as a pile
// of requests which nobody waits for any longer.
//
// # What a caller gets
//
// [Gate.Acquire] returns nil, and the caller owns one slot, or it returns one
// of four errors, and the caller owns nothing:
//
//   - [ErrQueueFull]: no slot is free and there is no place to wait, or the
//     caller does not wish to wait;
//   - [ErrTimeout]: the wait reached its bound;
//   - [ErrCanceled]: the context ended, before the call or during the wait;
//   - [ErrClosed]: the gate was closed, before the call or during the wait.
//
// # When two things happen at once
//
// A wait ends by a grant, by the context, by its bound or by Close, and several
// of them can come true before the waiter runs. The waiter looks at all of them
// when it wakes, and leaving wins: first the context, then the bound, then
// whatever the gate decided. A slot which the gate had granted by then goes to
// the next in line under the same lock. Two reasons:
//
//   - A caller that has gone does no useful work with a slot; the next may.
//   - The outcome depends on what has happened, not on which goroutine the
//     scheduler ran first. After a wait, a nil error proves that neither the
//     context nor the bound had ended when the waiter looked; a grant that was
//     in time for a waiter that was not is handed on as well.
//
// The road not taken is to keep the slot because it is there. It would start
// the request that has waited longest of all, which is the one most likely to
// be abandoned.
//
// # What a gate does not do
//
// It does not know how deep a caller is nested: work that holds a slot and asks
// the same gate for another can wait for itself. Give such work a bound, or do
// not send it through the gate twice. It does not stop work whose context ends
// either; a slot is held until it is given back, because what is protected (a
// signer, a connection, a process) is busy until then.
package gate
