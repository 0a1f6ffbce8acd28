-- Notes in the index of a scope that a lock has started, or was lifted, where the
-- counter has another slot.
--
-- KEYS[1]  the index
-- ARGV[1]  "id:count"
-- ARGV[2]  how long the lock holds, in microseconds, or 0: it was lifted

local lockout = tonumber(ARGV[2])
if lockout > 0 then
  enter(KEYS[1], ARGV[1], now + lockout)
else
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return 'ok'
