--[[
  Admits one job or refuses it: after the admission checks, BullMQ's own add script runs. A job that certainly fits needs
  only that.
  KEYS
    [1]  …:meta:shape: the keys of BullMQ's script are made here, because fewer are sent and read faster
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  the job (admission/new-job). With more requests, JSON: [the job, what to return about its place: 'position',
         'start' (with the position) or '', job scheduler id or '' (iterations of one that exists are never refused), when
         the call was first sent, µs, if the job's id was made for it (admission/sent-again)]
    [3]  the first argument of BullMQ's script
    [4]  the second
    [5]  the third
    [6…] further ones, only for the script for schedulers
  Returns BullMQ's reply for a job that certainly fitted, if its place is not requested; otherwise the reply of
  admission/admission, then 3 BullMQ's reply, 4 position or '', 5 start µs or '', 6 news: the shape, if the caller knows
  another.
]]
local admission = use 'admission/admission'
local fits_surely = use 'admission/fits-surely'
local new_job = use 'admission/new-job'
local overflow = use 'admission/overflow'
local sent_again = use 'admission/sent-again'
local cancelled = use 'ends/cancelled'
local wake = use 'gate/wake'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local group_line = use 'groups/line'
local queue_groups = use 'groups/queue-groups'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)

local job, asked, scheduler_id, sent_us
-- Most jobs are plain standard jobs.
if ARGV[2] ~= '' then
  local text = ARGV[2]
  if string.byte(text) == 91 then text, asked, scheduler_id, sent_us = unpack(cjson.decode(text)) end
  job = new_job.read(text)
end

-- A job that certainly fits. Not a function: creating one takes as long as a command.
if not job or (job.fits and asked ~= 'start' and not sent_us) then
  local fits, timed, waiting = fits_surely(key, base, ARGV[1], 1, job and job.cost or 1)
  if fits then
    local script = new_job.script(job and job.script or 'addStandardJob')
    local reply = script.run(redis, script.keys(base), { ARGV[3], ARGV[4], ARGV[5] })
    wake.touched()
    -- Behind others only a job that is `lifo` may be the next one.
    if timed and (waiting or 0) > 0 then timed = job and job.terms.place == 'l' end
    if timed and wake.heads(base, {})[1] == reply then wake.head_changed(base) end
    if asked ~= 'position' or type(reply) == 'number' then return reply end
    local is_last = redis.call('LINDEX', base .. 'wait', 0) == reply
    return { 1, {}, reply, is_last and redis.call('LLEN', base .. 'wait') - 1 or '', '', false }
  end
end

job, asked, scheduler_id = job or new_job.read(''), asked or '', scheduler_id or ''
local now = redis_now()
local shape, groups = shapes.load(key, base, now), nil
if shapes.is_lost(shape, ARGV[1]) then return { -1, {} } end
local id, deduplication_id = '', ''
if scheduler_id == '' then id, deduplication_id = new_job.ids(base, ARGV[3]) end

local function refused(refusal)
  for i = 3, 5 do refusal[i] = '' end
  refusal[6] = shapes.news(key, shape, ARGV[1])
  return refusal
end

-- Whether an earlier run of this call added the job.
local before = false
if sent_us then
  local added = sent_again.added(base, { id }, sent_us, now)
  if not added then return { -11, {} } end
  before = added[id] == true
end
local missed = not before and scheduler_id == '' and admission.deadline_error(now, job.terms)
if missed then return refused(missed) end
local group, gone = job.group, nil
-- A job without a group may replace one that has a group, or release its parent.
groups = queue_groups.of(base, shape, now)
if groups then groups.adding = group end
local known = before or scheduler_id ~= '' and redis.call('ZSCORE', base .. 'repeat', scheduler_id)
if group and not groups and not known then return refused({ -7, {} }) end
if scheduler_id == '' then job.options = ARGV[5] end
if shape then
  local refusal
  if not known and admission.is_new(base, id, deduplication_id, {}) then
    refusal, gone = admission.refusal(base, shape, now, { job, groups = groups }, overflow.choose, scheduler_id == '')
  end
  if refusal then return refused(refusal) end
end
local reply = id
if not before then
  local script = new_job.script(job.script)
  reply = script.run(group_hooks.adding(base, shape, groups, now), script.keys(base), { unpack(ARGV, 3) })
  if scheduler_id == '' then group_admission.note_keys(base, shape, now, reply) end
end
-- A negative number is BullMQ's refusal.
if gone and type(reply) ~= 'number' then overflow.drop(base, shape, gone, now) end
if groups then groups:save() end
wake.by_adds(base, shape, groups)
if cancelled.replaced() then groups = queue_groups.of(base, shape, now) end
wake.touched()
local position, start = '', ''
if asked ~= '' and type(reply) == 'string' then
  position, start = group_line.estimate(base, shape, now, reply, groups)
end
return { 1, {}, reply, position, start, shapes.news(key, shape, ARGV[1]) }
