-- Lifts the lock of a counter and clears its count. What is reserved stays.
--
-- KEYS     the counter; then, unless each key has a slot of its own, its index
-- ARGV[1]  the counter's id
--
-- The reply is two numbers: 1 if there was a lock, and the count.

local c = counter(KEYS[1], redis.call('MGET', KEYS[1])[1])
local was, count = c.locked, format('%.0f', c.count)
if c.count > 0 then
  clear(c)
end
save()
if was and KEYS[2] then
  redis.call('ZREM', KEYS[2], ARGV[1] .. ':' .. count)
end
return (was and '1 ' or '0 ') .. count
