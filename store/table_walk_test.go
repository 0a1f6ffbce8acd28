package store

import "testing"

// walk holds a table against its invariants. Nobody else may use it meanwhile.
func walk(t *testing.T, tab *table) {
	t.Helper()
	quotas := 0
	for i := range tab.shards {
		s := &tab.shards[i]
		walkShard(t, tab, s)
		quotas += s.quota
		for j := range s.entries {
			if e := &s.entries[j]; e.last != 0 && tab.shardOf(tab.hash(e.key)) != s {
				t.Fatalf("shard %d holds %x, which belongs elsewhere", i, e.key)
			}
		}
	}
	if quotas != tab.maxKeys {
		t.Fatalf("the quotas add up to %d, the bound is %d", quotas, tab.maxKeys)
	}
}

func walkShard(t *testing.T, tab *table, s *shard) {
	t.Helper()
	count := 0
	for i := range s.entries {
		e := &s.entries[i]
		if e.last == 0 {
			if *e != (entry{}) {
				t.Fatalf("free place %d still holds %+v", i, *e)
			}
			continue
		}
		count++
		if at := s.find(e.key, tab.hash(e.key)); at != i {
			t.Fatalf("%x is at %d, but is found at %d: cut off from its home, or there twice", e.key, i, at)
		}
		if e.full < s.minFull {
			t.Fatalf("%x is full at %d, minFull claims none before %d", e.key, e.full, s.minFull)
		}
	}
	switch {
	case count != s.count:
		t.Fatalf("%d entries, counted as %d", count, s.count)
	case count > s.quota:
		t.Fatalf("%d entries, the quota is %d", count, s.quota)
	case count > 0 && count == len(s.entries):
		t.Fatalf("no free place among %d: a probe would not end", count)
	case len(s.entries) > 0 && (s.hand >= len(s.entries) || s.sweep > len(s.entries)):
		t.Fatalf("hand %d, sweep %d of %d places", s.hand, s.sweep, len(s.entries))
	}
}
