-- Decides whether an attempt may be made, and reserves its places.
--
-- A counter keeps no more than so many places (most): beyond, "after" admits without
-- one, since settling keeps the limit without them, and "always" refuses.
--
-- ARGV[2]  "look" reserves nothing, "after" in counters with a failure, "always"
--          in all but those that count only the first of another
--
-- The reply is six numbers: the counter to blame (0: none), the wait in
-- microseconds, 1 if the caller is known, 1 if all places are reserved, 1 if one
-- was reserved, and 0.

local list, account = attempt()
local mode = ARGV[2]
local blamed, wait = longest(list)
local full, reserved = 0, 0
if blamed == 0 and mode ~= 'look' then
  for i = 1, #list do
    local q = list[i]
    local held = places(q.counter)
    -- One may always be under way: a limit that was lowered below the count locks
    -- with the next failure, which somebody has to be let in for.
    if not q.first and held > 0 and (q.counter.count + held >= q.max or mode == 'always' and held >= most) then
      blamed, wait, full = i, 1000000, 1
      break
    end
  end
  if blamed == 0 then
    for i = 1, #list do
      local c = list[i].counter
      if not list[i].first and (c.count > 0 or mode == 'always') and places(c) < most then
        reserve(c, ARGV[1])
        reserved = 1
      end
    end
  end
end
save()
return format('%d %.0f %d %d %d 0', blamed, wait, account and account.known and 1 or 0, full, reserved)
