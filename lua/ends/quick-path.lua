local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local fetched = use 'ends/fetched'
local without_fetch = use 'ends/without-fetch'
local wake = use 'gate/wake'
local group_hooks = use 'groups/hooks'
local pace = use 'meter/pace'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'
local hooked_redis = use 'redis/hooked-redis'
local parsed = use 'shape/parsed'

-- If no rate and no pause holds the next job, and it is the next one in BullMQ's order, BullMQ's script fetches it
-- directly. This check runs before other modules are created, whose functions alone would cost more than BullMQ's work.

local quick_path = {}

-- Whether every job may depart now, for a caller that knows this shape; second, whether a shape is stored; third, if
-- only an enforced rate with a stored meter, and limits, may hold them: the shape (shape/parsed); fourth, the shape if
-- only groups may.
function quick_path.open(key, identity)
  local shape = parsed.of(key, redis.call('HGET', key, 'digest'))
  if not shape then return identity == '', false end
  if shape.probe or shape.identity ~= identity or shape.own_concurrency or shape.ageing_ms or shape.rests then return false, true end
  if shape.paused_until > 0 or shape.expires then
    local now_ms = redis.call('TIME')[1] * 1000
    local ends_soon = shape.expires and shape.expires <= now_ms + 1000
    if ends_soon or shape.paused_until / 1000 > now_ms then return false, true end
  end
  local held = shape.interval or shape.limits
  if not held and not shape.groups then return true, true end
  -- Audited departures go through the gate.
  if shape.mode ~= 'enforce' or shape.audit then return false, true end
  if shape.groups then return false, true, nil, not held and shape or nil end
  return false, true, (not shape.interval or shape.metered) and shape or nil
end

-- Counts departures, including those of earlier calls, which the caller reports from time to time (unreported; -1: not
-- now). began: as in meter/pace. Returns Redis's reply to TIME.
function quick_path.count(base, unreported, count, began)
  local time = redis.call('TIME')
  local sum = tonumber(unreported) + count
  if unreported ~= '-1' and (sum > 0 or began) then pace.count(base, sum, time[1] * 1000000 + time[2], began) end
  return time
end

-- Why BullMQ's script fetched nothing: it returns {0, 0, ms, 0} for its limiter, {0, 0, 0, 0} if the queue is paused or
-- at its limit of running jobs, and {0, 0, 0, time} or nothing if no job waits.
local function stop_of(base, tuple)
  if not tuple then return 'empty' end
  if tonumber(tuple[3]) > 0 then return 'limited' end
  if tonumber(tuple[4]) > 0 then return 'empty' end
  return wake.waits(base) and 'halted' or 'empty'
end

-- The reply of gate/departure, up to limited, if BullMQ's script granted nothing more, or as much as was requested.
-- time: Redis's reply to TIME
function quick_path.reply(time)
  local now, result, last = as_text.time(time), exchanged.results, exchanged.last
  if fetched.is_job(last) then return { 1, now, result, {}, 'full', '', '', 0, 0 } end
  local tuple = type(last) == 'table' and last
  local stop = stop_of(exchanged.base, tuple)
  return { 1, now, result, {}, stop, '', '', tuple and math.floor(tuple[4]) or 0, tuple and tuple[3] or 0 }
end

-- Ends jobs that need no replacement. Returns the reply.
function quick_path.end_alone(key)
  local store_groups
  if redis.call('HGET', key, 'groups') then exchanged.quiet, store_groups = group_hooks.redis(ends.quiet()) end
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do exchanged.results[#exchanged.results + 1] = ends.finish(at, false) end
  if store_groups then store_groups() end
  if #exchanged.unseen > 0 then without_fetch.frees_place(exchanged.base, #exchanged.unseen) end
  wake.touched()
  return { 1, '', exchanged.results }
end

-- Ends jobs where nothing can hold the next ones. stored: whether a shape is; unreported: as in quick_path.count.
-- Returns the reply.
function quick_path.end_open(stored, unreported)
  delay_clock.knows(exchanged.base, stored, false)
  if not stored then unreported = '-1' end
  -- When the first of them started, if that has to be recorded.
  local began, came = unreported ~= '-1' and pace.began(exchanged.base, exchanged.argv[ends.FIRST]), 0
  local once = exchanged.wanted > 1 and hooked_redis(redis, batch_once.handlers(exchanged.base)) or redis
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do
    if ends.exchange(at, once) then came = came + 1 end
  end
  wake.touched()
  if exchanged.repeated then unreported = '-1' end
  if unreported == '-1' and came == exchanged.wanted then return { 1, '', exchanged.results } end
  local time = quick_path.count(exchanged.base, unreported, came, began)
  return exchanged.last and quick_path.reply(time) or { 1, '', exchanged.results }
end

return quick_path
