--[[
  A worker reports itself and the jobs that it started. From time to time a report, even of a program that only adds
  jobs, also records the state of the queue as a sample of its time series.
  ARGV
    [1]  worker id, '' for a program that only adds jobs
    [2]  JSON of its report about itself, '' when it leaves
    [3]  JSON: field of meta:starts (starts and ends of jobs) -> the increment
    [4]  its greatest lateness since its last report, µs
    [5]  records for `shape.audit`: JSON list of {slot µs, when the processor was called µs}, or ''
    [6]  number of the worker's report: sent again, it adds nothing
    [7]  when the call was first sent, µs, if it may have run already
  Returns {now µs, µs that each cause has held the head of the queue so far, in the order of gate/held, number of workers
  that report, id of a job that bypassed the meter, '' if none was found}; {now µs} if no shape is stored.
]]
local occupancy = use 'admission/occupancy'
local held = use 'gate/held'
local group_hooks = use 'groups/hooks'
local group_later = use 'groups/later'
local queue_groups = use 'groups/queue-groups'
local service = use 'meter/service'
local as_text = use 'redis/as-text'
local audit = use 'reports/audit'
local bypass = use 'reports/bypass'
local queue_head = use 'reports/queue-head'
local series = use 'reports/series'
local shapes = use 'shape/shapes'

local worker = ARGV[1]
-- A worker that last reported running jobs is gone after this long without a report; an idle one has nothing to report.
local GONE_MS, GONE_IDLE_MS = 60000, 3600000
-- A head of this age waits for a worker if none has asked.
local UNSEEN_MS = 1000
local base, now, shape = shapes.here(KEYS[1])
if not shape then return { as_text.us(now) } end
local meter_key, starts_key, workers_key = base .. 'meta:meter', base .. 'meta:starts', base .. 'meta:workers'

-- Whether the report is here already: its reply was lost, and it was resent. The row of a worker that left is gone.
local LEFT_MS, left_key = 60000, base .. 'meta:left:' .. worker
local function was_sent()
  -- Its record may have expired.
  if ARGV[7] and now - tonumber(ARGV[7]) > LEFT_MS * 1000 then return true end
  local row = redis.call('HGET', workers_key, worker)
  local last = row and string.match(row, '"report":(%d+)') or redis.call('GET', left_key)
  return last and tonumber(last) >= tonumber(ARGV[6])
end

local function add_report()
  if ARGV[2] == '' then
    redis.call('HDEL', workers_key, worker)
    redis.call('SET', left_key, ARGV[6], 'PX', LEFT_MS)
  else
    local row = string.format('{"seen":%.0f,"report":%s,%s', now / 1000, ARGV[6], string.sub(ARGV[2], 2))
    redis.call('HSET', workers_key, worker, row)
  end
  for field, count in pairs(cjson.decode(ARGV[3])) do redis.call('HINCRBY', starts_key, field, count) end
  if ARGV[5] ~= '' and shape.audit then
    audit.add(base .. 'meta:audit:starts', shape.audit, ARGV[5], #cjson.decode(ARGV[5]))
  end
end

-- A program that only adds jobs has no row.
local adds = worker ~= '' and not was_sent()
if adds then add_report() end

local clocks = held.open(meter_key)
held.account(clocks, now)
local causes = {}
for i, cause in ipairs(held.CAUSES) do causes[i] = as_text.us(clocks[cause]) end

local function head_age_ms()
  local fields = queue_head.fields(base, shape, now)
  return fields and math.max(0, math.floor(now / 1000 - queue_head.ready_ms(fields))) or -1
end

-- No worker has asked for the waiting jobs: none is running, or all are busy.
local function note_unseen()
  if not held.counts(shape) or clocks.holds ~= '' or head_age_ms() < UNSEEN_MS then return end
  local paused = shape.paused_until > now or redis.call('HEXISTS', base .. 'meta', 'paused') == 1
  held.note(meter_key, now, paused and 'pause' or 'workers')
end

-- state: values that samples of all levels share, read once
local function sample(level, state)
  local totals = redis.call('HMGET', meter_key, 'departedTotal', 'refusedTotal', 'droppedTotal', 'bypassedTotal')
  local starts = redis.call('HMGET', starts_key, 'count', 'latenessUs', 'max:' .. level[1], 'completed', 'failed',
    'failedAttempts')
  local paused = shape.paused_until > now or redis.call('HEXISTS', base .. 'meta', 'paused') == 1
  local paced = shape.interval and shape.mode == 'enforce'
  local speed = shape.service and service.speed(shape.service, now) or 1
  return {
    as_text.us(now / 1000), redis.call('GET', base .. 'id') or 0, totals[1] or 0, totals[2] or 0, totals[3] or 0,
    state.depth, state.waiting, state.active, as_text.us(state.age_ms),
    paced and as_text.exact(speed * 1000000 / shape.interval) or -1, starts[1] or 0, starts[2] or 0, starts[3] or 0,
    starts[4] or 0, starts[5] or 0, starts[6] or 0, totals[4] or 0,
    causes[1], causes[2], causes[3], causes[4], causes[5], paused and 1 or 0,
  }
end

local function forget_gone()
  local rows = redis.call('HGETALL', workers_key)
  for i = 1, #rows, 2 do
    local seen = tonumber(string.match(rows[i + 1], '^{"seen":(%d+)')) or 0
    local running, held_jobs = string.match(rows[i + 1], '"running":(%d+),"held":(%d+)')
    local idle = running == '0' and held_jobs == '0'
    if now / 1000 - seen > (idle and GONE_IDLE_MS or GONE_MS) then redis.call('HDEL', workers_key, rows[i]) end
  end
end

-- The greatest lateness since the last sample of each list.
for _, level in ipairs(adds and series.LEVELS or {}) do
  local field = 'max:' .. level[1]
  local greatest = tonumber(redis.call('HGET', starts_key, field)) or 0
  if tonumber(ARGV[4]) > greatest then redis.call('HSET', starts_key, field, ARGV[4]) end
end
note_unseen()
-- Detects changes by scripts that know nothing of groups: jobs that they removed, and jobs that they brought to the
-- head.
if shape.groups then
  group_later.sweep(base, now)
  local g = queue_groups.open(base, shape, now)
  g:sweep()
  g:plain_head()
  group_hooks.store(g)
end
local due, bypassing, state = series.due(base, now), nil, {}
if #due > 0 then
  bypassing = bypass.count(base, meter_key, shape, now)
  -- Absent keys, as those of an empty queue, are keyspace misses.
  state.depth, state.waiting = occupancy.depth(base, shape, now)
  state.active, state.age_ms = redis.call('LLEN', base .. 'active'), state.waiting > 0 and head_age_ms() or -1
end
for _, level in ipairs(due) do
  series.add(base, level, sample(level, state))
  redis.call('HSET', starts_key, 'max:' .. level[1], 0)
end
if #due > 1 then forget_gone() end
return { as_text.us(now), causes, redis.call('HLEN', workers_key), bypassing or '' }
