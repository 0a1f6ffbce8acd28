-- Notes what the secret of this namespace's ids is known by, or tells that it is
-- another one.
--
-- KEYS[1]  the fingerprint's key
-- ARGV[1]  the fingerprint
--
-- It never ends by itself, and so is kept for a century.

local was = redis.call('MGET', KEYS[1])[1]
if was and was ~= ARGV[1] then
  return 'other'
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', '3155760000000')
return 'ok'
