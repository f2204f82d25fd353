local occupancy = use 'admission/occupancy'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'

-- A shard's lease: its part of a sharded queue's rate, places and running jobs, stored as overrides of its shape. The
-- rate override expires by itself, and the declared rate of a shard lets almost nothing depart.
local lease = {}

-- Author of the overrides: as in src/shape/events.ts.
lease.AUTHOR = 'shards'
lease.FIELDS = { 'rate', 'capacity', 'concurrency' }

-- The current lease: its epoch and number, both '' before the first.
function lease.identity(key)
  local epoch, number = string.match(redis.call('HGET', key, 'lease') or '', '^(%d+):(%d+)$')
  return epoch or '', number or ''
end

function lease.is_newer(key, epoch, number)
  local known, known_number = lease.identity(key)
  if known == '' or tonumber(epoch) > tonumber(known) then return true end
  return epoch == known and tonumber(number) > tonumber(known_number)
end

local function same(entry, value)
  if not entry or value == nil then return entry == value end
  if type(value) == 'table' then
    return type(entry.value) == 'table' and entry.value[1] == value[1] and entry.value[2] == value[2]
  end
  return entry.value == value
end

-- The override for a value of a lease, nil if the declared value applies. '' keeps the current override.
local function override(given, declared, before, encode)
  if given == '' then return before and before.value end
  if given == '0' then return nil end
  if given == 'none' then return declared and cjson.null or nil end
  return encode(given)
end

-- A lease that changes only its end keeps the revision and wakes no worker.
function lease.apply(key, base, now, given)
  local declared, overrides = shapes.documents(key)
  local values = {
    rate = override(given.rate, declared.rate, overrides.rate, function(units) return { tonumber(units), 1000 } end),
    capacity = override(given.capacity, declared.capacity, overrides.capacity, tonumber),
    concurrency = override(given.concurrency, declared.concurrency, overrides.concurrency, tonumber),
  }
  local changed = false
  for _, field in ipairs(lease.FIELDS) do
    local value = values[field]
    changed = changed or not same(overrides[field], value)
    overrides[field] = value ~= nil and { value = value, by = lease.AUTHOR, reason = 'lease', at = math.floor(now / 1000) } or nil
  end
  if overrides.rate and given.rate ~= '' then overrides.rate['until'] = given.until_ms end
  redis.call('HSET', key, 'lease', given.epoch .. ':' .. given.number)
  if changed then
    shapes.resolve(key, base, declared, overrides, now)
    shapes.finish(key, base, now)
    return
  end
  local expires
  for _, entry in pairs(overrides) do
    if entry['until'] then expires = math.min(expires or entry['until'], entry['until']) end
  end
  expires = select(3, shapes.feedback(key, now, nil, expires))
  redis.call('HSET', key, 'overrides', shapes.encode(overrides))
  if not expires then return end
  redis.call('HSET', key, 'expires', expires)
  shapes.revise(key, 0)
end

-- What the lease allows. Feedback may keep the shard below it for a while, but the difference is not free.
local function leased(entry, declared)
  local from = entry or declared
  return from and from.value ~= cjson.null and tonumber(from.value) or nil
end

-- The report for the ledger, as JSON. Times are texts, because cjson keeps 14 digits of a number.
function lease.report(key, base, now)
  local shape = shapes.load(key, base, now)
  local m, noted = meter.stored(base, shape), redis.call('HMGET', base .. 'meta:meter', 'departedTotal', 'holds')
  local last = m and meter.time(m, m.last) or 0
  local epoch, number = lease.identity(key)
  local waiting = redis.call('LLEN', base .. 'wait') + redis.call('ZCARD', base .. 'prioritized')
  local declared, overrides = shapes.documents(key)
  local entry = overrides.rate
  local groups = shape.groups and redis.call('ZCARD', base .. 'meta:groups:ready') + redis.call('ZCARD', base .. 'meta:groups:limited')
  return cjson.encode({
    at = as_text.us(now), epoch = epoch, number = tonumber(number) or 0,
    last = as_text.us(last),
    until_ms = as_text.us(entry and entry['until'] or 0),
    places = occupancy.taken(base, shape, now), capacity = leased(overrides.capacity, declared.capacity),
    running = redis.call('LLEN', base .. 'active'), concurrency = leased(overrides.concurrency, declared.concurrency),
    waiting = waiting, groups = groups or nil,
    -- Whether jobs wait only for the rate.
    wants = (noted[2] or '') == '' or noted[2] == 'rate',
    departed = tonumber(noted[1]) or 0, mean = m and m.mean_cost or 1, horizon = m and m.horizon or 0,
    empty = waiting + redis.call('LLEN', base .. 'active') + redis.call('ZCARD', base .. 'delayed')
      + redis.call('ZCARD', base .. 'waiting-children') == 0,
  })
end

-- Overrides without the leased ones.
function lease.without(overrides)
  for _, field in ipairs(lease.FIELDS) do
    if overrides[field] and overrides[field].by == lease.AUTHOR then overrides[field] = nil end
  end
  return overrides
end

-- A process may restore a copy of the shape whose rate and places have been taken back since. Until its next lease the
-- shard has what it declares.
function lease.forget(key, base, now)
  local declared, overrides = shapes.documents(key)
  redis.call('HDEL', key, 'lease')
  shapes.resolve(key, base, declared, lease.without(overrides), now)
  -- The copy keeps its revision.
  shapes.revise(key, -1)
end

return lease
