local wake = use 'gate/wake'
local as_text = use 'redis/as-text'

-- Waiting workers and their wake-up times: a sorted set, worker id -> µs. Each worker with room for more jobs gets a
-- time of its own, one horizon before the first slot that no other sleeper will ask for. slots(i): the slot of the i-th
-- job from now on (µs), the first of them that of the head; nil if unknown.
local sleepers = {}

-- How long a worker sleeps if no slot is known, unless a job ends or another worker hands one on.
sleepers.UNKNOWN_US = 60000000
-- How much later than the previous one a worker wakes where only the first slots are known, in case that one has died.
local STAND_IN_US = 1000000
-- Once the next slots up to this one have a sleeper each, no slot is looked for: the search would grow with every
-- worker.
sleepers.ENOUGH = 32

-- The same slots, `lead` µs sooner: if slots are granted further ahead than the horizon, workers wake sooner, but take
-- no more of them with one call.
function sleepers.sooner(slots, lead)
  if lead == 0 then return slots end
  return function(i)
    local slot = slots(i)
    return slot and slot - lead
  end
end

-- The last of the slots that one call takes from there on: those of half a horizon, which leaves the other half for a
-- late timer.
function sleepers.batch_end(slots, from, horizon)
  local last = from
  local ends = slots(from) + horizon / 2
  while true do
    local slot = slots(last + 1)
    if not slot or slot > ends then return last end
    last = last + 1
  end
end

-- A sleeper that wakes later than this may miss that slot.
function sleepers.latest(slot, horizon)
  return slot - horizon / 4
end

-- Where the sleepers with the given wake-up times (ascending) leave a gap: the first slot that none of them will ask
-- for, nil if unknown or if there are enough: second, the slot after theirs then, and how many they are. Each is
-- assumed to take as many jobs as the asking worker could, `spare`. A dead sleeper keeps its place until its time: the
-- next worker that asks finds the gap.
function sleepers.gap(wakes, slots, horizon, spare)
  local at = 1
  for i = 2, #wakes, 2 do
    local slot = slots(at)
    if not slot or tonumber(wakes[i]) > sleepers.latest(slot, horizon) then break end
    at = math.min(sleepers.batch_end(slots, at, horizon), at + spare - 1) + 1
    if at > sleepers.ENOUGH then return nil, at, i / 2 end
  end
  return slots(at) and at
end

-- When a worker wakes if the next slots have a sleeper each: of the first `enough` sleepers up to slot `at`, nil if
-- that is unknown. If those have died, it takes their place: it wakes about when it would if all others slept for slots
-- too or, where only the first slots are known, a second later for each of them.
function sleepers.behind(key, slots, horizon, at, enough)
  local first, slot = slots(1), at and slots(at)
  local others = redis.call('ZCARD', key)
  local asks = first + others * STAND_IN_US
  if slot then asks = slot + (others - enough) * (slot - first) / enough - horizon end
  return math.min(first + sleepers.UNKNOWN_US, asks)
end

-- Puts the worker to sleep until slots that no other worker asks for; spare: the number of jobs it could take. Returns
-- the wake-up time (µs).
function sleepers.add(key, worker, now, horizon, slots, spare)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', as_text.us(now))
  redis.call('ZREM', key, worker)
  -- Each of them takes at least one slot.
  local first = redis.call('ZRANGE', key, 0, sleepers.ENOUGH - 1, 'WITHSCORES')
  local at, covered, enough = sleepers.gap(first, slots, horizon, spare)
  local last = at and math.min(sleepers.batch_end(slots, at, horizon), at + spare - 1)
  local asks = last and slots(last) - horizon or sleepers.behind(key, slots, horizon, covered, enough)
  asks = math.max(now, math.floor(asks))
  redis.call('ZADD', key, as_text.us(asks), worker)
  return asks
end

-- The asking worker has no place left: if the first other sleeper would wake too late for the next slot, it is woken
-- earlier; if the slot after that is at the same time, so is the second one, and many such slots are soon requested.
-- Returns whether there is a sleeper.
function sleepers.hand_on(base, worker, now, horizon, slots)
  local key = base .. 'meta:sleepers'
  -- A worker that should be awake by now is about to ask, or dead.
  local from = as_text.us(math.floor(now - horizon))
  local wakes = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', '0', '3')
  local known = 0
  for i = 1, #wakes, 2 do
    if wakes[i] ~= worker and known < 2 then
      known = known + 1
      local slot = slots(known)
      if not slot or slot > slots(1) then return true end
      if tonumber(wakes[i + 1]) > math.max(now, sleepers.latest(slot, horizon)) then
        wake.call(base, wakes[i], math.max(now, math.floor(slot - horizon)))
      end
    end
  end
  return known > 0
end

-- Makes a wake-up earlier: `at` (when the next delayed job is due) unless another sleeper is awake by then.
function sleepers.hasten(key, worker, asks, at)
  if at >= asks then return asks end
  local earlier = redis.call('ZRANGEBYSCORE', key, '-inf', as_text.us(at), 'LIMIT', 0, 1)
  if earlier[1] then return asks end
  redis.call('ZADD', key, as_text.us(at), worker)
  return at
end

return sleepers
