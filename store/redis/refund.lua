-- Gives back what was spent. For a bucket that is min(burst, tokens + cost) at
-- the bucket's own instant, which is the same as at any later one and so needs no
-- clock. A window takes back only what was counted in the window it still is in.
--
-- KEYS[i]     a bucket or window
-- ARGV[3i-2]  0, or the length of the window in microseconds
-- ARGV[3i-1]  burst; for a window the instant at which it was counted
-- ARGV[3i]    cost, above 0
--
-- A bucket that is not there was full and needs nothing. The time a key has left
-- was enough without the refund, so it is kept.

local floor = math.floor
for i = 1, #KEYS do
  local s = redis.call('MGET', KEYS[i])[1] -- GET would fail at a key that is no string
  local colon = s and string.find(s, ':', 1, true)
  local n = colon and tonumber(string.sub(s, 1, colon - 1))
  local length = tonumber(ARGV[3 * i - 2])
  local bound = tonumber(ARGV[3 * i - 1])
  local cost = tonumber(ARGV[3 * i])
  local back
  if n and n >= 0 and length == 0 then
    back = n + cost
    if back > bound then
      back = bound
    end
  elseif n and n >= 0 then
    local t = tonumber(string.sub(s, colon + 1))
    if t and floor(t / length) == floor(bound / length) then
      back = math.max(0, n - cost)
    end
  end
  if back then
    redis.call('SET', KEYS[i], string.format('%.17g', back) .. string.sub(s, colon), 'KEEPTTL')
  end
end
return 'ok'
