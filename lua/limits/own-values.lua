local limit_checks = use 'limits/checks'
local limit_control = use 'limits/control'
local limit_state = use 'limits/state'
local warm_up = use 'limits/warm-up'
local bucket = use 'meter/bucket'
local as_text = use 'redis/as-text'

-- Own settings of single values of a limit's keys (`by`), or of single members of one with `pool`: the limit's tier
-- (`tiers`) that jobs name or that was set for the value, and further settings made at run time. `own_limits` of the
-- shape names the limits with such settings: nothing is read for others.
--   meta:limits:own:<name>   hash, value -> JSON: keys: name -> value, fields: field -> { value, by, reason, at, until?
--                            } (ms), at: of the last change, µs. Fields: tier, rate, as src/limits/schedule.ts encodes
--                            it or null for no limit, burst, concurrency, day (limits/warm-up) and held, true, of a
--                            member of a pool or of a plan. From feedback (feedback/subjects), until a time: `limited` (true: the
--                            value is held), `slowed` (a bound of its rate) and `paced` (the rate that `adapt` found)
--   meta:limits:ends         cell -> when its next temporary setting ends, µs
--   own:<cell>               field of meta:shape with the same JSON except feedback, of MIRRORED values at most:
--                            processes that know the shape restore them with it
--   meta:limits:changed      cell -> when one of its settings ended or was lifted, µs; for an hour
local own_values = {
  -- One call applies at most this many ends.
  DUE = 16,
  -- The same for a call that changes the shape.
  MOST = 1000,
  -- How long a cell's last change is remembered, µs.
  CHANGED_US = 3600000000,
  -- Maximum number of fields of meta:shape.
  MIRRORED = 1000,
  OF_FEEDBACK = { limited = true, slowed = true, paced = true },
}
local FIELD = 'own:'
-- The settings by which feedback has lowered rates.
local FELL = { 'slowed', 'paced' }

local function own_key(base, name)
  return base .. 'meta:limits:own:' .. name
end

local function ends_key(base)
  return base .. 'meta:limits:ends'
end

local function changed_key(base)
  return base .. 'meta:limits:changed'
end

-- The name of the cell of a limit for one value.
local function cell_of(l, value)
  return l.name .. ':' .. value
end

-- The name and the value of a cell's name.
function own_values.parts(cell)
  return string.match(cell, '^([^:]*):(.*)$')
end

-- The stored settings of a value: {keys, fields, at}; nil if there are none.
function own_values.stored(base, name, value)
  local text = redis.call('HGET', own_key(base, name), value)
  return text and cjson.decode(text) or nil
end

local function end_of(entry)
  return entry['until'] and entry['until'] * 1000 or math.huge
end

-- When the first of these settings ends after a time, µs; infinite without one.
local function next_end(fields, at)
  local first = math.huge
  for _, entry in pairs(fields) do
    local ends = end_of(entry)
    if ends > at then first = math.min(first, ends) end
  end
  return first
end

-- The value of a setting, unless it has ended; nil for none.
local function live(entry, at)
  return entry and end_of(entry) > at and entry or nil
end

-- As src/limits/definition.ts encodes it.
local function interval_of(own, rate)
  return (own.algorithm == 'gcra' or own.schedule) and bucket.interval(rate) or rate[2] * 1000 / rate[1]
end

local function apply_rate(own, rate)
  if rate == cjson.null then
    own.mode = 'off'
  elseif own.interval then
    own.schedule = rate[3] or false
    own.interval = interval_of(own, rate)
    -- It does not change with the limit's.
    own.rate_changes = false
  else
    own.limit, own.window = rate[1], rate[2] * 1000
  end
end

-- The limit at a time for a value with these fields. tier: of a job, nil for none; own.tier: the current one;
-- own.untiered: l; own.configured: its interval without feedback; own.limited: until when feedback holds it, µs
function own_values.at(l, fields, at, tier)
  local own = setmetatable({}, { __index = l })
  local set, burst, places, rate = live(fields.tier, at), live(fields.burst, at), live(fields.concurrency, at), live(fields.rate, at)
  own.untiered = l
  own.tier = l.tiers and (set and set.value or tier)
  for field, value in pairs(own.tier and l.tiers[own.tier] or {}) do own[field] = value end
  if burst and l.interval then own.burst = burst.value end
  -- They were set while the limit had another algorithm.
  local has_places = l.algorithm == 'concurrency'
  if places and has_places then own.limit = places.value end
  if live(fields.held, at) then own.held_until = end_of(fields.held) end
  local before = own.interval
  if rate and not has_places then apply_rate(own, rate.value) end
  own.configured = own.interval
  if before and l.lowest and rate and rate['until'] then own.lowest = math.max(l.lowest, before) end
  if live(fields.limited, at) then own.limited = end_of(fields.limited) end
  for _, field in ipairs(FELL) do
    local entry = live(fields[field], at)
    if entry and own.interval then
      own.interval = math.max(own.interval, interval_of(own, entry.value))
      own.is_paced = own.is_paced or field == 'paced'
    end
  end
  local is_other = own.schedule ~= l.schedule and (own.schedule or l.schedule)
  if is_other or (own.schedule and own.interval ~= own.configured) then limit_checks.use_verbs(own) end
  return own
end

-- When fields ended by `now`, µs, ascending.
local function ended_by(stored, now)
  local over = {}
  for _, entry in pairs(stored.fields) do
    if end_of(entry) <= now then over[#over + 1] = math.max(end_of(entry), tonumber(stored.at)) end
  end
  table.sort(over)
  return over
end

-- The state of a cell takes over the settings that ended since it was stored, each at its time.
local function bring_up(base, l, stored, value, over, tier)
  local key = l.interval and limit_control.states_of_values(l, base) .. value
  for _, at in ipairs(over) do
    local packed = key and redis.call('GET', key)
    local before, after = own_values.at(l, stored.fields, at - 1, tier), own_values.at(l, stored.fields, at, tier)
    if packed and limit_state.differ(before, after) and limit_state.seen(packed) < at then
      limit_state.at(key, after, at, packed, before)
    end
  end
end

-- The current limit for a value without settings. tier: of a job, nil for none
function own_values.of_tier(l, tier)
  return own_values.at(l, {}, 0, tier)
end

-- The same for one value at a time, by its settings.
function own_values.as_of(base, l, value, at)
  local stored = own_values.stored(base, l.name, value)
  return own_values.at(l, stored and stored.fields or {}, at)
end

-- The day of a plan at a time, by the settings of the value: as warm_up.day returns it.
local function day_of(base, l, value, fields, at)
  return warm_up.day(base, l, value, live(fields.day, at), live(fields.rate, at) or live(fields.held, at), at)
end

-- The same for a value that may have settings, with its state brought up to now. own.next_end: when the first of these
-- ends, µs
function own_values.in_force(base, l, value, tier, now)
  local stored = own_values.stored(base, l.name, value)
  local over = stored and ended_by(stored, now) or {}
  if over[1] then bring_up(base, l, stored, value, over, tier) end
  local fields = stored and stored.fields or {}
  local own = own_values.at(l, fields, now, tier)
  own.next_end = next_end(fields, now)
  if l.plan then
    local rate = live(fields.rate, now)
    own.day, own.day_ends, own.why, own.day_by = day_of(base, l, value, fields, now)
    own.counts = l.mode ~= 'off'
    if not rate and own.counts then warm_up.apply(own, own.day) end
  end
  own.changed = { key = changed_key(base), cell = cell_of(l, value), now = now, at = over[#over] or 0 }
  return own
end

-- Since when at the latest the current settings of a value apply, µs. changed: as in_force notes it. Older settings
-- than the remembered changes may have been different.
function own_values.since(changed)
  local noted = tonumber(redis.call('ZSCORE', changed.key, changed.cell) or nil) or 0
  return math.max(changed.at, noted, changed.now - own_values.CHANGED_US)
end

local function note_change(base, cell, now)
  local key = changed_key(base)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', as_text.us(now - own_values.CHANGED_US))
  redis.call('ZADD', key, as_text.us(now), cell)
  redis.call('PEXPIRE', key, as_text.us(own_values.CHANGED_US / 1000))
end

-- Settings by feedback are not restored: they change often, and are found again.
local function mirror(base, cell, stored)
  local shape_key, fields, text = base .. 'meta:shape', {}, nil
  for field, entry in pairs(stored.fields) do
    if not own_values.OF_FEEDBACK[field] then fields[field] = entry end
  end
  if next(fields) then text = cjson.encode({ keys = stored.keys, fields = fields, at = stored.at }) end
  if not text then return redis.call('HDEL', shape_key, FIELD .. cell) end
  if redis.call('HLEN', shape_key) >= own_values.MIRRORED and redis.call('HEXISTS', shape_key, FIELD .. cell) == 0 then return end
  redis.call('HSET', shape_key, FIELD .. cell, text)
end

-- Stores the settings of a value, and when the next of them ends.
local function store(base, l, value, stored)
  local soonest = next_end(stored.fields, 0)
  if next(stored.fields) then
    redis.call('HSET', own_key(base, l.name), value, cjson.encode(stored))
  else
    redis.call('HDEL', own_key(base, l.name), value)
    if l.maxRefused then warm_up.forget_counts(base, l.name, value) end
  end
  mirror(base, cell_of(l, value), stored)
  if soonest < math.huge then redis.call('ZADD', ends_key(base), as_text.us(soonest), cell_of(l, value))
  else redis.call('ZREM', ends_key(base), cell_of(l, value)) end
end

-- Sets fields for a value, or lifts them; its state takes over the change now. change: field -> value, or {clear:
-- true}; until_ms: nil if without end; lifts_others: whether all other fields are lifted. Returns its settings.
function own_values.set(base, l, value, keys, now, change, by, reason, until_ms, lifts_others)
  own_values.in_force(base, l, value, nil, now)
  local stored = own_values.stored(base, l.name, value) or { fields = {} }
  local before = own_values.at(l, stored.fields, now)
  for field, entry in pairs(stored.fields) do
    if lifts_others or end_of(entry) <= now then stored.fields[field] = nil end
  end
  for field, given in pairs(change) do
    local lifted = type(given) == 'table' and given.clear
    stored.fields[field] = not lifted
      and { value = given, by = by, reason = reason, at = math.floor(now / 1000), ['until'] = until_ms } or nil
  end
  stored.keys, stored.at = keys, as_text.us(now)
  store(base, l, value, stored)
  note_change(base, cell_of(l, value), now)
  local key, after = limit_control.states_of_values(l, base) .. value, own_values.at(l, stored.fields, now)
  local packed = limit_state.differ(before, after) and redis.call('GET', key)
  if packed then limit_state.at(key, after, now, packed, before) end
  return stored.fields
end

-- The first departure of a value on a day of its plan, at a slot (µs). l: as in_force returned it. Returns the reason
-- for the day, and its author.
function own_values.begin_day(base, l, value, keys, slot, now)
  local stored = own_values.stored(base, l.name, value) or { fields = {} }
  local fields = stored.fields
  local day, _, why, by = day_of(base, l, value, fields, slot)
  fields.day = warm_up.entry(day, why, by, slot)
  stored.keys, stored.at = keys, as_text.us(now)
  store(base, l, value, stored)
  warm_up.forget_counts(base, l.name, value)
  return why, by
end

-- The cell of a field of the shape; nil if it is another one.
local function cell_in(field)
  return string.sub(field, 1, #FIELD) == FIELD and string.sub(field, #FIELD + 1) or nil
end

-- Restores the settings of values that Redis has lost, except values with later settings. known: all fields of the
-- shape, field -> text; older: the names of fields of the older copy that it replaces: settings lifted since are lifted
-- again. Returns the names of the limits.
function own_values.restore(base, known, older)
  local names = {}
  local function restore(cell, text)
    local name, value = own_values.parts(cell)
    local given, stored = text and cjson.decode(text) or { fields = {} }, own_values.stored(base, name, value)
    names[name] = true
    if not (text and stored) or tonumber(stored.at) < tonumber(given.at) then store(base, { name = name }, value, given) end
  end
  for _, field in ipairs(older) do
    if cell_in(field) and not known[field] then restore(cell_in(field), nil) end
  end
  for field, text in pairs(known) do
    if cell_in(field) then restore(cell_in(field), text) end
  end
  return names
end

-- Whether values of a limit have settings.
function own_values.any(base, name)
  return redis.call('EXISTS', own_key(base, name)) == 1
end

local function forget(base, l, value, now)
  local stored = own_values.stored(base, l.name, value)
  if not stored then return redis.call('ZREM', ends_key(base), cell_of(l, value)) end
  local over = ended_by(stored, now)
  bring_up(base, l, stored, value, over)
  for field, entry in pairs(stored.fields) do
    if end_of(entry) <= now then stored.fields[field] = nil end
  end
  if over[1] then
    stored.at = as_text.us(over[#over])
    note_change(base, cell_of(l, value), over[#over])
  end
  store(base, l, value, stored)
end

-- Forgets settings of values that have ended by `at` (µs), under the limits (JSON) of the queue until then. ending: as
-- own_values.ending returns it; follows: of limit_state.lasting; rate_changes: as limit_state.rate_changes returns it
function own_values.forget_ended(base, limits, ending, at, follows, rate_changes)
  local by_name = {}
  rate_changes = rate_changes and cjson.decode(rate_changes) or {}
  for _, l in ipairs(limits and cjson.decode(limits) or {}) do if l.by or l.pool then by_name[l.name] = l end end
  for i = 1, #ending, 2 do
    local name, value = own_values.parts(ending[i])
    local l = limit_state.lasting(by_name[name] or { name = name }, follows)
    limit_state.follow_clock(l)
    l.rate_changes = rate_changes[name]
    forget(base, l, value, at)
  end
end

-- Names of cells with a setting that ends by `by` (µs), and when: name and time of each, at most `most` of them.
function own_values.ending(base, by, most)
  return redis.call('ZRANGEBYSCORE', ends_key(base), '-inf', as_text.us(by), 'WITHSCORES', 'LIMIT', 0, most)
end

return own_values
