--[[
  Admits many jobs, either all or none, or each by itself: after the admission checks, BullMQ's own add script runs for
  each.
  KEYS
    [1]  wait  [2] paused  [3] meta  [4] id  [5] completed  [6] delayed  [7] active  [8] events  [9] marker
    [10] prioritized  [11] pc  [12] …:meta:shape
  ARGV
    [1]  id of the shape that the caller knows, '' if none
    [2]  its revision
    [3]  id of a claim (claim-places) to take the places from, or ''
    [4]  its lease from now on, ms
    [5]  '1' if each is admitted by itself, '2' if they are part of a larger bulk whose claim checked their starts
    [6]  '' or, JSON, the idempotency key of the whole bulk: [record, mark, call, time to live in ms, number of jobs,
         stem of their ids if that is not the mark] (admission/once-record). Without jobs it is only looked up
    [7]  '1' if the caller made all ids for this bulk and no job has a deduplication id: then all are new or, if the
         call was resent, none is. Or, if the call was sent before, JSON: [when, µs, the ids that the caller made]
         (admission/sent-again)
    then nine for each job: kind (standard, prioritized, delayed), BullMQ's three arguments, job id or '',
    deduplication id or '', cost, terms (admission/job-terms), its group or '' (groups/admission)
  Returns the reply of admission/admission, then 3 BullMQ's replies, 4 id, 5 revision, 6 news. If each is admitted by
  itself, a refused job has the reply of admission/admission, a failed one {0, the text of the error}; 7 is the number of
  waiting jobs now, '' in a queue with groups.
  With an idempotency key also 7 position of the first job or '', 8 its start µs or '', 9 '1' if all were added before:
  then 3 is the JSON of their ids, or '' if those were derived from the key.
]]
local admission = use 'admission/admission'
local bulk = use 'admission/bulk'
local claims = use 'admission/claims'
local job_terms = use 'admission/job-terms'
local once_record = use 'admission/once-record'
local overflow = use 'admission/overflow'
local sent_again = use 'admission/sent-again'
local batch_once = use 'ends/batch-once'
local queued_at_redis = use 'gate/queued-at-redis'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local group_adds = use 'groups/adds'
local group_admission = use 'groups/admission'
local group_line = use 'groups/line'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local FIELDS, FIRST = 9, 8
local base = string.sub(KEYS[12], 1, -11)

local now = redis_now()
local once = ARGV[6] ~= '' and cjson.decode(ARGV[6])
-- Jobs that an earlier call added stay added: this is returned before anything can be refused.
local known = once and once_record.recall(base, once)
if known and known[1] < 0 then return { known[1], {} } end
local shape = shapes.load(KEYS[12], base, now)
if known then
  local first = known[2] == '' and once_record.id(once, 0) or cjson.decode(known[2])[1]
  local position, start = group_line.estimate(base, shape, now, first)
  -- Whether the answer has to be confirmed follows from the newest shape. One that Redis has lost is restored by a call
  -- that adds.
  local lost = not shape or shapes.is_lost(shape, ARGV[1], ARGV[2])
  local news = not lost and shapes.news(KEYS[12], shape, ARGV[1], ARGV[2])
  return { 1, {}, known[2], '', '', news, position, start, known[3] }
end
if shapes.is_lost(shape, ARGV[1], ARGV[2]) then return { -1, {} } end

-- The jobs that this call added when it was sent before.
local before = {}

local function find_before(sent_us, ids)
  before = sent_again.added(base, ids, sent_us, now)
end
if string.byte(ARGV[7]) == 91 then find_before(unpack(cjson.decode(ARGV[7]))) end
if not before then return { -11, {} } end

local each, part = ARGV[5] == '1', ARGV[5] == '2'
local groups

-- The groups of the jobs, by their texts.
local named = {}

local function group_at(at)
  local text = ARGV[at + 8]
  if text ~= '' and not named[text] then named[text] = group_admission.read(text) end
  return named[text]
end

local function add(at)
  if before[ARGV[at + 4]] then return ARGV[at + 4] end
  local group = group_at(at)
  if groups then groups.adding = group or false end
  return bulk.add(KEYS, ARGV, at)
end

groups = group_admission.open(base, shape, now)
if groups then
  bulk.redis = group_adds.redis(groups, batch_once.handlers(base))
elseif not each then
  for at = FIRST, #ARGV, FIELDS do if ARGV[at + 8] ~= '' then return { -7, {} } end end
end

if shape and shape.ageing_ms then bulk.redis = queued_at_redis(bulk.redis or redis, base, now) end

local line = shape and group_line.of(groups, shape)

local function job_at(at)
  return { cost = tonumber(ARGV[at + 6]), terms = job_terms.read(ARGV[at + 7]), group = group_at(at) }
end

-- Cheap check first: few jobs have a deadline.
local function deadline_error(at)
  if before[ARGV[at + 4]] or not string.find(ARGV[at + 7], ',%d+$') then return nil end
  return admission.deadline_error(now, job_terms.read(ARGV[at + 7]))
end

-- Takes the places of all jobs, which are new, from the claim. False if it has too few, or if one costs too much.
local function claimed_all()
  local jobs = (#ARGV - FIRST + 1) / FIELDS
  if ARGV[3] == '' or jobs > (claims.left(base, ARGV[3], now) or 0) then return false end
  if shape.interval then
    for at = FIRST, #ARGV, FIELDS do
      if admission.cost_error(shape, tonumber(ARGV[at + 6])) then return false end
    end
  end
  claims.use(KEYS[12], base, ARGV[3], jobs, now, tonumber(ARGV[4]))
  return true
end

local function refusal_of_all()
  local new, seen, counts, like_first = { line = line, groups = groups }, {}, {}, ARGV[7] == '1'
  if like_first and not admission.is_new(base, ARGV[FIRST + 4], '', {}) then return nil end
  if like_first and not groups and claimed_all() then return nil end
  for at = FIRST, #ARGV, FIELDS do
    if not before[ARGV[at + 4]] and (like_first or admission.is_new(base, ARGV[at + 4], ARGV[at + 5], seen)) then
      local job = job_at(at)
      new[#new + 1] = job
      local group = groups and job.group
      if group then counts[group[1]] = (counts[group[1]] or 0) + 1 end
      local refusal = admission.cost_error(shape, job.cost)
        or (group and group_admission.cost_error(groups, group[1], job.cost))
      if refusal then return refusal end
    end
  end
  local left = ARGV[3] ~= '' and claims.left(base, ARGV[3], now) or 0
  -- A claim admitted its bulk whole: a bound that groups get between its parts refuses none of the rest.
  if groups and #new > left then
    local refusal
    refusal, new.swaps = group_admission.refusal_of_all(groups, shape, counts, #new, not part)
    if refusal then return refusal end
  end
  if left > 0 then
    -- A claim whose lease has expired covers nothing.
    local covered = claims.use(KEYS[12], base, ARGV[3], #new, now, tonumber(ARGV[4]))
    new = { line = line, groups = groups, swaps = new.swaps, unpack(new, covered + 1) }
  end
  return admission.refusal(base, shape, now, new, not part and overflow.choose, not part)
end

-- Only a job that might be refused is checked first: for its cost, a lack of places, or a late start.
local places = each and shape and admission.places(base, shape, now) or math.huge
local timed = shape and shape.max_wait_ms

local function admit(at)
  if before[ARGV[at + 4]] then return ARGV[at + 4] end
  local missed = deadline_error(at)
  if missed then return missed end
  local costly = shape and shape.interval and admission.cost_error(shape, tonumber(ARGV[at + 6]))
  local group = group_at(at)
  if group and not groups then return { -7, {} } end
  local inspects = costly or group or places < 1 or timed or (shape and string.find(ARGV[at + 7], ',%d+$'))
  local refusal, gone
  if inspects and admission.is_new(base, ARGV[at + 4], ARGV[at + 5], {}) then
    refusal = costly
    local swaps
    if group and not refusal then
      refusal, swaps = group_admission.refusal_of_one(groups, shape, group[1], tonumber(ARGV[at + 6]), true)
    end
    if not refusal then
      local new = { job_at(at), line = line, groups = groups, swaps = swaps }
      refusal, gone = admission.refusal(base, shape, now, new, overflow.choose)
    end
    if refusal then return refusal end
  end
  places = places - 1
  local done, reply = pcall(add, at)
  if not done then return { 0, type(reply) == 'table' and reply.err or tostring(reply) } end
  if gone and type(reply) ~= 'number' then overflow.drop(base, shape, gone, now) end
  return reply
end

local refusal, gone
if not (each or part) then
  for at = FIRST, #ARGV, FIELDS do refusal = refusal or deadline_error(at) end
end
if not refusal and shape and not each then refusal, gone = refusal_of_all() end
if refusal then return refusal end
if groups and not (each or once) then
  groups:gather()
elseif groups then
  local names = {}
  for at = FIRST, #ARGV, FIELDS do
    local group = group_at(at)
    if group then names[#names + 1] = group[1] end
  end
  groups:expect(names)
end
local replies, asked, position, start = {}, {}, '', ''
for at = FIRST, #ARGV, FIELDS do
  local done, reply = true, nil
  if each then reply = admit(at) else done, reply = pcall(add, at) end
  if not done then
    -- What was added before is complete. The error is that of the command, not of this line.
    overflow.drop_due(base, shape, gone, now)
    if groups then group_adds.save(groups) end
    return type(reply) == 'table' and reply or redis.error_reply(reply)
  end
  replies[#replies + 1] = reply
  if gone and type(reply) ~= 'number' then
    gone.due = true
    if not (groups and groups.gathered) then gone = overflow.drop_due(base, shape, gone, now) end
  end
  if once then
    asked[#asked + 1] = ARGV[at + 4]
    if at == FIRST then position, start = group_line.estimate(base, shape, now, replies[1], groups) end
  end
end
overflow.drop_due(base, shape, gone, now)
if groups then group_adds.save(groups) end
if once and asked[1] then once_record.keep(base, once, asked, replies) end
-- Among groups the length of the list is no position.
if each and not (shape and shape.groups) then position = redis.call('LLEN', base .. 'wait') end
if shape and (shape.interval or shape.limits or shape.groups) then
  wake.head_changed(base, groups)
  wake.delayed(base)
end
if next(touched.bases) then touched.wake() end
return {
  1, {}, replies, shape and shape.id or '', shape and shape.revision or '',
  shape and shapes.news(KEYS[12], shape, ARGV[1], ARGV[2]) or false, position, start, '0',
}
