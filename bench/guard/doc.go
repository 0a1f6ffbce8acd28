// Command guard shows what a guard's disciplines do under overload, beside a
// plain semaphore: it sends crowds of clients at the gate that the library uses,
// in virtual time, and prints who was served and when.
//
//	go run ./guard
//
// The gate is the real one, with its goroutines, timers and locks; only the clock
// is that of testing/synctest. Arrivals and service times come from a seed, so a
// run gives the same numbers each time.
package main
