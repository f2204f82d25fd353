--[[
  Puts the job of a dead letter back, if it has not been put back already and there is a place: BullMQ's own add script,
  and a mark on the dead letter, both or neither.
  KEYS
    [1]  …:meta:shape
    [2]  the dead letter, a hash
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  BullMQ's add script
    [3]  its arguments: its own, packed
    [4]  the data
    [5]  the options, packed
    [6]  job id
    [7]  when the job was first added, ms since 1970
    [8]  its progress as JSON, '' if none
  Returns the reply of admission/admission, then 3 the outcome, 4 news. The outcomes:
    gone      the dead letter no longer exists
    back      the job is back, by this or another redrive or by hand: the dead letter may be removed
    failed    the failed job is still kept, and must be removed first
    taken     another job has the id now
    redriven  the job waits again
]]
local admission = use 'admission/admission'
local new_job = use 'admission/new-job'
local group_hooks = use 'groups/hooks'
local queue_groups = use 'groups/queue-groups'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'

local key, dead_letter, id = KEYS[1], KEYS[2], ARGV[6]
local base, now, shape = shapes.here(key)
if shapes.is_lost(shape, ARGV[1]) then return { -1, {} } end

local function answer(status, detail, outcome)
  return { status, detail, outcome, shapes.news(key, shape, ARGV[1]) }
end

if redis.call('EXISTS', dead_letter) == 0 then return answer(1, {}, 'gone') end
if redis.call('HEXISTS', dead_letter, 'redriven') == 1 then return answer(1, {}, 'back') end
if redis.call('EXISTS', base .. id) == 1 then
  if redis.call('HGET', base .. id, 'timestamp') ~= ARGV[7] then return answer(1, {}, 'taken') end
  return answer(1, {}, redis.call('ZSCORE', base .. 'failed', id) and 'failed' or 'back')
end
-- A deadline is not checked here: the job has had its chance, and expires again when it is at the head. The bound of
-- its group is not checked either.
if shape then
  local options, groups = cmsgpack.unpack(ARGV[5]), queue_groups.of(base, shape, now)
  local again = { cost = 1, terms = new_job.terms(',' .. (options.priority or 0) .. ',,'), options = ARGV[5] }
  if groups and options.group then again.group = { groups.named(cjson.encode({ group = options.group })) } end
  local refusal = admission.refusal_of_queue(base, shape, now, { again, groups = groups })
  if refusal then return answer(refusal[1], refusal[2], '') end
end
local known = { [base] = shape and { shape.groups, shape.ageing_ms, shape.lanes, shape.whole_groups } or {} }
local hooked, store_groups = group_hooks.redis(redis, known)
local failure = new_job.add_whole(new_job.script(ARGV[2]), hooked, base, { ARGV[3], ARGV[4], ARGV[5] })
store_groups()
if failure then return failure end
if ARGV[8] ~= '' then redis.call('HSET', base .. id, 'progress', ARGV[8]) end
redis.call('HSET', dead_letter, 'redriven', as_text.us(now))
return answer(1, {}, 'redriven')
