--[[
  Puts the job of a dead letter back, if it has not been put back already and there is a place: BullMQ's own add script,
  and a mark on the letter, both or neither.
  KEYS
    [1]  …:meta:shape  [2] wait  [3] paused  [4] meta  [5] id  [6] completed  [7] delayed  [8] active  [9] events
    [10] marker  [11] prioritized  [12] pc  [13] failed
    [14] the letter, a hash
  ARGV
    [1]  id of the shape that the caller knows, '' if none
    [2]  its revision
    [3]  kind: standard or prioritized
    [4]  BullMQ's arguments: its own, packed
    [5]  the data
    [6]  the options, packed
    [7]  job id
    [8]  when the job was first added, ms since 1970
    [9]  its progress as JSON, '' if none
  Returns the reply of admission/admission, then 3 the outcome, 4 id, 5 revision, 6 news. The outcomes:
    gone      the letter no longer exists
    back      the job is back, by this or another redrive or by hand: the letter may be removed
    failed    the failed job is still kept, and must be removed first
    taken     another job has the id now
    redriven  the job waits again
]]
local admission = use 'admission/admission'
local job_terms = use 'admission/job-terms'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'
local touched = use 'gate/touched'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local group_line = use 'groups/line'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local keys, argv = {}, {}
for i = 1, 14 do keys[i] = KEYS[i] end
for i = 1, 9 do argv[i] = ARGV[i] end
local base, letter, id = string.sub(keys[1], 1, -11), keys[14], argv[7]

local hooked, store_groups = redis, function() end
local KEYS_OF = {
  standard = { 2, 3, 4, 5, 6, 7, 8, 9, 10 },
  prioritized = { 10, 4, 5, 11, 7, 6, 8, 9, 12 },
}

local now = redis_now()
local shape = shapes.load(keys[1], base, now)
if shapes.is_lost(shape, argv[1], argv[2]) then return { -1, {} } end
if shape and (shape.groups or shape.ageing_ms) then
  hooked, store_groups = group_hooks.redis(redis, { [base] = { shape.groups, shape.ageing_ms } })
end

local function answer(status, detail, outcome)
  return {
    status, detail, outcome, shape and shape.id or '', shape and shape.revision or '',
    shape and shapes.news(keys[1], shape, argv[1], argv[2]) or false,
  }
end

if redis.call('EXISTS', letter) == 0 then return answer(1, {}, 'gone') end
if redis.call('HEXISTS', letter, 'redriven') == 1 then return answer(1, {}, 'back') end
if redis.call('EXISTS', base .. id) == 1 then
  if redis.call('HGET', base .. id, 'timestamp') ~= argv[8] then return answer(1, {}, 'taken') end
  return answer(1, {}, redis.call('ZSCORE', keys[13], id) and 'failed' or 'back')
end
-- A deadline is not checked here: the job has had its chance, and expires again when it is at the head. Nor is the bound
-- of its group.
local function refusal_of(options)
  local again, groups = { cost = 1, terms = job_terms.read(',' .. (options.priority or 0) .. ',,') }, nil
  if options.group then
    groups = group_admission.open(base, shape, now)
    again.group = groups and { groups.named(cjson.encode({ group = options.group })) }
  end
  return admission.refusal(base, shape, now, { again, line = group_line.of(groups, shape), groups = groups })
end
local refusal = shape and refusal_of(cmsgpack.unpack(argv[6]))
if refusal then return answer(refusal[1], refusal[2], '') end
for i, from in ipairs(KEYS_OF[argv[3]]) do KEYS[i] = keys[from] end
for i = 1, 3 do ARGV[i] = argv[3 + i] end
-- Redis does not roll back, so a partial job is deleted: it would look like one that is back.
local script = argv[3] == 'standard' and add_standard_job or add_prioritized_job
local added, failure = pcall(script.run, hooked, KEYS, ARGV)
store_groups()
if not added then
  redis.call('DEL', base .. id)
  return type(failure) == 'table' and failure or { err = failure }
end
if argv[9] ~= '' then redis.call('HSET', base .. id, 'progress', argv[9]) end
redis.call('HSET', letter, 'redriven', as_text.us(now))
touched.note(base)
touched.wake()
return answer(1, {}, 'redriven')
