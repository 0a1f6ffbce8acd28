package weir

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/gate"
)

// laneDefault is what the lane of classes without one of their own is called in
// metrics and snapshots.
const laneDefault = "default"

// disciplines are the orders in which a guard serves, by their names in a file.
var disciplines = map[string]gate.Order{
	"fair": gate.Fair, "newest_first": gate.NewestFirst, "controlled_delay": gate.ControlledDelay,
}

// guardDefaults fills in the knobs of guards for which 0 means the default.
func (c *Config) guardDefaults() {
	for name, g := range c.Guards {
		orDefault(&g.MaxQueue, 64)
		orDefault(&g.AcquireTimeout, Duration(5*time.Second))
		orDefault(&g.Discipline, "fair")
		if g.BackendShare == 0 {
			if g.BackendShare = 100; c.backendsOf(name) > 1 {
				g.BackendShare = 75
			}
		}
		for name, lane := range g.Lanes {
			orDefault(&lane.MaxQueue, g.MaxQueue)
			orDefault(&lane.MaxShare, 100)
			orDefault(&lane.Discipline, g.Discipline)
			g.Lanes[name] = lane
		}
		c.Guards[name] = g
	}
}

// backendsOf counts the backends that endpoints name behind a guard.
func (c *Config) backendsOf(guard string) int {
	backends := map[string]bool{}
	for _, e := range c.Endpoints {
		if e.Guard == guard && e.Backend != "" {
			backends[e.Backend] = true
		}
	}
	return len(backends)
}

// backendOf is the backend of all endpoints in a lane, "" if they have several or
// none.
func (c *Config) backendOf(guard string, lane LaneConfig) (only string) {
	for _, e := range c.Endpoints {
		if e.Guard != guard || !slices.Contains(lane.Classes, e.Class) {
			continue
		}
		if e.Backend == "" || only != "" && only != e.Backend {
			return ""
		}
		only = e.Backend
	}
	return only
}

func (c *Config) validateGuards(f *faults) {
	for _, name := range slices.Sorted(maps.Keys(c.Guards)) {
		g, path := c.Guards[name], "guards."+name
		if !wordPattern.MatchString(name) {
			f.add(path, nil, ReasonInvalid, "name it with lower-case letters, digits and _, starting with a letter, at most 64")
		}
		if g.MaxInFlight < 0 {
			f.add(path+".max_in_flight", g.MaxInFlight, ReasonOutOfRange, "write how many may be at work at once, or 0 for the pool's size")
		}
		if g.MaxQueue < 0 {
			f.add(path+".max_queue", g.MaxQueue, ReasonOutOfRange, "write how many may wait; 0 means 64; for none, give the class mode: fail")
		}
		if g.AcquireTimeout < 0 {
			f.add(path+".acquire_timeout", g.AcquireTimeout, ReasonOutOfRange, "write how long one may wait, such as 5s; 0 means 5s; for not at all, give the class mode: fail")
		}
		if g.BackendShare < 0 || g.BackendShare > 100 {
			f.add(path+".backend_share", g.BackendShare, ReasonOutOfRange, "write the percentage of slots that one backend may hold, 1 to 100; 0 means 75 where endpoints name more than one backend")
		}
		validateDiscipline(f, path+".discipline", g.Discipline)
		c.validateLanes(f, path, g)
	}
}

func validateDiscipline(f *faults, path, discipline string) {
	if _, ok := disciplines[discipline]; !ok {
		f.add(path, discipline, ReasonUnknown, "write one of: %s", names(disciplines))
	}
}

func (c *Config) validateLanes(f *faults, guard string, g GuardConfig) {
	first := map[Class]string{}
	reserved := 0
	for _, name := range slices.Sorted(maps.Keys(g.Lanes)) {
		lane, path := g.Lanes[name], guard+".lanes."+name
		switch {
		case !wordPattern.MatchString(name):
			f.add(path, nil, ReasonInvalid, "name it with lower-case letters, digits and _, starting with a letter, at most 64")
		case name == laneDefault:
			f.add(path, nil, ReasonConflict, "classes without a lane share one of that name: choose another word")
		}
		if len(lane.Classes) == 0 {
			f.add(path+".classes", nil, ReasonMissing, "list the classes of the lane")
		}
		for i, class := range lane.Classes {
			at := fmt.Sprintf("%s.classes[%d]", path, i)
			if !c.hasClass(class) {
				f.add(at, string(class), ReasonUnknown, "name a class of an endpoint, or default_class")
			} else if other, ok := first[class]; ok {
				f.add(at, string(class), ReasonConflict, "the class is listed in lane %s already: a class has one lane", other)
			}
			first[class] = name
		}
		if lane.Reserve < 0 {
			f.add(path+".reserve", lane.Reserve, ReasonOutOfRange, "write how many slots are kept for the lane; 0 keeps none")
		}
		reserved += max(0, lane.Reserve)
		if lane.MaxQueue < 0 {
			f.add(path+".max_queue", lane.MaxQueue, ReasonOutOfRange, "write how many may wait in the lane; 0 means as many as in the guard")
		}
		if lane.MaxShare < 1 || lane.MaxShare > 100 {
			f.add(path+".max_share", lane.MaxShare, ReasonOutOfRange, "write the percentage of slots that the lane may hold, 1 to 100; 0 means 100")
		} else if g.MaxInFlight > 0 && lane.Reserve > share(g.MaxInFlight, lane.MaxShare) {
			f.add(path+".reserve", lane.Reserve, ReasonConflict, "max_share lets the lane hold %d: raise it, or reserve no more", share(g.MaxInFlight, lane.MaxShare))
		}
		validateDiscipline(f, path+".discipline", lane.Discipline)
	}
	if g.MaxInFlight > 0 && reserved >= g.MaxInFlight {
		f.add(guard+".lanes", nil, ReasonConflict, "%d of %d slots are reserved, and at least one must be left for all: reserve less, or raise max_in_flight", reserved, g.MaxInFlight)
	}
}

// share is a percentage of the slots, rounded down, at least one.
func share(slots, percent int) int {
	// In two parts, for the size of a pool without a bound may be math.MaxInt.
	return max(1, slots/100*percent+slots%100*percent/100)
}

// adviseGuards adds what is suspicious about guards.
func (c *Config) adviseGuards(add func(path, text string, args ...any)) {
	if len(c.Guards) > 0 && !slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Guard != "" }) {
		add("guards", "no endpoint names a guard: it holds only where the program calls Guard itself")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Guards)) {
		g, path := c.Guards[name], "guards."+name
		if n := c.backendsOf(name); n > 1 && g.BackendShare == 100 {
			add(path+".backend_share", "each of %d backends may hold every slot: one that hangs stops the others too", n)
		}
		for _, lane := range slices.Sorted(maps.Keys(g.Lanes)) {
			if only := c.backendOf(name, g.Lanes[lane]); only != "" && g.MaxInFlight > 0 && g.BackendShare < 100 && g.Lanes[lane].Reserve > share(g.MaxInFlight, g.BackendShare) {
				add(path+".lanes."+lane+".reserve", "the lane reserves %d slots, and its one backend %s may hold %d: nobody ever gets the others", g.Lanes[lane].Reserve, only, share(g.MaxInFlight, g.BackendShare))
			}
			for i, class := range g.Lanes[lane].Classes {
				if !slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Class == class && e.Guard == name }) {
					add(fmt.Sprintf("%s.lanes.%s.classes[%d]", path, lane, i), "no endpoint of class %s names guard %s: the lane holds only where the program calls Guard itself", class, name)
				}
			}
		}
	}
}

// guardPolicy is a guard's part of a policy.
type guardPolicy struct {
	wait  time.Duration
	size  gate.Config
	other *gate.Kind // of work without a class
	kinds map[Class]*gate.Kind
}

// noGuard is the part of a guard that the policy does not know: a Reload has
// added it since the request came.
var noGuard = &guardPolicy{other: &gate.Kind{}}

func (p *policy) guardOf(name string) *guardPolicy {
	if gp := p.guardPolicies[name]; gp != nil {
		return gp
	}
	return noGuard
}

func (gp *guardPolicy) kindOf(class Class) *gate.Kind {
	if k := gp.kinds[class]; k != nil {
		return k
	}
	return gp.other
}

// compileGuard resolves a guard's lanes and what each class is in it. slots is
// the size of the pool, where the Config has none. l.mu is held.
func (p *policy) compileGuard(g *Guard, c GuardConfig, slots int) {
	if c.MaxInFlight > 0 {
		slots = c.MaxInFlight
	}
	gp := &guardPolicy{wait: time.Duration(c.AcquireTimeout), other: &gate.Kind{}, kinds: map[Class]*gate.Kind{}}
	gp.size = gate.Config{
		Slots: slots, Default: gate.LaneConfig{Queue: c.MaxQueue, Order: disciplines[c.Discipline]},
		Lanes: map[string]gate.LaneConfig{},
	}
	if c.BackendShare < 100 {
		gp.size.BackendLimit = share(slots, c.BackendShare)
	}
	lanes := map[Class]*gate.Lane{}
	reserved := 0
	for name, lane := range c.Lanes {
		gp.size.Lanes[name] = gate.LaneConfig{
			Reserve: lane.Reserve, Limit: share(slots, lane.MaxShare),
			Queue: lane.MaxQueue, Order: disciplines[lane.Discipline],
		}
		reserved += min(lane.Reserve, share(slots, lane.MaxShare))
		for _, class := range lane.Classes {
			lanes[class] = g.gate.Lane(name)
		}
	}
	if reserved >= slots {
		p.advice = append(p.advice, Advice{"guards." + g.name + ".lanes", fmt.Sprintf("the pool has %d slots, of which %d are to be reserved: the reserves are cut so that one is left for all", slots, reserved)})
	}
	add := func(class Class, backend string) {
		if g.times[class] == nil {
			g.times[class] = new(gate.Times)
		}
		gp.kinds[class] = &gate.Kind{Lane: lanes[class], Backend: backend, Times: g.times[class]}
	}
	if d := p.cfg.DefaultClass; d != "" {
		add(d, "")
	}
	for _, e := range p.cfg.Endpoints {
		add(e.Class, e.Backend)
	}
	p.guards[g.name], p.guardPolicies[g.name] = g, gp
}

// laneName is what a lane of the gate is called. has is false for a guard without
// lanes, whose one lane is the guard itself.
func laneName(p *policy, guard, lane string) (name string, has bool) {
	if lane == "" {
		lane = laneDefault
	}
	return lane, len(p.cfg.Guards[guard].Lanes) > 0
}
