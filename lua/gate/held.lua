local as_text = use 'redis/as-text'

-- What holds the head of a queue, and for how long each cause has done so: kept in the meter's hash
-- (docs/redis-keys.md), for reports. After `holdsUntil`, the slot of the head, it waits for a worker.
local held = {
  NOTED = { 'holds', 'holdsUntil', 'heldAt' },
  CAUSES = { 'rate', 'limits', 'concurrency', 'pause', 'workers' },
  -- A lasting cause is accounted this often, µs.
  ACCOUNTED_US = 1000000,
}

-- Whether what holds the head is accounted for. shape: nil if none is stored
function held.counts(shape)
  return shape and shape.mode ~= 'off' and (shape.interval or shape.limits or shape.groups)
end

function held.open(meter_key)
  local f = redis.call('HMGET', meter_key, 'holds', 'holdsUntil', 'holdsSince', 'heldAt', 'heldRate', 'heldLimits',
    'heldConcurrency', 'heldPause', 'heldWorkers')
  local h = { holds = f[1] or '', slot = f[2] or '', since = f[3], at = tonumber(f[4]) }
  for i, cause in ipairs(held.CAUSES) do h[cause] = tonumber(f[4 + i]) or 0 end
  return h
end

-- Accounts up to now: to the cause until the slot, to missing workers after it.
function held.account(h, now)
  local at = h.at
  h.at = now
  if h.holds == '' or not at or at >= now then return end
  local cause = string.match(h.holds, '^%a+')
  local own = math.min(math.max(tonumber(h.slot) or now, at), now) - at
  h[cause] = h[cause] + own
  h.workers = h.workers + now - at - own
end

-- For how long something but missing workers has held the head so far, µs.
function held.until_now(meter_key, now)
  local h, sum = held.open(meter_key), 0
  held.account(h, now)
  for _, cause in ipairs(held.CAUSES) do if cause ~= 'workers' then sum = sum + h[cause] end end
  return sum
end

-- Records what holds the head from now on. slot: µs, or nil; noted: the values of held.NOTED, if known
function held.note(meter_key, now, holds, slot, noted)
  -- In a queue that could start more, each departure changes the past slot.
  if slot and slot <= now then holds, slot = 'workers', nil end
  slot = slot and as_text.us(slot) or ''
  noted = noted or redis.call('HMGET', meter_key, unpack(held.NOTED))
  local same = (noted[1] or '') == holds and (holds == '' or noted[2] == slot)
  if same and (holds == '' or (noted[3] and now - tonumber(noted[3]) < held.ACCOUNTED_US)) then return end
  local h = held.open(meter_key)
  held.account(h, now)
  redis.call('HSET', meter_key, 'holds', holds, 'holdsUntil', slot,
    'holdsSince', h.holds == holds and h.since or as_text.us(now), 'heldAt', as_text.us(now), 'heldRate', as_text.us(h.rate),
    'heldLimits', as_text.us(h.limits), 'heldConcurrency', as_text.us(h.concurrency), 'heldPause', as_text.us(h.pause),
    'heldWorkers', as_text.us(h.workers))
end

return held
