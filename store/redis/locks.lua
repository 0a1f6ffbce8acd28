-- Lists the locks of a scope that hold, those that end last first.
--
-- KEYS[1]  the index
-- ARGV[1]  how many at most
--
-- The reply is for each "id:count", a comma and the microseconds left, with blanks
-- between them.

local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '(' .. format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local list = {}
for i = 1, #found, 2 do
  list[#list + 1] = found[i] .. ',' .. format('%.0f', tonumber(found[i + 1]) - now)
end
return table.concat(list, ' ')
