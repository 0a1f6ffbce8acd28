// Package countsync stands in for package sync in a build that counts locks: a
// go build -overlay has weir's sources import it under that name. Nothing else
// does. See the budget of locks in package bench.
package countsync

import (
	"sync"
	"sync/atomic"
)

// Locks is how often a lock was taken, for reading or writing. Tries count if
// they succeed.
var Locks atomic.Int64

// Mutex counts.
type Mutex struct{ mu sync.Mutex }

func (m *Mutex) Lock()   { Locks.Add(1); m.mu.Lock() }
func (m *Mutex) Unlock() { m.mu.Unlock() }

func (m *Mutex) TryLock() bool {
	ok := m.mu.TryLock()
	if ok {
		Locks.Add(1)
	}
	return ok
}

// RWMutex counts.
type RWMutex struct{ mu sync.RWMutex }

func (m *RWMutex) Lock()    { Locks.Add(1); m.mu.Lock() }
func (m *RWMutex) Unlock()  { m.mu.Unlock() }
func (m *RWMutex) RLock()   { Locks.Add(1); m.mu.RLock() }
func (m *RWMutex) RUnlock() { m.mu.RUnlock() }

// What is no lock of its own, or takes one only when it is first used.
type (
	Cond      = sync.Cond
	Locker    = sync.Locker
	Map       = sync.Map
	Once      = sync.Once
	Pool      = sync.Pool
	WaitGroup = sync.WaitGroup
)

func NewCond(l Locker) *Cond                             { return sync.NewCond(l) }
func OnceFunc(f func()) func()                           { return sync.OnceFunc(f) }
func OnceValue[T any](f func() T) func() T               { return sync.OnceValue(f) }
func OnceValues[T, U any](f func() (T, U)) func() (T, U) { return sync.OnceValues(f) }
