--[[
  Puts a failed job back for one more attempt, by BullMQ's own script, if there is a place for it.
  ARGV
    [1]  job id
    [2]  'id:revision' of the shape that the caller knows, '' if none
  Returns the reply of admission/admission, then 3 the outcome, 4 news. The outcomes:
    retried  the job waits again
    other    it has not failed, or there is no such job
]]
local admission = use 'admission/admission'
local new_job = use 'admission/new-job'
local reprocess_job = use 'bullmq/reprocessJob'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local queue_groups = use 'groups/queue-groups'
local shapes = use 'shape/shapes'

local key, id = KEYS[1], ARGV[1]
local base, now, shape = shapes.here(key)
if shapes.is_lost(shape, ARGV[2]) then return { -1, {} } end

local function answer(status, detail, outcome)
  return { status, detail, outcome, shapes.news(key, shape, ARGV[2]) }
end

if not redis.call('ZSCORE', base .. 'failed', id) then return answer(1, {}, 'other') end
local f = redis.call('HMGET', base .. id, 'opts', 'priority')
local lifo = cjson.decode(f[1] or '{}').lifo

-- A deadline is not checked here: the job expires again when it is at the head.
local job
if shape then
  local groups, terms = queue_groups.of(base, shape, now), new_job.terms((lifo and 'l,' or ',') .. (f[2] or 0) .. ',,')
  local group = groups and { groups.named(f[1]) }
  job = { cost = 1, terms = terms, group = group and group[1] and group }
  if shape.bounds_keys or shape.refuses_closed then job.options = cmsgpack.pack(cjson.decode(f[1] or '{}')) end
  local refused = admission.refusal(base, shape, now, { job, groups = groups })
  if refused then return answer(refused[1], refused[2], '') end
end
local keys = {
  base .. id, base .. 'events', base .. 'failed', base .. 'wait', base .. 'meta', base .. 'active', base .. 'marker',
  base .. 'prioritized', base .. 'pc',
}
local args = { id, lifo and 'RPUSH' or 'LPUSH', 'failedReason', 'failed', '0', '0' }
local is_back = group_hooks.run(reprocess_job, redis, keys, args) == 1
if is_back and job then group_admission.note_keys(base, shape, now, id) end
return answer(1, {}, is_back and 'retried' or 'other')
