-- The bucket: GCRA with costs, as pure arithmetic. Times are microseconds since the bucket's origin, in multiples of
-- 1/1024 µs, which doubles add and compare exactly for 101 days; meter/meter moves the origin before that. An interval
-- is rounded up to that grid, so no sum ever exceeds the rate.
--   b.tat       theoretical arrival time: when the bucket would be empty
--   b.last      the last granted slot: slots never go back
--   b.interval  I, microseconds per unit of cost
--   b.burst     b, units that may depart back to back
local GRID = 1024

local bucket = {
  -- How long a paid debt is remembered, µs.
  PAID_US = 3600000000,
}

-- Rates are stored as [limit, periodMs].
function bucket.interval(rate)
  return bucket.ceil(rate[2] * 1000 / rate[1])
end

function bucket.ceil(us)
  return math.ceil(us * GRID) / GRID
end

-- The earliest time, not before `now`, at which `cost` conforms. A job that costs more than the burst (the burst was
-- lowered while it waited) departs when the bucket is empty.
function bucket.slot(b, cost, now)
  local counted = math.min(cost, b.burst)
  return math.max(now, b.last, b.tat + bucket.ceil((counted - b.burst) * b.interval))
end

function bucket.charge(b, cost, slot)
  b.tat = math.max(b.tat, slot) + bucket.ceil(cost * b.interval)
  b.last = slot
end

-- Slot of the n-th departure from now (n >= 1), if the head costs `cost` and the others `mean` each.
function bucket.nth_slot(b, n, cost, mean, now)
  local slot = bucket.slot(b, cost, now)
  if n <= 1 then return slot end
  local tat = math.max(b.tat, slot) + bucket.ceil(cost * b.interval)
  local counted = math.min(mean, b.burst)
  return math.max(slot, tat + bucket.ceil(((n - 2) * mean + counted - b.burst) * b.interval))
end

-- How long the state of a bucket that expires is kept, µs: until the debt (µs at its interval) is paid back at the lowest
-- rate that may follow by itself (lowest: its interval, nil if there is none), and an hour longer, so that a rate that
-- someone lowers meanwhile finds the debt.
function bucket.kept_us(debt_us, interval, lowest)
  return debt_us * math.max(1, (lowest or 0) / interval) + bucket.PAID_US
end

-- Applies a new interval and burst, effective since `at`. Debts are kept in units of cost, counted from the last
-- granted slot (counted from `at`, slots granted ahead would be forgotten); a change never increases unused burst.
function bucket.reshape(b, interval, burst, at)
  local from = math.max(at, b.last)
  local debt = math.max(0, b.tat - from) / b.interval
  local owed = math.max(0, burst - (b.burst - debt))
  b.tat = from + bucket.ceil(owed * interval)
  b.interval = interval
  b.burst = burst
end

-- The bucket is full until `ready`: nothing departs before that, then one by one. Unknown slots may have been granted
-- up to then, so `ready` counts as the last slot: a change of the rate keeps one bucket of debt, not the wait.
function bucket.fill(b, ready)
  b.tat = math.max(b.tat, ready + bucket.ceil(b.burst * b.interval))
  b.last = math.max(b.last, ready)
end

-- Refunds the charge of slots after which nothing was granted; the caller has checked that.
function bucket.refund(b, cost_us, last)
  b.tat = b.tat - cost_us
  b.last = math.min(b.last, last)
end

return bucket
