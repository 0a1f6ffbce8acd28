package gate

// The numbers below are for metrics and for people. Each is exact for the
// instant in which it is read and may be old when it is used: deciding by them
// whether to call Acquire is a race that Acquire itself does not have.

// InFlight returns how many slots are held. After [Gate.Resize] made the gate
// smaller it can exceed [Gate.Slots] for a while.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// Queued returns how many callers wait. After [Gate.Resize] made the queue
// shorter it can exceed [Gate.QueueCap] for a while.
func (g *Gate) Queued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.n
}

// Slots returns how many slots there are, held or free.
func (g *Gate) Slots() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// QueueCap returns how many callers may wait.
func (g *Gate) QueueCap() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queueCap
}
