local keys_in_use = use 'limits/keys-in-use'
local bucket = use 'meter/bucket'
local service = use 'meter/service'
local group_rates = use 'shape/group-rates'
local ramp = use 'shape/ramp'

-- The parsed shape, which is the same until its next revision. A library keeps it between calls, under the digest of
-- the fields it was parsed from, which each revision stores (shape/shapes). Equal digests mean equal shapes, whichever
-- Redis, database or copy they come from. So a call reads one field instead of all.
local parsed = {}

local FIELDS = {
  'born', 'rev', 'interval', 'burst', 'capacity', 'capacityHorizonMs', 'mode', 'onStateLoss', 'expires', 'pausedUntil',
  'concurrency', 'horizonMs', 'changedAt', 'limits', 'ownConcurrency', 'maxWaitMs', 'reservedPlaces', 'overflow',
  'overflowTo', 'audit', 'groups', 'groupsAt', 'priorityAgeingMs', 'rulesAt', 'probe', 'metered',
  'lanes', 'wholeGroups', 'ownLimits', 'rampUp', 'rate', 'rests', 'onClosed', 'follows', 'rateChanges', 'groupRates',
}

-- As in src/shape/shape.ts.
local DEFAULT_HORIZON_MS = 50

-- At most this many shapes are kept, of one queue only the last.
local MOST = 1000
local known, count = {}, 0

-- How a limit with `by` begins, as in src/limits/queue-limits.ts; the names of its list are sorted, 'group' first.
parsed.KEYED_LIMIT = '{"by":['

-- Whether limits (JSON) with `by` bound the number of running jobs.
function parsed.has_places(keyed_limits)
  return string.find(keyed_limits, '"algorithm":"concurrency"', 1, true) ~= nil
end

-- Whether limits (JSON) of a queue are pools.
function parsed.has_pools(limits)
  return string.find(limits, '"pool":[', 1, true) ~= nil
end

-- What separates the lanes of a group under these limits (JSON): {names of all keys but the group, units of the limits
-- that have keys}, each sorted; second, whether there are such names; third, whether the queue has lanes, which it also
-- has without names if groups wait for jobs to end or for other queues.
function parsed.lanes_of(limits)
  local at = limits and string.find(limits, parsed.KEYED_LIMIT, 1, true)
  if not at then return { {}, {} }, false, false end
  local names, units, known, is_shared = {}, {}, {}, false
  local function note(list, kind, name)
    if not name or known[kind .. name] then return end
    known[kind .. name], list[#list + 1] = true, name
  end
  for _, l in ipairs(cjson.decode('[' .. string.sub(limits, at))) do
    for _, name in ipairs(l.by) do if name ~= 'group' then note(names, 'key ', name) end end
    note(units, 'unit ', l.unit)
    is_shared = is_shared or l.shared
  end
  table.sort(names)
  table.sort(units)
  if names[1] or is_shared or parsed.has_places(string.sub(limits, at)) then return { names, units }, names[1] ~= nil, true end
  return { {}, {} }, false, false
end

-- Whether a rate (JSON) follows the clock (meter/service).
function parsed.follows_clock(rate)
  return rate and string.byte(rate, -2) == 93
end

-- Whether ends of jobs need all settings of their groups, by the given settings (JSON, as in src/shape/groups.ts).
function parsed.needs_whole_groups(given)
  return given and (string.find(given, '"order":"strict"', 1, true) or string.find(given, '"keepFree":', 1, true)) ~= nil
end

-- The limits with `by` of a shape, decoded once: revision, which changes with them, and all; tiered: whether they depend on
-- the tier of a job; has_plans: whether one has a plan (limits/warm-up).
function parsed.keyed(shape)
  local kept, text = shape.__index or shape, shape.keyed_limits
  if not kept.keyed or kept.keyed.text ~= text then
    kept.keyed = {
      text = text, revision = redis.sha1hex(text), all = cjson.decode(text),
      tiered = string.find(text, '"tiers":', 1, true) ~= nil, has_plans = string.find(text, '"plan":', 1, true) ~= nil,
    }
  end
  return kept.keyed
end

local function parse(f)
  -- Limits with `by` come last. Without groups, all jobs form one group.
  local limits, keyed_limits = f[14], nil
  local at = limits and f[21] and string.find(limits, parsed.KEYED_LIMIT, 1, true)
  if at then
    limits, keyed_limits = at > 2 and string.sub(limits, 1, at - 2) .. ']' or nil, '[' .. string.sub(limits, at)
  end
  local shape = {
    id = f[1], revision = tonumber(f[2]), identity = f[1] .. ':' .. f[2], interval = tonumber(f[3]),
    burst = tonumber(f[4]) or 1, capacity = tonumber(f[5]), capacity_horizon_ms = tonumber(f[6]), mode = f[7] or 'enforce',
    on_state_loss = f[8] or 'hold', expires = tonumber(f[9]), paused_until = tonumber(f[10]) or 0, concurrency = f[11],
    horizon = (tonumber(f[12]) or DEFAULT_HORIZON_MS) * 1000, changed_at = tonumber(f[13]) or math.huge,
    limits = limits or nil, keyed_limits = keyed_limits, own_concurrency = f[15], max_wait_ms = tonumber(f[16]),
    reserved = f[17], overflow = f[18], overflow_to = f[19], audit = tonumber(f[20]), groups = f[21],
    groups_at = tonumber(f[22]) or 0, ageing_ms = tonumber(f[23]), rules_at = tonumber(f[24]) or 0,
    probe = f[25], metered = f[26],
  }
  shape.pools = limits and parsed.has_pools(limits)
  shape.has_places = keyed_limits and parsed.has_places(keyed_limits)
  -- Whether a job may bring one more key than a limit of the queue may have.
  shape.bounds_keys = shape.keyed_limits and keys_in_use.bounded(shape.keyed_limits)
  -- Once a queue has lanes (groups/lanes), it keeps them.
  shape.lanes = f[27] and cjson.decode(f[27]) or nil
  -- Once ends of jobs need all settings of their groups (groups/strict, groups/running), they keep needing them.
  shape.whole_groups = f[28] and true or false
  -- The limits with values of their own (limits/own-values), name -> 0, or the time when the last value was lifted, µs.
  for name, empty_since in pairs(f[29] and cjson.decode(f[29]) or {}) do
    shape.own_limits = shape.own_limits or {}
    shape.own_limits[name] = tonumber(empty_since)
  end
  shape.ramp_up = f[30] and cjson.decode(f[30]) or nil
  -- Whether its rate rises at the next departure. rests_us: of the bucket (shape/ramp).
  shape.rests = f[32] and true or false
  if shape.ramp_up and shape.interval then
    local configured = f[31] and bucket.interval(cjson.decode(f[31])) or shape.interval
    shape.rests_us = ramp.rests_us(shape.ramp_up, configured, shape.interval, shape.burst)
  end
  shape.service = parsed.follows_clock(f[31]) and service.of(cjson.decode(f[31]), shape.interval) or nil
  shape.follows = f[34] and cjson.decode(f[34]) or nil
  -- When the rates of limits with `by` changed (limits/state).
  shape.rate_changes = f[35] and cjson.decode(f[35]) or nil
  -- What buckets of groups went by so far (shape/group-rates).
  shape.group_rates = f[36] and group_rates.decode(f[36]) or nil
  -- For adds: whether a plain job only has to fit, in the queue and in its group, and into how many places; the
  -- reserved sum comes first.
  shape.refuses_closed = f[33] == 'refuse'
  shape.fits = shape.mode == 'enforce'
    and not (shape.expires or shape.max_wait_ms or shape.ageing_ms or shape.bounds_keys or shape.refuses_closed)
  local reserved = shape.reserved and tonumber(string.match(shape.reserved, '^%d+')) or 0
  shape.unreserved = shape.capacity and math.max(0, shape.capacity - reserved)
  -- Tables of single calls fall back to this one.
  shape.__index = shape
  return shape
end

function parsed.digest(key)
  return redis.sha1hex(cmsgpack.pack(redis.call('HMGET', key, unpack(FIELDS))))
end

-- digest: as stored, false if there is no shape; then nil
function parsed.of(key, digest)
  local shape = known[key]
  if shape and shape.digest == digest then return shape end
  if not digest then return nil end
  if not shape then
    if count == MOST then known, count = {}, 0 end
    count = count + 1
  end
  shape = parse(redis.call('HMGET', key, unpack(FIELDS)))
  shape.digest = digest
  known[key] = shape
  return shape
end

return parsed
