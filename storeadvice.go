package weir

import (
	"context"
	"time"
)

// adviceTime is how long a store may look for something to advise on.
const adviceTime = 2 * time.Second

// adviseOnStore logs what is suspicious in how a shared store is set up. l.mu is
// held, and no request has asked the store yet.
func (l *Limiter) adviseOnStore() {
	if l.shared == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adviceTime)
	defer cancel()
	for _, text := range l.shared.Advise(ctx) {
		l.log.Warn("weir: advice", "field", "store", "advice", text)
	}
}
