-- Admits a request and, if it is admitted, begins its attempt, in one step.
--
-- Before this stand the functions admit and begin, which are admit.lua and begin.lua
-- with keys and arguments of their own. The clock moves on between them, never back.
--
-- KEYS     those of admit, then those of begin
-- ARGV[1]  how many keys admit has
-- ARGV[2]  how many arguments admit has
-- then its arguments, then those of begin
--
-- The reply is that of admit and, if it admits, a new line and that of begin.

local keys, args = tonumber(ARGV[1]), tonumber(ARGV[2])

local function part(list, from, to)
  local some = {}
  for i = from, to do
    some[#some + 1] = list[i]
  end
  return some
end

local admitted = admit(part(KEYS, 1, keys), part(ARGV, 3, args + 2))
if string.sub(admitted, 1, 2) ~= '0 ' then -- some check is to blame
  return admitted
end
return admitted .. '\n' .. begin(part(KEYS, keys + 1, #KEYS), part(ARGV, args + 3, #ARGV))
