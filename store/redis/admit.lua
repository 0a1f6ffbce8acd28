-- Decides all checks of one request, then spends all of them or none.
--
-- KEYS[i]  the bucket or window of check i; one named twice stands here twice.
-- ARGV[1]  "admit"; "stage", which is the same and tells the time as well;
--          "peek", which spends nothing; or "count", which counts what is counted
--          always and spends nothing else.
-- ARGV[4i-2]  tokens a second, or minus the length of a window in microseconds
-- ARGV[4i-1]  burst, or the limit of the window
-- ARGV[4i]    cost
-- ARGV[4i+1]  a number: 1 shadow, 2 counted always, 4 asks for what is never
--             there, 8 times the earlier check of the same bucket
--
-- The reply is text: the check to blame (0: none), then for each check what its
-- bucket holds and, where they are not both 0, the wait and the time until its
-- window ends, behind commas and in microseconds; a wait of -1 is never.
-- Fourteen digits, as Lua writes numbers. A stage ends with the server's time in
-- microseconds.
--
-- A bucket is kept as "tokens:touched", a window as "used:touched": tokens and
-- counts with the 17 digits that bring back a double as it was, the instant in
-- microseconds since 1970, which a double tells apart until 2255. (Nanoseconds
-- it would not: they are beyond 2^53 by a factor of 200.)
--
-- Plain Lua 5.1 and no command but TIME, MGET and SET, so that every server
-- that speaks the protocol runs it the same. A record for each check costs half
-- of what an array for each field does.

local floor, ceil, max = math.floor, math.ceil, math.max
local find, sub, format = string.find, string.sub, string.format
local never = math.huge
local longest = 4.6e15 -- a wait in microseconds that is past every Retry-After
local century = 3155760000000 -- milliseconds

local time = redis.call('TIME') -- once: before Redis 7.2 it moves within a script
local now = time[1] * 1000000 + time[2]
local found = redis.call('MGET', unpack(KEYS))
local mode = ARGV[1]

-- What a bucket holds at an instant; an earlier one refills nothing.
local function at(c, t)
  local n = c.held
  if t > c.last and c.rate > 0 then
    n = n + (t - c.last) / 1e6 * c.rate
  end
  if n > c.burst then
    return c.burst
  end
  return n
end

-- Whether a bucket has the cost at an instant, and what is left of it as of when.
-- What is short by less than a microsecond of refill counts as there, for the
-- clock cannot tell that instant from this one: it is borrowed from the next
-- microsecond. A bucket that is ahead lends nothing.
local function take(c, t)
  local left = at(c, t) - c.cost
  if left >= 0 then
    return true, left, max(t, c.last)
  end
  local tick = c.rate / 1e6
  if t >= c.last and left > -tick then
    left = left + tick
    if left > c.burst then
      left = c.burst
    end
    return true, left, t + 1
  end
  return false
end

-- How long until a bucket that refuses has the cost: by the arithmetic of take,
-- so that who comes back then is not refused for a rounding error.
local function lacking(c)
  if not (c.rate > 0) then
    return never
  end
  local from = max(now, c.last)
  local w = (c.cost - at(c, from)) / c.rate * 1e6
  if w >= longest then
    return never
  end
  w = max(1, floor(w))
  local step = 1
  while not take(c, from + w) do
    w = w + step
    step = step * 2
    if w >= longest then
      return never
    end
  end
  return from - now + w
end

local checks = {}
local blamed, retry = 0, 0
for i = 1, #KEYS do
  local a = 4 * i - 2
  local c = {
    rate = tonumber(ARGV[a]), burst = tonumber(ARGV[a + 1]), ask = tonumber(ARGV[a + 2]),
    held = 0, last = now, -- as found, set right; of a window, what is used
    base = 0, cost = 0,   -- cost with base, that of earlier checks of the bucket
    rest = 0, touch = now,
    tokens = 0, wait = 0, reset = 0,
  }
  checks[i] = c
  if c.rate < 0 then
    c.window = true
  end
  local bad = false
  local flags = ARGV[a + 3]
  if flags ~= '0' then
    flags = tonumber(flags)
    c.shadow, c.always, bad = flags % 2 == 1, flags % 4 >= 2, flags % 8 >= 4
    c.prior = checks[floor(flags / 8)] or false
  end

  local n, t
  local s = found[i]
  if s then
    local colon = find(s, ':', 1, true)
    if colon then
      n, t = tonumber(sub(s, 1, colon - 1)), tonumber(sub(s, colon + 1))
    end
  end
  if not (n and t and n >= 0 and t >= 0 and t < never) then -- absent, or not ours
    n, t = c.window and 0 or c.burst, now
    found[i] = false
  end
  -- A microsecond ahead is a loan, and a millisecond nobody notices. More is a
  -- clock that was set back, or another server's since a failover: left alone,
  -- the bucket would not refill until the clock is there again.
  if t > now + 1000 then
    t, c.ahead = now, true
  end
  c.held, c.last = n, t

  local p = c.prior
  if p then
    c.base = p.cost
    if p.shadow and not p.spent then
      c.base = p.base
    end
  end
  c.cost = c.ask + c.base

  if c.window then
    local length = -c.rate
    local from = max(now, t)
    local index = floor(from / length)
    if floor(t / length) ~= index then
      n = 0
    end
    c.used, c.rest, c.touch = n, n + c.cost, from
    c.pass = not bad and c.rest <= c.burst
    c.spent = c.pass or c.always
    c.tokens, c.reset = max(0, c.burst - n), max(1, (index + 1) * length - now)
    if not c.pass then
      c.wait = not bad and c.cost <= c.burst and c.reset or never
    end
  else
    if bad or not (c.cost <= c.burst) then
      c.wait = never
    else
      c.pass, c.rest, c.touch = take(c, now)
      if not c.pass then
        c.wait = lacking(c)
      end
    end
    c.spent = c.pass
    c.tokens = at(c, now)
  end
  if c.wait > retry and not c.shadow then
    blamed, retry = i, c.wait
  end
end

-- A refused request leaves what is counted always, without the other checks of
-- the same windows.
local any = true
if blamed > 0 or mode == 'count' then
  any = false
  for i = 1, #checks do
    local c = checks[i]
    c.spent = c.always
    if c.spent then
      any = true
      c.rest = c.used + c.ask
      local p = c.prior
      while p do
        if p.always then
          c.rest = c.rest + p.ask
        end
        p = p.prior
      end
    end
  end
end

-- Checks of one bucket tell the same: what it holds when all is spent.
if any then
  for i = 1, #checks do
    local c = checks[i]
    if c.spent then
      c.tokens = c.rest
      if c.window then
        c.tokens = max(0, c.burst - c.rest)
      end
    elseif c.prior then
      c.tokens = c.prior.tokens
    end
    local p = c.prior
    while p do
      p.tokens = c.tokens
      p = p.prior
    end
  end
end

-- A key lives until it says nothing that its absence does not say, and a tenth
-- (at least a second) longer; a bucket that is never full, for a century.
local function keep(i, c, n, t)
  local ms
  if c.window then
    local length = -c.rate
    ms = ((floor(t / length) + 1) * length - now) / 1000
  elseif n >= c.burst then
    ms = (t - now) / 1000
  elseif c.rate > 0 then
    ms = (c.burst - n) / c.rate * 1000 + (t - now) / 1000
  else
    ms = never
  end
  ms = ceil(ms + max(1000, ms / 10))
  if not (ms < century) then
    ms = century
  end
  redis.call('SET', KEYS[i], format('%.17g:%.0f', n, t), 'PX', format('%.0f', ms))
end

for i = 1, #checks do
  local c = checks[i]
  if c.ahead then
    keep(i, c, c.held, c.last)
  end
end
if mode ~= 'peek' then
  for i = 1, #checks do
    local c = checks[i]
    -- A full bucket, or a window that counts nothing, is no different from none.
    if c.spent and (found[i] or (c.window and c.rest > 0) or (not c.window and c.rest < c.burst)) then
      keep(i, c, c.rest, c.touch)
    end
  end
end

local reply = { blamed }
for i = 1, #checks do
  local c = checks[i]
  if c.wait == 0 and c.reset == 0 then
    reply[i + 1] = c.tokens
  else
    reply[i + 1] = c.tokens .. ',' .. (c.wait < never and c.wait or -1) .. ',' .. c.reset
  end
end
if mode == 'stage' then
  reply[#reply + 1] = format('%.0f', now)
end
return table.concat(reply, ' ')
