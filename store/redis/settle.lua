-- Gives back what an attempt has reserved, and takes its outcome: in one step, so
-- that however many guess at once, no more than the limit are told.
--
-- ARGV[2]  "ignored", "failed" or "succeeded"
--
-- The reply is six numbers: the counter whose lock withholds the outcome (0:
-- none), the wait in microseconds, 1 if the caller is known, what the first
-- counter has counted, the counters whose lock this has started as a set of bits,
-- and what the last counter before the account's has counted; then the counts of
-- those that were started.

local list, account = attempt()
local outcome = ARGV[2]
release(ARGV[1])
if outcome == 'ignored' then
  save()
  return '0 0 0 0 0 0'
end

local known = account and account.known
local blamed, wait = longest(list)
local failures, started, count = 0, 0, tonumber(ARGV[5])
local locks, sign = {}, nil
if blamed == 0 and outcome == 'failed' then
  for i = 1, #list do
    local q = list[i]
    if not q.first or count == 1 then
      if fail(q.counter, q) then
        started = started + 2 ^ (i - 1)
        locks[#locks + 1] = q
      end
      if not account or i < #list then
        count = q.counter.count
      end
      if i == 1 and (not account or #list > 1) then
        failures = q.counter.count
      end
    end
  end
  -- Noted beside the account's, for the caller's success to take back. It does not
  -- lock: that is for when the caller is known.
  if account and account.ownOnly and not known then
    local own = account.own
    if not own.locked and own.count < account.limit.max - 1 then
      fail(own, account.limit)
    end
  end
elseif blamed == 0 and account then
  local all, own, back = account.all, account.own, 0
  if not known then -- else they were never counted for the account
    back = own.count
  end
  forgive(own, own.count)
  if not account.ownOnly then
    back = all.count
  end
  forgive(all, back)
  if account.remember > 0 then
    sign = account
  end
end

-- The newest callers of an account, this one included.
if sign then
  local callers, oldest = {}, nil
  for caller, at in gmatch(sign.callers, '(%x+)@(%d+),') do
    if caller ~= sign.caller then
      at = tonumber(at)
      if at > now then
        at = now
      end
      callers[#callers + 1] = { caller, at }
      if not oldest or at < callers[oldest][2] then
        oldest = #callers
      end
    end
  end
  if #callers >= remembered then
    table.remove(callers, oldest)
  end
  callers[#callers + 1] = { sign.caller, now }
  for i = 1, #callers do
    callers[i] = callers[i][1] .. '@' .. format('%.0f', callers[i][2]) .. ','
  end
  redis.call('SET', sign.name, table.concat(callers), 'PX', life(now + sign.remember))
end
save()

local counts = {}
for i = 1, #locks do
  local q = locks[i]
  counts[i] = ' ' .. format('%.0f', q.counter.count)
  if q.index then
    enter(q.index, q.id .. ':' .. format('%.0f', q.counter.count), q.counter.ends)
  end
end
return format('%d %.0f %d %.0f %.0f %.0f', blamed, wait, known and 1 or 0, failures, started, count) .. table.concat(counts)
