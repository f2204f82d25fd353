local held = use 'gate/held'
local wake = use 'gate/wake'
local limit_control = use 'limits/control'
local keys_in_use = use 'limits/keys-in-use'
local own_values = use 'limits/own-values'
local limit_state = use 'limits/state'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local service = use 'meter/service'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local group_rates = use 'shape/group-rates'
local parsed = use 'shape/parsed'
local ramp = use 'shape/ramp'

local shapes = {}

-- The shape: a hash with the declared values, the overrides, and what follows from both. docs/redis-keys.md has its
-- fields; `born` and `rev` are its identity, here id and revision.
local SHAPE_FIELDS = {
  'rate', 'interval', 'burst', 'capacity', 'capacityHorizonMs', 'concurrency', 'mode', 'maxLatenessMs', 'horizonMs',
  'onStateLoss', 'limits', 'maxWaitMs', 'reservedPlaces', 'overflow', 'overflowTo',
  'audit', 'groups', 'priorityAgeingMs', 'durability', 'rampUp', 'onClosed',
}

function shapes.document(text)
  return text and cjson.decode(text) or {}
end

-- The declared values, and the overrides.
function shapes.documents(key)
  local stored = redis.call('HMGET', key, 'declared', 'overrides')
  return shapes.document(stored[1]), shapes.document(stored[2])
end

function shapes.encode(document)
  if next(document) == nil then return '{}' end
  return cjson.encode(document)
end

-- Feedback applies on top of the shape, each entry until its own time: the slowest rate and the smallest number of
-- running jobs win, so that feedback never raises either. Returns the interval, the downstream's limit of running jobs
-- or nil, when the next entry ends, and whether the rate rests (shape/ramp). rises: `rampUp` as stored, or nil
local FEEDBACK_ENTRIES = { 'pace', 'slow', 'quota', 'concurrency' }

function shapes.feedback(key, now, interval, expires, rises)
  local text = redis.call('HGET', key, 'feedback')
  if not text then return interval, nil, expires end
  local doc, ended, limit, configured, rests = cjson.decode(text), false, nil, interval, false
  for _, name in ipairs(FEEDBACK_ENTRIES) do
    local entry = doc[name]
    if entry and entry['until'] and entry['until'] * 1000 <= now then
      doc[name], ended = nil, true
    elseif entry then
      if entry['until'] then expires = math.min(expires or entry['until'], entry['until']) end
      if entry.interval then interval = math.max(interval or 0, bucket.ceil(entry.interval)) end
      limit = entry.limit or limit
    end
  end
  if doc.ramp then
    -- During a pause the rate is the one after it.
    local at = math.max(now, doc.ramp.since * 1000)
    local share, _, ends = ramp.share(rises and cjson.decode(rises), ramp.began(doc.ramp), at)
    if not ends and (not rises or doc.ramp.since * 1000 <= now) then doc.ramp, ended = nil, true
    elseif ends then
      ends, rests = math.ceil(ends / 1000), doc.ramp.since >= ramp.RESTS_MS
      if not rests then expires = math.min(expires or ends, ends) end
      if configured then interval = math.max(interval, bucket.ceil(configured / share)) end
    end
  end
  if ended then redis.call('HSET', key, 'feedback', cjson.encode(doc)) end
  return interval, limit, expires, rests
end

-- The bucket takes over a change of rate or burst when it is next opened. If another change follows before that (two
-- overrides ended while no worker asked), it takes over the first one now: its debt until then fell at that rate.
local function shape_catch_up(base, interval, burst, changed_at)
  local m = interval and changed_at and meter.stored(base)
  if not m then return end
  interval, burst = tonumber(interval), tonumber(burst) or 1
  if m.interval == interval and m.burst == burst then return end
  bucket.reshape(m, interval, burst, tonumber(changed_at) - m.origin)
  meter.save(base .. 'meta:meter', m)
end

-- The same for a change from or to a rate that follows the clock, but at once: later, the speed until then would be
-- unknown. Debts are kept in units, and slots granted ahead in time.
local function shape_retime(key, base, rate, interval, burst, at)
  local before = parsed.of(key, redis.call('HGET', key, 'digest'))
  local m = before and before.interval and meter.stored(base, before)
  if not m or not interval then return end
  meter.pass(m, math.max(at, m.seen))
  local granted = m.last > m.now and meter.time(m, m.last)
  bucket.reshape(m, interval, burst or 1, m.now)
  m.service = service.of(rate, interval)
  if granted then
    local shift = meter.at(m, granted) - m.last
    m.tat, m.last = m.tat + shift, m.last + shift
  end
  meter.save(base .. 'meta:meter', m)
end

-- Every change of the shape is a revision (step: 1 by default; 0 if workers need not know). Returns the revision.
function shapes.revise(key, step)
  local revision = redis.call('HINCRBY', key, 'rev', step or 1)
  redis.call('HSET', key, 'digest', parsed.digest(key))
  return revision
end

-- BullMQ's global concurrency (`concurrency` of …:meta) and the shape's are one value, so that BullMQ's scripts respect
-- it. A plain BullMQ queue writes it without changing the shape. While the downstream limits running jobs the smaller
-- of both applies, and the plain queue's value returns afterwards; otherwise it applies until the shape's value
-- changes.

-- Returns the shape's concurrency, BullMQ's and, while the downstream limits it, the value to remember
-- (`ownConcurrency`: '<the shape's>:<a plain queue's>'); each nil if there is none. limit: the downstream's, or nil;
-- before: what the shape wrote last, or false
local function concurrency_resolve(base, own, limit, before, known)
  if not limit and not known then return own, own end
  local text, current = own and tostring(own) or '', redis.call('HGET', base .. 'meta', 'concurrency')
  -- The value set by a plain BullMQ queue, '' if none.
  local known_own, plain = string.match(known or ':', '^(.*):(.*)$')
  if current ~= before then plain = current or '' elseif known_own ~= text then plain = '' end
  if not limit then return own, tonumber(plain) or own end
  local least = math.min(limit, own or limit, tonumber(plain) or limit)
  return least, least, text .. ':' .. plain
end

-- What has separated the lanes of a group so far, the last first, as JSON: waiting jobs may be in older lanes.
local MOST_LANES = 8
local function lanes_so_far(before, lanes)
  local found, text = { lanes }, cjson.encode(lanes)
  for _, known in ipairs(shapes.document(before or nil)) do
    if cjson.encode(known) ~= text and #found < MOST_LANES then found[#found + 1] = known end
  end
  return cjson.encode(found)
end

-- The intervals of declared rates that follow overrides with an end, for bucket.kept_us: of limits by their names, and of
-- groups as ''. Nil if there are none.
local function following(declared, overrides)
  local follows = {}
  local function after(field)
    local is_temporary = overrides[field] and overrides[field]['until'] and declared[field]
    return is_temporary and type(declared[field].value) == 'string' and cjson.decode(declared[field].value) or {}
  end
  for _, l in ipairs(after('limits')) do follows[l.name] = l.interval end
  local rate = after('groups').rate
  follows[''] = rate and bucket.interval(rate) or nil
  return next(follows) and follows or nil
end

-- Ends expired overrides and writes the effective values, which apply since `at` (default: now). `base` is the queue's
-- key prefix.
function shapes.resolve(key, base, declared, overrides, now, at)
  local effective, expires = {}, nil
  for field, entry in pairs(declared) do effective[field] = entry.value end
  for field, entry in pairs(overrides) do
    if entry['until'] and entry['until'] * 1000 <= now then
      overrides[field] = nil
    else
      if entry.value == cjson.null then effective[field] = nil else effective[field] = entry.value end
      if entry['until'] then expires = math.min(expires or entry['until'], entry['until']) end
    end
  end
  -- Limits by keys need lanes, which belong to groups.
  local lanes, has_keys, has_lanes = parsed.lanes_of(effective.limits)
  if has_keys and not effective.groups then effective.groups = '{}' end
  local before = redis.call('HMGET', key, 'concurrency', 'interval', 'burst', 'changedAt', 'ownConcurrency', 'limits',
    'groups', 'mode', 'lanes', 'ownLimits', 'rate', 'rateChanges', 'groupRates')
  local rate = effective.rate
  local interval, limit, rests = rate and bucket.interval(rate), nil, nil
  interval, limit, expires, rests = shapes.feedback(key, now, interval, expires, effective.rampUp)
  if rate then effective.rate = cjson.encode(rate) end
  if interval then effective.interval = as_text.exact(interval) end
  local burst = effective.burst and as_text.exact(effective.burst)
  local is_repaced = not before[4] or (effective.interval or false) ~= before[2] or (burst or false) ~= before[3]
    or (effective.rate or false) ~= before[11]
  if is_repaced then shape_catch_up(base, before[2], before[3], before[4]) end
  if is_repaced and (parsed.follows_clock(effective.rate) or parsed.follows_clock(before[11])) then
    shape_retime(key, base, rate, interval, effective.burst, at or now)
  end
  redis.call('HDEL', key, 'expires', 'ownConcurrency', 'rests', 'follows', 'rateChanges', unpack(SHAPE_FIELDS))
  local set = { 'declared', shapes.encode(declared), 'overrides', shapes.encode(overrides) }
  local concurrency, known
  effective.concurrency, concurrency, known =
    concurrency_resolve(base, effective.concurrency, limit, before[1], before[5])
  if has_lanes or before[9] then set[#set + 1] = 'lanes'; set[#set + 1] = lanes_so_far(before[9], lanes) end
  if parsed.needs_whole_groups(effective.groups) then set[#set + 1] = 'wholeGroups'; set[#set + 1] = 1 end
  if known then set[#set + 1] = 'ownConcurrency'; set[#set + 1] = known end
  if expires then set[#set + 1] = 'expires'; set[#set + 1] = expires end
  if rests then set[#set + 1] = 'rests'; set[#set + 1] = 1 end
  local follows = following(declared, overrides)
  if follows then set[#set + 1] = 'follows'; set[#set + 1] = cjson.encode(follows) end
  if is_repaced then set[#set + 1] = 'changedAt'; set[#set + 1] = as_text.us(at or now) end
  local rate_changes, limits_changed = before[12], before[6] and effective.limits ~= before[6]
  if before[10] and limits_changed then
    own_values.forget_ended(base, before[6], own_values.ending(base, at or now, own_values.MOST), at or now, follows, rate_changes)
  end
  if limits_changed and keys_in_use.bounded(before[6]) then
    keys_in_use.change_limits(base, before[6], effective.limits)
  end
  if limits_changed then rate_changes = limit_state.rate_changes(rate_changes, before[6], effective.limits, at or now) end
  if rate_changes then set[#set + 1] = 'rateChanges'; set[#set + 1] = rate_changes end
  if effective.limits and effective.limits ~= before[6] then
    limit_state.change_limits(base, effective.limits, before[6], at or now, own_values.as_of, follows)
  end
  if (effective.groups or false) ~= before[7] then
    set[#set + 1] = 'groupsAt'; set[#set + 1] = as_text.us(at or now)
    local rates = before[4] and group_rates.changed(before[13], before[7], effective.groups, at or now)
    if rates then set[#set + 1] = 'groupRates'; set[#set + 1] = rates end
  end
  if before[4] and ((effective.limits or false) ~= before[6] or (effective.mode or false) ~= before[8]) then
    set[#set + 1] = 'rulesAt'; set[#set + 1] = as_text.us(at or now)
  end
  for _, field in ipairs(SHAPE_FIELDS) do
    if effective[field] ~= nil then set[#set + 1] = field; set[#set + 1] = effective[field] end
  end
  redis.call('HSET', key, unpack(set))
  shapes.revise(key)
  -- What holds jobs is no longer accounted for.
  if not held.counts(effective) then
    held.note(base .. 'meta:meter', now, '')
  end
  if concurrency then
    redis.call('HSET', base .. 'meta', 'concurrency', concurrency)
  elseif before[1] then
    redis.call('HDEL', base .. 'meta', 'concurrency')
  end
  if before[1] and (concurrency or math.huge) > tonumber(before[1]) then wake.place(base) end
end

-- A value of a limit got settings of its own (limits/own-values), or lost them. The time when the last one lost them is
-- kept as long as changes are.
function shapes.note_own_values(key, base, name, now)
  local known = shapes.document(redis.call('HGET', key, 'ownLimits'))
  local before = known[name]
  if own_values.any(base, name) then known[name] = '0'
  elseif before == '0' then known[name] = as_text.us(now)
  elseif before and now - tonumber(before) > own_values.CHANGED_US then known[name] = nil end
  if known[name] == before then return end
  if next(known) then redis.call('HSET', key, 'ownLimits', cjson.encode(known)) else redis.call('HDEL', key, 'ownLimits') end
  shapes.revise(key, 0)
end

-- Forgets settings of values whose time has ended, some of them at each call. own: own_limits of the shape. Returns the
-- cells, each with the time of its end.
function shapes.end_own_values(base, own, now)
  local key, ending, names = base .. 'meta:shape', own_values.ending(base, now, own_values.DUE), {}
  if ending[1] then
    local f = redis.call('HMGET', key, 'limits', 'follows', 'rateChanges')
    own_values.forget_ended(base, f[1], ending, now, f[2] and cjson.decode(f[2]), f[3])
  end
  for i = 1, #ending, 2 do names[own_values.parts(ending[i])] = true end
  for name, empty_since in pairs(own) do
    if empty_since > 0 and now - empty_since > own_values.CHANGED_US then names[name] = true end
  end
  for name in pairs(names) do shapes.note_own_values(key, base, name, now) end
  return ending
end

-- Days of plans (limits/warm-up) begin: processes that know the shape learn the days up to now, in order to restore
-- them, but not at each day.
local HALF_A_DAY_US = 43200000000
function shapes.note_day(key, now)
  if now - (tonumber(redis.call('HGET', key, 'daysAt') or nil) or 0) < HALF_A_DAY_US then return end
  redis.call('HSET', key, 'daysAt', as_text.us(now))
  shapes.revise(key)
end

-- The shape, and what changes without a revision; nil if none is stored.
function shapes.read(key)
  local f = redis.call('HMGET', key, 'digest', 'claimed', 'claimedUntil')
  local shape = parsed.of(key, f[1])
  return shape and setmetatable({ claimed = tonumber(f[2]) or 0, claimed_until = tonumber(f[3]) or 0 }, shape)
end

local function shape_resolved(key, base, at)
  local declared, overrides = shapes.documents(key)
  shapes.resolve(key, base, declared, overrides, at, at)
  return shapes.read(key)
end

-- A rise that a pause of BullMQ's own holds, which a worker has noted (gate/held), until a worker asks again: before its
-- next step.
local function shape_hold_rise(key, base, now)
  local holds, until_us, since_us = unpack(redis.call('HMGET', base .. 'meta:meter', 'holds', 'holdsUntil', 'holdsSince'))
  local doc = holds == 'pause' and until_us == '' and shapes.document(redis.call('HGET', key, 'feedback'))
  if not doc or not doc.ramp then return end
  doc.ramp = ramp.paused(doc.ramp, math.floor(tonumber(since_us) / 1000), math.floor(now / 1000))
  redis.call('HSET', key, 'feedback', cjson.encode(doc))
end

-- Raises its rate from a time (ms) on as after a pause; nil: from the next departure.
function shapes.rise(key, base, now, since_ms)
  local doc = shapes.document(redis.call('HGET', key, 'feedback'))
  doc.ramp = ramp.begins(since_ms)
  redis.call('HSET', key, 'feedback', cjson.encode(doc))
  return shape_resolved(key, base, now)
end

-- Whether the queue has been without departures for so long that its rate has to rise: by the shape's rule, or during
-- BullMQ's own pause, which a worker has noted (gate/held). holds, until_us, since_us: as stored; m: the meter, or nil
function shapes.has_rested(shape, m, now, holds, until_us, since_us)
  if holds == 'pause' and until_us == '' and now - tonumber(since_us) >= ramp.LONG_MS * 1000 then return true end
  if not shape.rests_us then return false end
  return not m or meter.rests(m, math.max(now, m.seen), shape.rests_us)
end

local function shape_resting(shape, key, base, now)
  local f = redis.call('HMGET', base .. 'meta:meter', 'bucket', 'holds', 'holdsUntil', 'holdsSince')
  if not shapes.has_rested(shape, meter.unpacked(f[1], shape), now, unpack(f, 2)) then return shape end
  return shapes.rise(key, base, now)
end

-- The shape at `now`, or nil if none is stored.
function shapes.load(key, base, now)
  local shape = shapes.read(key)
  local is_due = shape and shape.expires and shape.expires * 1000 <= now
  if is_due and shape.ramp_up and shape.interval then shape_hold_rise(key, base, now) end
  -- Each override ends on time, even if no call comes then.
  while shape and shape.expires and shape.expires * 1000 <= now do
    shape = shape_resolved(key, base, shape.expires * 1000)
  end
  -- A plain BullMQ queue may have written a value above the downstream's limit.
  if shape and shape.own_concurrency and redis.call('HGET', base .. 'meta', 'concurrency') ~= shape.concurrency then
    shape = shape_resolved(key, base, now)
  end
  if shape and shape.ramp_up and shape.interval and not shape.rests then return shape_resting(shape, key, base, now) end
  return shape
end

-- For the script that has this key: the key prefix of its queue, Redis's time and the current shape.
function shapes.here(key)
  local base, now = string.sub(key, 1, -11), redis_now()
  return base, now, shapes.load(key, base, now)
end

-- Whether Redis has lost (or never had) the shape that the caller knows: there is none, a younger one, or an older
-- revision of it. identity: 'id:revision' of the shape that the caller knows, '' if none
function shapes.is_lost(shape, identity)
  if identity == '' or (shape and shape.identity == identity) then return false end
  local id, revision = string.match(identity, '^(%d+):(%d+)$')
  if not shape or tonumber(shape.id) > tonumber(id) then return true end
  return shape.id == id and shape.revision < tonumber(revision)
end

-- The whole shape, for a caller that knows another revision; false for one that knows this one, and if there is none.
function shapes.news(key, shape, identity)
  if not shape or shape.identity == identity then return false end
  return redis.call('HGETALL', key)
end

-- For scripts that change a shape. Ensures that one is stored; the first one gets its id now. Returns the declared
-- values and the overrides, or nothing if Redis has lost the shape that the caller knows: it must be restored before it
-- is changed. An expired override ends at its own time, not with a later change.
function shapes.begin(key, base, now, identity)
  if shapes.is_lost(shapes.load(key, base, now), identity) then return nil end
  redis.call('HSETNX', key, 'born', as_text.us(now))
  redis.call('HSETNX', key, 'rev', 0)
  return shapes.documents(key)
end

-- Nil if the shared limits given to a shape agree with the definitions of their names, else the reply: {-5, {name, what
-- was given, what is stored}}. limits: JSON, or nil.
function shapes.define_limits(base, limits, by)
  local shared = {}
  for _, l in ipairs(type(limits) == 'string' and cjson.decode(limits) or {}) do
    if l.shared then shared[#shared + 1] = l end
  end
  for _, l in ipairs(shared) do
    local stored, _, outranks = limit_control.defined(limit_control.of_queue(l, base), l.definition, l.version)
    if not outranks and stored ~= l.definition then return { -5, { l.name, l.definition, stored } } end
  end
  for _, l in ipairs(shared) do limit_control.define(limit_control.of_queue(l, base), l.definition, l.version, by) end
  return nil
end

-- Applies the change to the bucket at the moment it was made, wakes sleeping workers, and returns the whole shape.
function shapes.finish(key, base, now)
  local shape = shapes.load(key, base, now)
  if shape.interval and redis.call('HEXISTS', base .. 'meta:meter', 'bucket') == 1 then
    local m = meter.open(base .. 'meta:meter', now, shape, '')
    if m.changed then meter.save(base .. 'meta:meter', m) end
  end
  redis.call('PUBLISH', base .. 'meta:wake', shape.revision)
  return { 1, redis.call('HGETALL', key) }
end

return shapes
