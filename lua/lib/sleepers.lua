--- @include "text"

-- Waiting workers and their wake-up times: a sorted set, worker id -> µs. Each worker that could take more jobs gets
-- a time of its own, one horizon before the first slot that no other sleeper will ask for.
-- slots(i): the slot of the i-th job from now on (µs), the first of them that of the head; nil where it is not known.
-- One table: a script has no room for more than 200 local names.
local sleepers = {}

-- A sleeper that died keeps its place. Whoever sleeps behind it is up that long after its slot, the next one after twice
-- that: so a slot that is never asked for costs little, and far slots few calls, however many workers sleep.
sleepers.GUARD_US = 30000000

-- The last of the slots that one call takes from there on: those of half a horizon, so that the other half is left for a
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

-- Where the sleepers with the given wake-up times (ascending) leave a gap: the first slot that none of them will ask for,
-- nil where it is not known, and when somebody has to be up at the latest, in case that those before it are dead.
function sleepers.gap(wakes, slots, horizon)
  local first, guard, at = slots(1), math.huge, 1
  for i = 2, #wakes, 2 do
    local slot = slots(at)
    local latest = math.min(slot and sleepers.latest(slot, horizon) or math.huge, guard)
    if tonumber(wakes[i]) > latest then break end
    guard = guard == math.huge and first + sleepers.GUARD_US or first + 2 * (guard - first)
    if slot then at = sleepers.batch_end(slots, at, horizon) + 1 end
  end
  return slots(at) and at, guard
end

-- Puts the worker to sleep until slots that nobody else asks for; spare: the jobs it could take. Returns the wake-up
-- time (µs).
function sleepers.add(key, worker, now, horizon, slots, spare)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', us_text(now))
  redis.call('ZREM', key, worker)
  local at, guard = sleepers.gap(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), slots, horizon)
  local last = at and math.min(sleepers.batch_end(slots, at, horizon), at + spare - 1)
  local wake = math.max(now, math.floor(math.min(last and slots(last) - horizon or math.huge, guard)))
  redis.call('ZADD', key, us_text(wake), worker)
  return wake
end

-- The worker that asked has no place left: where the first sleeper would be up too late for the next slot, which slot()
-- tells, it takes over.
function sleepers.hand_on(base, now, horizon, slot)
  local key = base .. 'meta:sleepers'
  -- Whoever was to be up by now is about to ask, or dead.
  local first = redis.call('ZRANGEBYSCORE', key, us_text(math.floor(now - horizon)), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then return end
  local next = slot()
  if not next or tonumber(first[2]) <= math.max(now, sleepers.latest(next, horizon)) then return end
  redis.call('ZADD', key, us_text(math.max(now, math.floor(next - horizon))), first[1])
  redis.call('PUBLISH', base .. 'meta:wake', first[1])
end

-- Moves a wake-up forward to `at` (the next delayed job is due) unless another sleeper is up by then.
function sleepers.hasten(key, worker, wake, at)
  if at >= wake then return wake end
  local earlier = redis.call('ZRANGEBYSCORE', key, '-inf', us_text(at), 'LIMIT', 0, 1)
  if earlier[1] then return wake end
  redis.call('ZADD', key, us_text(at), worker)
  return at
end

-- Has the first sleeper ask at once: the message names it, the others sleep on.
local function sleepers_call_first(base)
  local first = redis.call('ZRANGE', base .. 'meta:sleepers', 0, 0)[1]
  if first then redis.call('PUBLISH', base .. 'meta:wake', first) end
end

-- A delayed job may be due before anybody is up who would promote it. Scores of BullMQ's delayed jobs are ms * 4096.
local function sleepers_expect_delayed(base, now)
  local first = redis.call('ZRANGEBYSCORE', base .. 'meta:sleepers', us_text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] then return end
  local delayed = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  if delayed[1] and tonumber(delayed[2]) / 4.096 < tonumber(first[2]) then
    redis.call('PUBLISH', base .. 'meta:wake', first[1])
  end
end

function sleepers.remove(key, worker)
  redis.call('ZREM', key, worker)
end
