// Package gate bounds how much work is in flight at once.
//
// A [Gate] has a number of slots and, in each of its lanes, a queue. Work takes a
// slot before it begins and gives it back when it ends. When no slot is free for
// it, a bounded number of callers wait; everybody beyond that is refused at once,
// so that overload shows as a quick refusal and not as a pile of requests which
// nobody waits for any longer.
//
// # Who is served
//
// A [Lane] may have slots reserved, which no other lane takes, whatever hangs in
// those. A free slot goes to a lane below its reserve, else to the lane that holds
// least. Within the lane [Flow]s take turns, in an [Order]. One flow may fill the
// queue as long as no other wants a place in it; then it gives places up.
//
// # What a caller gets
//
// [Gate.Acquire] returns nil, and the caller owns one slot, or it returns one
// of these errors, and the caller owns nothing:
//
//   - [ErrQueueFull]: no slot is free and there is no place to wait, or the
//     caller does not wish to wait, or its place went to another flow;
//   - [ErrTimeout]: the wait reached its bound;
//   - [ErrCanceled]: the context ended, before the call or during the wait;
//   - [ErrDeadline]: the wait would not have ended in time;
//   - [ErrBackendShare]: the backend has its share of the slots;
//   - [ErrClosed]: the gate was closed, before the call or during the wait.
//
// # What the gate learns
//
// It measures how long work takes and how quickly each queue moves, to tell those
// who cannot be served in time, by [ErrDeadline], when they come and again when
// their turn comes: a slot that is given to them is lost to others. What it does
// not know yet it does not hold against anybody, and a slot that is free is given
// to whoever comes, whatever the estimate. Where no slot is ever free for a newcomer,
// one at a time of those who seem too slow is let through a second after the last
// measurement. So an estimate that is wrong rights itself.
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
