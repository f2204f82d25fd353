local next_departure = use 'admission/next-departure'
local schedule = use 'admission/schedule'
local sleepers = use 'gate/sleepers'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'

-- Estimates when places become free: a job gives its place back when a worker takes it, ahead of its slot.
local free_places = {
  LEAST_US = 100000, MOST_US = 1000000, UNKNOWN_MS = 1000,
  -- Wake-up times and slots are rounded differently.
  ROUNDED_US = 1000,
  -- Delay after which something overdue is checked again.
  SOON_US = 2000,
  -- Number of jobs simulated one by one, and of further running jobs to read, because some may be late.
  MOST_PLAYED = 64, MOST_LATE = 8,
  -- The largest time in ms that a client's Date holds.
  MAX_MS = 8640000000000000,
}

-- When a worker that asks at `at`, and then repeatedly, takes the n-th job, not before `takes`.
function free_places.later_ask(p, measured, at, takes, n)
  if n > #p.times then return takes end
  local horizon, i = measured.horizon, 1
  local function slots(place) return (schedule.nth(p, place)) end
  while at < takes - free_places.ROUNDED_US do
    while i < n and slots(i) <= at + horizon do i = i + 1 end
    at = slots(sleepers.batch_end(slots, i, horizon)) - horizon + measured.late
  end
  return at
end

-- The wake-up times of sleeping workers (µs, ascending). A worker that is due now may be about to ask.
function free_places.wakes(base, now, late)
  local since = as_text.us(now - 2 * late - free_places.LEAST_US)
  local found = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', since, '+inf', 'WITHSCORES', 'LIMIT', 0, 64)
  local wakes = {}
  for i = 2, #found, 2 do wakes[#wakes + 1] = tonumber(found[i]) end
  return wakes
end

-- When a worker asks and takes the n-th job, which has that slot; nil if none sleeps for it. It wakes one horizon
-- before the last slot of several, and takes these together.
function free_places.taken_at(p, measured, wakes, slot, n)
  local late, takes, at = measured.late, slot - measured.horizon, nil
  -- A worker that sleeps past that slot is woken by another one, and asks for it.
  local latest = math.max(p.now, sleepers.latest(slot, measured.horizon))
  for _, wake in ipairs(wakes) do
    if wake > latest then break end
    at = wake + late
    if at >= takes - free_places.ROUNDED_US then break end
  end
  if not at then return nil end
  -- It sleeps again, until the next slots.
  if at < takes - free_places.ROUNDED_US then at = free_places.later_ask(p, measured, at, takes, n) end
  return at > p.now and at or p.now + math.max(free_places.SOON_US, p.now - at)
end

-- Inserts a time into an ascending list.
function free_places.put(times, at)
  local i = #times
  while i > 0 and times[i] > at do i = i - 1 end
  table.insert(times, i + 1, at)
end

-- When running jobs will end (µs, ascending), considering n of them and some late ones. A job that runs longer than
-- others ends soon, or takes much longer.
function free_places.ends(base, measured, now, n, running)
  local ends, late, known = {}, {}, n + free_places.MOST_LATE
  -- With several running jobs, one that ends early compensates for a late one.
  local usual = measured.run + measured.off / running
  local least = math.max(free_places.SOON_US, measured.off, measured.run / 16)
  for _, id in ipairs(redis.call('LRANGE', base .. 'active', -known, -1)) do
    local began = pace.began(base, id)
    local at = began and began + usual
    if at and at > now then
      free_places.put(ends, at)
    elseif at then
      late[#late + 1] = now + math.min(free_places.MOST_US, math.max(least, now - at))
    end
  end
  -- If all jobs that were read are late, others end meanwhile.
  if #late == known then
    for i = 1, n do free_places.put(ends, now + i * measured.run / (running - known + 1)) end
  end
  for _, at in ipairs(late) do free_places.put(ends, at) end
  return ends
end

-- When the n-th job is taken, if the ends of running jobs matter: they free places, and without a rate they fetch the
-- next job directly. Each job is assumed to run for the mean time. Nil if unknown.
function free_places.play(base, p, measured, wakes, n)
  local running, horizon = redis.call('LLEN', base .. 'active'), measured.horizon
  local most, at = tonumber(redis.call('HGET', base .. 'meta', 'concurrency') or nil), p.now
  -- How many more may run under the limits on running jobs.
  local left = math.max(0, math.min(p.left, most and most - running or math.huge))
  local ends = free_places.ends(base, measured, at, n, running)
  for i = 1, n do
    local slot = schedule.nth(p, i)
    local ask, taken = free_places.taken_at(p, measured, wakes, slot, i), nil
    while not taken do
      local ending = ends[1]
      if left > 0 and ask and not (ending and ending < ask) then
        taken, left = ask, left - 1
      elseif not ending then
        return nil
      else
        table.remove(ends, 1)
        local fetches = not p.meter or left == 0 or not ask
        if fetches and slot - horizon <= ending then
          taken = ending
        else
          -- A worker that finds the next slot too far ahead sleeps until then, unless another one does.
          left = left + 1
          if not ask or #wakes == 1 then ask = math.min(ask or math.huge, slot - horizon + measured.late) end
        end
      end
    end
    at = math.max(at, taken)
    free_places.put(ends, math.max(at, slot) + measured.run)
  end
  return at
end

-- The same for any n: after the simulated jobs, places are assumed to be reused as often as jobs end.
function free_places.played(base, p, measured, wakes, n, slot)
  if measured.run == 0 then return nil end
  local at = free_places.play(base, p, measured, wakes, math.min(n, free_places.MOST_PLAYED))
  if not at or n <= free_places.MOST_PLAYED then return at end
  local running = math.max(1, redis.call('LLEN', base .. 'active'))
  return math.max(slot - measured.horizon, at + (n - free_places.MOST_PLAYED) * measured.run / running)
end

-- The time (µs) at which n jobs will have been taken; second, whether fewer than n wait. measured: what pace.read
-- returns
function free_places.nth_taken_at(base, shape, now, n, measured)
  local p = schedule.open(base, shape, now, true)
  local slot, missing = schedule.nth(p, n)
  local wakes = free_places.wakes(base, now, measured.late)
  local ask = p.left > 0 and free_places.taken_at(p, measured, wakes, slot, n)
  -- With a rate and no limit on running jobs, the worker that sleeps for a slot takes it.
  if ask and p.meter and p.left == math.huge and not redis.call('HGET', base .. 'meta', 'concurrency') then
    return ask, missing
  end
  local played = free_places.played(base, p, measured, wakes, n, slot)
  if played then return played, missing end
  if ask then return ask, missing end
  -- No worker sleeps for it: all are busy, or the workers do not sleep by these times and will be there in time.
  local takes = slot - measured.horizon
  if takes > now and p.left > 0 and redis.call('LLEN', base .. 'active') == 0 then return takes, missing end
  -- The run time of jobs is still unknown. No worker has taken the head since it was added, or since the last
  -- departure: it may take as long again, within bounds.
  local head = next_departure.head(base, shape, now)
  local added = head and tonumber(redis.call('HGET', base .. head, 'timestamp')) or 0
  local waited = now - math.max(added * 1000, measured.last)
  return math.max(takes, now + math.max(free_places.LEAST_US, math.min(free_places.MOST_US, waited))), missing
end

-- When n places are free, ms from now. slot: the earliest one of the n-th departing job, µs, 0 if only the rate, limits
-- and pause of the shape hold it
function free_places.retry_ms(base, shape, now, n, slot)
  local measured = pace.read(base)
  local at, missing = free_places.nth_taken_at(base, shape, now, n, measured)
  if slot > 0 then at = math.max(at, slot - measured.horizon) end
  local ms = math.max(1, math.min(free_places.MAX_MS, math.ceil((at - now) / 1000)))
  return missing and math.max(free_places.UNKNOWN_MS, ms) or ms
end

return free_places
