package gate

import (
	"fmt"
	"maps"
	"slices"
)

// Config is the size of a gate.
type Config struct {
	Slots        int // at least 1
	BackendLimit int // most slots that work for one named backend may hold; 0: no bound
	Default      LaneConfig
	Lanes        map[string]LaneConfig // besides the default one
}

// Configure changes the sizes of the gate and which lanes there are. Slots that
// come free by it go to waiters at once. With fewer slots than are held, nobody
// is interrupted and nobody is let in until enough have been given back. With
// fewer places than are taken, nobody is thrown out: who waits keeps its turn,
// newcomers are refused. A lane that is not there any more has no reserve and no
// bound but the slots; those who wait in it are served, newcomers go to the
// default lane.
//
// Reserves that the slots have no room for, one left over for lanes without,
// are cut: each in turn gives up the last of its slots.
//
// It panics on the same numbers as [New], and on negative ones. On a closed gate
// it has no visible effect but for what [Gate.Slots] and [Gate.QueueCap] report.
func (g *Gate) Configure(c Config) {
	if c.Slots < 1 {
		panic(fmt.Sprintf("gate: %d slots; at least 1 is needed", c.Slots))
	}
	c.Default.check()
	for _, lane := range c.Lanes {
		lane.check()
	}
	g.mu.Lock()
	defer g.mu.Unlock()

	g.slots, g.backendLimit = c.Slots, c.BackendLimit
	g.lanes[0].configure(c.Default)
	for _, ln := range g.lanes[1:] {
		if _, ok := c.Lanes[ln.name]; !ok {
			ln.configure(LaneConfig{Order: ln.order})
			ln.open = false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		ln := g.laneLocked(name)
		ln.configure(c.Lanes[name])
		ln.open = true
	}
	g.cutReserves()
	g.unfilled = 0
	for _, ln := range g.lanes {
		g.unfilled += max(0, ln.reserve-ln.held)
	}
	g.grantLocked()
}

// cutReserves makes the reserves leave a slot to the others. The largest give
// first, so that none goes while another has two.
func (g *Gate) cutReserves() {
	sum := 0
	for _, ln := range g.lanes {
		ln.reserve = min(ln.reserve, ln.limit)
		sum += ln.reserve
	}
	for ; sum > g.slots-1; sum-- {
		largest := g.lanes[0]
		for _, ln := range g.lanes {
			if ln.reserve > largest.reserve || ln.reserve == largest.reserve && ln.name > largest.name {
				largest = ln
			}
		}
		if largest.reserve == 0 {
			return
		}
		largest.reserve--
	}
}
