-- Failure counters: what the scripts about them have in common. Each of those
-- begins with this one.
--
-- A counter is kept as "count:from:ends:locked:held". The count is open, or the
-- lock holds, for instants before ends; from is when that began. Held are the
-- places reserved, each as "ticket@until," with 16 digits each, in the order in
-- which they end: so they are counted by their length and never taken apart, for
-- whoever keeps many attempts under way would else keep this server busy. Instants
-- are microseconds since 1970 by this server's clock. Who has signed in to an account
-- is kept as "caller@instant," for each.
--
-- Plain Lua 5.1. What is to be written is written at the end, SET before all
-- else: a server that is out of memory refuses the first, and nothing has changed.

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local find, sub, gsub, match, gmatch, format = string.find, string.sub, string.gsub, string.match, string.gmatch, string.format
local century = 3155760000000 -- milliseconds
local place = 30000000        -- how long one is reserved: store.ReservationTTL
local width = 34              -- of a place, in bytes
local most = 1000             -- places of a counter; see begin.lua
local remembered = 64         -- callers of an account: store.KnownCallers
local listed = 10000          -- locks of a scope in its index

local time = redis.call('TIME') -- once: before Redis 7.2 it moves within a script
local now = time[1] * 1000000 + time[2]

local order, named = {}, {}

-- When place i ends, from 0 on.
local function endOf(held, i)
  return tonumber(sub(held, i * width + 18, i * width + 33)) or 0
end

-- The places that have not ended, and whether their ends had to be changed.
local function open(held)
  local n = #held / width
  if n ~= floor(n) then -- not ours
    return '', false
  end
  -- An end that lies too far ahead is of a clock that was set back. Those of the
  -- ones behind it do as well, and stay in order.
  local changed = n > 0 and endOf(held, n - 1) > now + place
  if changed then
    held = gsub(held, '@(%d+),', function(to)
      return format('@%016.0f,', min(tonumber(to), now + place))
    end)
  end
  if n == 0 or endOf(held, 0) > now then -- nearly always
    return held, changed
  end
  local low, high = 1, n
  while low < high do
    local i = floor((low + high) / 2)
    if endOf(held, i) <= now then
      low = i + 1
    else
      high = i
    end
  end
  return sub(held, low * width + 1), changed
end

-- The counter of a name as of now; the same one for a name that comes twice.
local function counter(name, s)
  local c = named[name]
  if c then
    return c
  end
  c = { name = name, there = s, count = 0, from = 0, ends = 0, locked = false, held = '', changed = false }
  named[name] = c
  order[#order + 1] = c
  local count, from, ends, lock, at
  if s then -- a pattern's .* would look at each byte of what follows
    count, from, ends, lock, at = match(s, '^(%d+):(%d+):(%d+):([01]):()')
  end
  count, from, ends = tonumber(count or ''), tonumber(from or ''), tonumber(ends or '')
  if not count or count > 2 ^ 31 or from > 1e17 or ends > 1e17 then -- absent, or not ours
    return c
  end
  -- A beginning that lies ahead is a clock that was set back, or another server's
  -- since a failover. It begins anew, now, and does not last until that clock is
  -- there again.
  if from > now + 1000 then
    from, ends, c.changed = now, now + (ends - from), true
  end
  if now < ends then
    c.count, c.from, c.ends, c.locked = count, from, ends, lock == '1'
  end
  local again
  c.held, again = open(sub(s, at))
  c.changed = c.changed or again
  return c
end

local function clear(c)
  c.count, c.from, c.ends, c.locked, c.changed = 0, 0, 0, false, true
end

-- A failure; whether it starts the lock.
local function fail(c, limit)
  if c.count == 0 then
    c.from, c.ends = now, now + limit.window
  end
  c.count, c.changed = c.count + 1, true
  if c.count < limit.max then
    return false
  end
  c.from, c.ends, c.locked = now, now + limit.lockout, true
  return true
end

-- Takes failures back, unless they have led to a lock.
local function forgive(c, n)
  if c.locked or n <= 0 then
    return
  end
  c.count, c.changed = c.count - n, true
  if c.count <= 0 then
    clear(c)
  end
end

-- How many places are reserved.
local function places(c)
  return #c.held / width
end

local function reserve(c, ticket)
  c.held, c.changed = c.held .. ticket .. format('@%016.0f,', now + place), true
end

local function release(ticket)
  for i = 1, #order do
    local c = order[i] -- nothing has the ticket 0, which is not found
    local at = find(c.held, ticket .. '@', 1, true)
    if at then
      c.held, c.changed = sub(c.held, 1, at - 1) .. sub(c.held, at + width), true
    end
  end
end

-- How long a key lives that says something until an instant: a tenth, at least a
-- second, longer, and no more than a century.
local function life(ends)
  local ms = ceil((ends - now) / 1000)
  ms = ceil(ms + max(1000, ms / 10))
  if not (ms < century) then
    ms = century
  end
  return format('%.0f', ms)
end

local function save()
  for i = 1, #order do
    local c = order[i]
    if c.changed and (c.count > 0 or c.held ~= '') then
      local ends = now
      if c.count > 0 then
        ends = c.ends
      end
      if c.held ~= '' then
        ends = max(ends, endOf(c.held, places(c) - 1))
      end
      redis.call('SET', c.name, format('%.0f:%.0f:%.0f:%s:', c.count, c.from, c.ends, c.locked and '1' or '0') .. c.held, 'PX', life(ends))
    end
  end
  for i = 1, #order do
    local c = order[i]
    if c.changed and c.there and c.count == 0 and c.held == '' then
      redis.call('DEL', c.name)
    end
  end
end

-- The index of a scope's locks, for operators: "id:count" by when each ends.
local function enter(index, id, ends)
  redis.call('ZADD', index, format('%.0f', ends), id)
  redis.call('ZREMRANGEBYSCORE', index, '-inf', format('%.0f', now))
  redis.call('ZREMRANGEBYRANK', index, 0, -1 - listed)
  local last = redis.call('ZREVRANGEBYSCORE', index, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if last[2] then
    redis.call('PEXPIRE', index, life(tonumber(last[2])))
  end
end

-- The counters that an attempt is under at this instant; in the place of the
-- account's stands the caller's own where that is what holds.
--
-- KEYS     the counters; then the account's, the caller's own there, who has
--          signed in; then, unless each key has a slot of its own, the index for
--          each counter and for the account's
-- ARGV[1]  ticket
-- ARGV[2]  what is asked
-- ARGV[3]  how many counters
-- ARGV[4]  1 if it is for an account, else 0
-- ARGV[5]  what the counter before the first has counted
-- then for each counter five: failures that lock; window and lockout in
-- microseconds; 1 if it counts only the first of the one before, else 0; its id
-- then for the account six: the first three of those; the id; the caller;
-- for how many microseconds a caller is remembered; and a number: 1 admitted
-- without being remembered, 2 a success takes back its caller's failures only
local function attempt()
  local n, some = tonumber(ARGV[3]), ARGV[4] == '1'
  local names = n
  if some then
    names = n + 3
  end
  local found = redis.call('MGET', unpack(KEYS, 1, names))
  local list, account = {}, nil
  for i = 1, n do
    local a = 5 * i + 1
    list[i] = {
      counter = counter(KEYS[i], found[i]), id = ARGV[a + 4], index = KEYS[names + i],
      max = tonumber(ARGV[a]), window = tonumber(ARGV[a + 1]), lockout = tonumber(ARGV[a + 2]), first = ARGV[a + 3] == '1',
    }
  end
  if some then
    local a = 5 * n + 6
    local flags = tonumber(ARGV[a + 6])
    account = {
      all = counter(KEYS[n + 1], found[n + 1]), own = counter(KEYS[n + 2], found[n + 2]),
      name = KEYS[n + 3], callers = found[n + 3] or '', caller = ARGV[a + 4],
      remember = tonumber(ARGV[a + 5]), ownOnly = flags >= 2, known = flags % 2 == 1,
    }
    local q = {
      counter = account.all, id = ARGV[a + 3], index = KEYS[names + n + 1],
      max = tonumber(ARGV[a]), window = tonumber(ARGV[a + 1]), lockout = tonumber(ARGV[a + 2]), first = false,
    }
    account.limit = q
    local _, at = find(account.callers, account.caller .. '@', 1, true)
    at = at and tonumber(match(account.callers, '^%d+', at + 1) or '')
    if at and account.remember > 0 then
      account.known = account.known or now - at <= account.remember
    end
    if account.known then
      if account.own ~= account.all then
        q.id = q.id .. account.caller
      end
      q.counter = account.own
    end
    list[n + 1] = q
  end
  return list, account
end

-- The longest lock in the way: 0 if there is none.
local function longest(list)
  local blamed, wait = 0, 0
  for i = 1, #list do
    local c = list[i].counter
    if c.locked and c.ends - now > wait then
      blamed, wait = i, c.ends - now
    end
  end
  return blamed, wait
end
