--[[
  Admits one job or refuses it: after the admission checks, BullMQ's own add script runs. Most jobs certainly fit, and
  are added by lua/verbs/admit-fitting.lua.
  KEYS  those of the add script, then
    [k + 1]  …:meta:shape
  ARGV  those of the add script, then
    [a + 1]  'id:revision' of the shape that the caller knows, '' if none
    [a + 2]  the job, JSON: [cost, id or '' if BullMQ generates it, deduplication id or '', job scheduler id or ''
             (iterations of one that exists are never refused), its terms (admission/job-terms), 1 to return the position and the
             estimated start, 0 for neither, its group [id, priority], false or nothing, when the call was first sent, µs
             (admission/sent-again), or nothing]
  Returns the reply of admission/admission, then 3 BullMQ's reply, 4 now µs, 5 position or '', 6 start µs or '', 7 id,
    8 revision, 9 news: the shape, if the caller knows another.
]]
local admission = use 'admission/admission'
local job_terms = use 'admission/job-terms'
local overflow = use 'admission/overflow'
local sent_again = use 'admission/sent-again'
local original = use 'bullmq/original'
local queued_at_redis = use 'gate/queued-at-redis'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local group_adds = use 'groups/adds'
local group_admission = use 'groups/admission'
local group_line = use 'groups/line'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local k, a = #KEYS - 1, #ARGV - 2
local key, base = KEYS[k + 1], string.sub(KEYS[k + 1], 1, -11)

local now = redis_now()
local shape_id, revision = shapes.identity_parts(ARGV[a + 1])
local job = cjson.decode(ARGV[a + 2])
local cost, id, deduplication_id, scheduler_id = job[1], job[2], job[3], job[4]
local shape, groups = shapes.load(key, base, now), nil
if shapes.is_lost(shape, shape_id, revision) then return { -1, {} } end

local function add_job()
  local redis = groups and group_adds.redis(groups) or redis
  if shape and shape.ageing_ms then redis = queued_at_redis(redis, base, now) end
  return original.run(redis, KEYS, ARGV)
end

-- Whether this call added the job when it was sent before; nil if that is not known.
local function added_before()
  local added = sent_again.added(base, { id }, job[8], now)
  return added and added[id] == true
end

local function refused(refusal)
  refusal[7], refusal[8] = shape and shape.id or '', shape and shape.revision or ''
  for i = 3, 6 do refusal[i] = '' end
  refusal[9] = shape and shapes.news(key, shape, shape_id, revision) or false
  return refusal
end

local before = false
if job[8] then
  before = added_before()
  if before == nil then return { -11, {} } end
end
local terms = job_terms.read(job[5])
local missed = not before and scheduler_id == '' and admission.deadline_error(now, terms)
if missed then return refused(missed) end
local group, gone = job[7], nil
-- One without a group may replace one that has a group, or release its parent.
groups = group_admission.open(base, shape, now)
if groups then groups.adding = group or false end
local known = before or scheduler_id ~= '' and redis.call('ZSCORE', base .. 'repeat', scheduler_id)
if group and not groups and not known then return refused({ -7, {} }) end
if shape then
  local refusal
  if not known and admission.is_new(base, id, deduplication_id, {}) then
    local swaps
    refusal = admission.cost_error(shape, cost)
    if group and not refusal then refusal, swaps = group_admission.refusal_of_one(groups, shape, group[1], cost, true) end
    if not refusal then
      local new = {
        { cost = cost, terms = terms, group = group }, line = group_line.of(groups, shape), groups = groups, swaps = swaps,
      }
      refusal, gone = admission.refusal(base, shape, now, new, overflow.choose, scheduler_id == '')
    end
  end
  if refusal then return refused(refusal) end
end
local reply = before and id or add_job()
-- A negative number is BullMQ's refusal.
if gone and type(reply) ~= 'number' then overflow.drop(base, shape, gone, now) end
if groups then groups:save() end
-- Most often no worker sleeps.
local timed = shape and (shape.interval or shape.limits or shape.groups)
if timed and ((groups and groups.awaited) or redis.call('EXISTS', base .. 'meta:sleepers') == 1) then
  wake.head_changed(base, groups)
  wake.delayed(base)
end
if next(touched.bases) then touched.wake() end
local position, start = '', ''
if job[6] == 1 and type(reply) == 'string' then
  position, start = group_line.estimate(base, shape, now, reply, groups)
end
return {
  1, {}, reply, as_text.us(now), position, start, shape and shape.id or '', shape and shape.revision or '',
  shape and shapes.news(key, shape, shape_id, revision) or false,
}
