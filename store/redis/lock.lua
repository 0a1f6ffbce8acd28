-- Failure counters: what the scripts about them have in common. Each of those
-- begins with this one.
--
-- A counter is kept as "count:from:ends:locked:held". The count is open, or the
-- lock holds, for instants before ends; from is when that began. Held are the
-- places reserved, each as "ticket@until,". Instants are microseconds since 1970
-- by this server's clock. Who has signed in to an account is kept as
-- "caller@instant," for each.
--
-- Plain Lua 5.1. What is to be written is written at the end, SET before all
-- else: a server that is out of memory refuses the first, and nothing has changed.

local floor, ceil, max = math.floor, math.ceil, math.max
local find, sub, match, gmatch, format = string.find, string.sub, string.match, string.gmatch, string.format
local century = 3155760000000 -- milliseconds
local place = 30000000        -- how long one is reserved: store.ReservationTTL
local remembered = 64         -- callers of an account: store.KnownCallers
local listed = 10000          -- locks of a scope in its index

local time = redis.call('TIME') -- once: before Redis 7.2 it moves within a script
local now = time[1] * 1000000 + time[2]

local order, named = {}, {}

-- The counter of a name as of now; the same one for a name that comes twice.
local function counter(name, s)
  local c = named[name]
  if c then
    return c
  end
  c = { name = name, there = s, count = 0, from = 0, ends = 0, locked = false, held = {}, changed = false }
  named[name] = c
  order[#order + 1] = c
  local count, from, ends, lock, held
  if s then
    count, from, ends, lock, held = match(s, '^(%d+):(%d+):(%d+):([01]):(.*)$')
  end
  if not count then -- absent, or not ours
    return c
  end
  count, from, ends = tonumber(count), tonumber(from), tonumber(ends)
  -- A beginning that lies ahead is a clock that was set back, or another server's
  -- since a failover. It begins anew, now, and does not last until that clock is
  -- there again.
  if from > now + 1000 then
    from, ends, c.changed = now, now + (ends - from), true
  end
  if now < ends then
    c.count, c.from, c.ends, c.locked = count, from, ends, lock == '1'
  end
  for ticket, to in gmatch(held, '(%x+)@(%d+),') do
    to = tonumber(to)
    if to > now + place then
      to, c.changed = now + place, true
    end
    if to > now then
      c.held[#c.held + 1] = { ticket, to }
    end
  end
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

local function release(ticket)
  for i = 1, #order do
    local c = order[i]
    for j = #c.held, 1, -1 do
      if c.held[j][1] == ticket then
        table.remove(c.held, j)
        c.changed = true
      end
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
    if c.changed and (c.count > 0 or #c.held > 0) then
      local ends, held = now, {}
      if c.count > 0 then
        ends = c.ends
      end
      for j = 1, #c.held do
        ends = max(ends, c.held[j][2])
        held[j] = c.held[j][1] .. '@' .. format('%.0f', c.held[j][2]) .. ','
      end
      redis.call('SET', c.name, format('%.0f:%.0f:%.0f:%s:', c.count, c.from, c.ends, c.locked and '1' or '0') .. table.concat(held), 'PX', life(ends))
    end
  end
  for i = 1, #order do
    local c = order[i]
    if c.changed and c.there and c.count == 0 and #c.held == 0 then
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
    if at and account.remember > 0 then
      at = tonumber(match(account.callers, '^%d+', at + 1))
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
