package gate

// The numbers below are for metrics and for people. Each is exact for the
// instant in which it is read and may be old when it is used: deciding by them
// whether to call Acquire is a race that Acquire itself does not have.

// InFlight returns how many slots are held. After [Gate.Configure] made the gate
// smaller it can exceed [Gate.Slots] for a while.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

// Queued returns how many callers wait, in all lanes.
func (g *Gate) Queued() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting
}

// Slots returns how many slots there are, held or free.
func (g *Gate) Slots() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots
}

// QueueCap returns how many callers may wait, in all lanes.
func (g *Gate) QueueCap() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, ln := range g.lanes {
		n += ln.queueCap
	}
	return n
}

// Occupancy is one lane's state.
type Occupancy struct {
	Lane     string // "" for the default one
	Reserve  int    // as it is in force, see [Gate.Configure]
	Limit    int    // the most slots that it may hold
	InFlight int    // slots held
	Queue    int    // places to wait
	Queued   int    // callers that wait
}

// Lanes returns the state of the lanes that are configured, the default one
// first, the others as they were first configured. What a lane that is not
// configured any more still holds is part of no other's numbers.
func (g *Gate) Lanes() []Occupancy {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Occupancy
	for _, ln := range g.lanes {
		if ln.open {
			list = append(list, Occupancy{ln.name, ln.reserve, ln.limit, ln.held, ln.queueCap, ln.queue.n})
		}
	}
	return list
}

// Sheds reports whether work would be refused at once, whatever its deadline. It
// is for whoever would spend effort before it asks.
func (g *Gate) Sheds(w *Work) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ln, k := g.laneOf(w)
	err := g.refusalLocked(ln, k, w)
	return err != nil && err != errMustWait
}
