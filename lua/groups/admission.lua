local free_places = use 'admission/free-places'
local occupancy = use 'admission/occupancy'
local refusals = use 'admission/refusals'
local group_later = use 'groups/later'
local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local group_schedule = use 'groups/schedule'
local group_share = use 'groups/share'
local bucket = use 'meter/bucket'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'

-- Extends admission/admission for jobs of groups: their queue must have groups, and each group has a bound.
--   status  -7 the queue has no groups, -8 a group is full, -13 a limit has its maximum number of keys in use
--           (maxKeys), -14 a limit allows one job of a value, and has it (onConflict)
--   detail  of -8: as of a full queue, with the capacity and the number of jobs of the group, then the group; of -13:
--           {the limit, the keys that it would count, JSON: name -> value, the maximum}; of -14: {the limit, these
--           keys, the id of that job, '' if it is another one of the same call}

local group_admission = {}

-- As admission.cost_error, by the rate and burst of the job's group, if it has one; third, the group. A rate by
-- feedback refuses none, because it ends.
function group_admission.cost_error(g, job)
  local cost, group = job.cost, job.group and job.group[1]
  if not (g and group) or cost <= 1 or not g.enforced then return nil end
  local s = g:settings(group)
  if not s.has_rate or cost <= s.burst then return nil end
  return { -3, { as_text.exact(cost), as_text.exact(s.burst), group } }
end

-- The first number from low to high that holds; high, if none below does.
local function first_that(low, high, holds)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if holds(middle) then high = middle else low = middle + 1 end
  end
  return high
end

-- When n jobs of the group have departed, ms from now, by its own rate, limits and pause; math.huge if unknown. line:
-- how many of its jobs are in line; then delayed ones have to come first.
local function own_departures(g, shape, group, line)
  local s, b = g:settings_next(group), nil
  local from = math.max(g.now, s.paused or 0, s.limited or 0)
  if from == math.huge then return function(n) return n == 0 and 0 or math.huge end end
  b = g:bucket(group, s)
  local limits = group_schedule.of(g, shape)
  return function(n)
    if n == 0 then return 0 end
    local at = from
    if b then at = math.max(at, meter.time(b, bucket.nth_slot(b, n, 1, 1, meter.at(b, from)))) end
    if limits then at = math.max(at, (limits(group, n, from))) end
    local ms = math.ceil((at - g.now) / 1000)
    if n <= line then return ms end
    local due = group_later.due(g.base, group, n - line)
    return math.max(ms, due and due - math.floor(g.now / 1000) or free_places.UNKNOWN_MS)
  end
end

-- The n-th departure of the queue, ms from now. Each is computed once.
local function queue_departures(g, shape)
  local depth = redis.call('LLEN', g.base .. 'wait') + redis.call('ZCARD', g.base .. 'prioritized')
  local known = {}
  return function(n)
    n = math.min(n, math.max(1, depth))
    known[n] = known[n] or free_places.retry_ms(g.base, shape, g.now, n, g:held_slot(n))
    return known[n]
  end
end

-- When that many jobs of others have departed, ms from now, as far as the rate of groups decides. groups: how many have
-- jobs
local function other_departures(g, groups)
  local interval = g.enforced and g.defaults.interval
  return function(n)
    if not interval then return 0 end
    return math.ceil(math.ceil(n / math.max(1, groups)) * interval / 1000)
  end
end

-- When a full group has its places, ms from now: its own departures free some, and departures of others raise a bound
-- by free places. asked: as in group_admission.refuse
--   own      how many of its jobs depart until then: the more do, the fewer of the others have to
--   turns    how many groups take turns: after that many departures one of its jobs departs, if it is not held
local function retry_ms(g, shape, group, asked)
  local bound, wanted, turns = asked.bound, asked.held + asked.count, redis.call('ZCARD', g:key('ready'))
  local is_ready, limited = redis.call('ZSCORE', g:key('ready'), group), redis.call('ZCARD', g:key('limited'))
  local is_limited = not is_ready and redis.call('ZSCORE', g:key('limited'), group)
  local others = turns + limited - ((is_ready or is_limited) and 1 or 0)
  local most = math.min(asked.held, wanted - asked.limit)
  local least = math.min(most, math.max(0, wanted - bound.own))
  if others == 0 then least = most end
  turns = math.max(1, turns)
  local function lacks(own) return bound.lacks(asked.held, wanted - own) end
  local function departures(own) return math.max(own + lacks(own), own * turns) end
  local own_ms, queue_ms = own_departures(g, shape, group, asked.line), queue_departures(g, shape)
  local others_ms = other_departures(g, others)
  local function other_ms(own) return math.max(queue_ms(departures(own)), others_ms(lacks(own))) end
  local function ms(own) return math.max(own_ms(own), other_ms(own)) end
  local fewest = first_that(least, most, function(own) return own * turns >= departures(own) end)
  local own = first_that(least, fewest, function(own) return own_ms(own) >= other_ms(own) end)
  local soonest = ms(own)
  if own > least then soonest = math.min(soonest, ms(own - 1)) end
  return soonest < math.huge and math.max(1, soonest) or free_places.UNKNOWN_MS
end

local function refuse(g, shape, group, asked)
  local count, held, limit = asked.count, asked.held, asked.limit
  refusals.note(g.base, g.now, count, held, limit)
  local paused = redis.call('HEXISTS', g.base .. 'meta', 'paused') == 1 or shape.paused_until > g.now
  return { -8, { retry_ms(g, shape, group, asked), held, limit, paused and '1' or '0', count, group } }
end

-- Nil if that many new jobs of the group have places, else the refusal, which is counted. Second, how many of them have
-- to replace other jobs of the group; third, a function that refuses them. While the queue itself lacks places, only
-- the group's own capacity refuses: admission/admission refuses for the queue.
local function refusal_of_group(g, shape, group, count, call)
  if shape.mode == 'off' then return nil end
  local bound = group_share.bound(g, call, group, count)
  if bound.own == math.huge and (not call.of_free or call.is_sure) then return nil end
  local held, line = g:places(group, function(n) return n + count <= bound.most(n) end, occupancy.due(shape, g.now))
  local limit = bound.most(held)
  if held + count <= limit then return nil end
  if count > bound.largest and bound.largest > 0 and shape.mode == 'enforce' then
    return { -4, { count, bound.largest, group } }
  end
  local asked = { count = count, held = held, line = line, limit = limit, bound = bound }
  if held + count <= bound.own then
    if call.drops then
      return nil, count - math.max(0, limit - held), function() return refuse(g, shape, group, asked) end
    end
    if call.depth + call.total > call.capacity then return nil end
  end
  if shape.mode ~= 'enforce' then
    redis.call('HINCRBY', g.base .. 'meta:meter', 'shadowRefused', count)
    return nil
  end
  return refuse(g, shape, group, asked)
end

-- The keys of a new job. options: packed, nil if unknown
local function keys_of_new(options)
  if not options then return nil end
  return (select(4, job_options.cost(cjson.encode(cmsgpack.unpack(options)))))
end

-- The refusal of new jobs that would exceed a limit's maximum number of keys, or of jobs per value; nil if none would.
-- jobs: as in admission.refusal
function group_admission.refusal_of_keys(base, shape, now, jobs)
  if not shape.bounds_keys or shape.mode == 'off' then return nil end
  local asked = { together = jobs.together }
  for i, job in ipairs(jobs) do
    asked[i] = { group = job.group and job.group[1] or '', keys = keys_of_new(job.options) }
  end
  local found = group_limits_of(base, shape, now).too_many_keys(asked)
  if not found then return nil end
  if shape.mode ~= 'enforce' then
    redis.call('HINCRBY', base .. 'meta:meter', 'shadowRefused', #jobs)
    return nil
  end
  if found.job then return { -14, { found.limit, cjson.encode(found.keys), found.job } } end
  return { -13, { found.limit, cjson.encode(found.keys), found.most } }
end

-- A job was added. added: as in groups/limits-of. A duplicate adds nothing: the job that exists has keys of its own.
function group_admission.note_keys(base, shape, now, id, added)
  if not (shape and shape.bounds_keys) or shape.mode == 'off' or type(id) ~= 'string' then return end
  local options = redis.call('HGET', base .. id, 'opts')
  local _, _, _, keys = job_options.cost(options)
  group_limits_of(base, shape, now).note_keys(id, queue_groups.named(options) or '', keys, added)
end

-- The first refusal of new jobs by the bounds of their groups. jobs, drops: as in admission.refusal, where drops is
-- `choose`. Second, the `swaps` of admission/admission.
function group_admission.refusal(shape, jobs, drops)
  local g, counts, names, swaps = jobs.groups, {}, {}, nil
  for _, job in ipairs(g and jobs or {}) do
    local group = job.group and job.group[1]
    if group and not counts[group] then names[#names + 1] = group end
    if group then counts[group] = (counts[group] or 0) + 1 end
  end
  if not names[1] then return nil end
  local call = group_share.call(g, shape, #jobs, drops)
  if call.drops then table.sort(names) end
  for _, group in ipairs(names) do
    local refusal, missing, refuses = refusal_of_group(g, shape, group, counts[group], call)
    if refusal then return refusal end
    if missing then
      swaps = swaps or { of = {}, refuse = refuses }
      swaps.of[group] = missing
    end
    call.kept = call.kept + counts[group] - (missing or 0)
  end
  return nil, swaps
end

return group_admission
