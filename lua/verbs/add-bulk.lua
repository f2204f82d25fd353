--[[
  Admits many jobs, either all or none, or each by itself: after the admission checks, BullMQ's own add script runs for
  each. Jobs that certainly fit need only that.
  KEYS
    [1]  …:meta:shape: the keys of BullMQ's scripts are made here
  ARGV
    [1]  'id:revision' of the shape that the caller knows, '' if none
    [2]  id of a claim (claim-places) to take the places from, or ''
    [3]  its lease from now on, ms
    [4]  '1' if each is admitted by itself, '2' if they are part of a larger bulk whose claim checked their starts
    [5]  '' or, JSON, the idempotency key of the whole bulk: [record, mark, call, time to live in ms, number of jobs,
         stem of their ids if that is not the mark] (admission/once-record). Without jobs it is only looked up
    [6]  '1' if the caller made all ids for this bulk. Or, if the call was sent before, JSON: [when, µs, the ids that the
         caller made] (admission/sent-again)
    then four for each job: its text (admission/new-job), BullMQ's three arguments
  Returns the reply of admission/admission, then 3 BullMQ's replies, 4 news. If each is admitted by itself, a refused job
  has the reply of admission/admission, a failed one {0, the text of the error}. If there is no idempotency key, 5 is the
  number of waiting jobs now, '' if it does not imply their positions.
  With an idempotency key 5 position of the first job or '', 6 its start µs or '', 7 '1' if all were added before:
  then 3 is the JSON of their ids, or '' if those were derived from the key.
]]
local admission = use 'admission/admission'
local claims = use 'admission/claims'
local fitting_bulk = use 'admission/fitting-bulk'
local new_job = use 'admission/new-job'
local once_record = use 'admission/once-record'
local overflow = use 'admission/overflow'
local sent_again = use 'admission/sent-again'
local batch_once = use 'ends/batch-once'
local cancelled = use 'ends/cancelled'
local wake = use 'gate/wake'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local group_line = use 'groups/line'
local queue_groups = use 'groups/queue-groups'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local FIELDS, FIRST = fitting_bulk.FIELDS, 7
local key, base, identity = KEYS[1], string.sub(KEYS[1], 1, -11), ARGV[1]
local claim, lease_ms = ARGV[2], tonumber(ARGV[3])
local each, part, sent_before = ARGV[4] == '1', ARGV[4] == '2', string.byte(ARGV[6]) == 91

-- The jobs by their texts: most are alike.
local described = {}
for at = FIRST, #ARGV, FIELDS do described[ARGV[at]] = described[ARGV[at]] or new_job.read(ARGV[at]) end

if ARGV[5] == '' and not sent_before then
  local replies, failure, waiting = fitting_bulk.add({
    key = key, base = base, identity = identity, argv = ARGV, first = FIRST, count = (#ARGV - FIRST + 1) / FIELDS,
    described = described, claim = claim, lease_ms = lease_ms, are_new = ARGV[6] == '1', each = each,
  })
  if replies then return failure or { 1, {}, replies, false, waiting or '' } end
end

local now = redis_now()
local once = ARGV[5] ~= '' and cjson.decode(ARGV[5])
-- Jobs that an earlier call added stay added, so this comes before any refusal.
local known = once and once_record.recall(base, once)
if known and known[1] < 0 then return { known[1], {} } end
local shape = shapes.load(key, base, now)
if known then
  local first = known[2] == '' and once_record.id(once, 0) or cjson.decode(known[2])[1]
  local position, start = group_line.estimate(base, shape, now, first)
  -- The newest shape says whether the answer has to be confirmed. A call that adds restores a shape that Redis has
  -- lost.
  local news = not shapes.is_lost(shape, identity) and shapes.news(key, shape, identity)
  return { 1, {}, known[2], news, position, start, known[3] }
end
if shapes.is_lost(shape, identity) then return { -1, {} } end

local sent_us, made = unpack(sent_before and cjson.decode(ARGV[6]) or {})
-- The jobs that an earlier run of this call added.
local before = not sent_us and {} or sent_again.added(base, made, sent_us, now)
if not before then return { -11, {} } end

-- The job's id, and its deduplication id.
local function ids_at(at)
  return new_job.ids(base, ARGV[at + 1])
end

local function was_added(at)
  return sent_before and before[ids_at(at)]
end

local groups = queue_groups.of(base, shape, now)
if not groups and not each then
  for _, job in pairs(described) do if job.group then return { -7, {} } end end
end

-- BullMQ's scripts, with handlers for their commands.
local run = new_job.adder(group_hooks.adding(base, shape, groups, now, groups and batch_once.handlers(base)), base)

local function add(at)
  if was_added(at) then return (ids_at(at)) end
  local job = described[ARGV[at]]
  if groups then groups.adding = job.group end
  local reply = run(job.script, ARGV, at + 1)
  group_admission.note_keys(base, shape, now, reply)
  return reply
end

local function deadline_error(at)
  local terms = described[ARGV[at]].terms
  if not terms.deadline or was_added(at) then return nil end
  return admission.deadline_error(now, terms)
end

local function is_new(at, seen)
  local id, deduplication_id = ids_at(at)
  return admission.is_new(base, id, deduplication_id, seen)
end

local function refusal_of_all()
  -- Whether all jobs are new or, if the call was resent, none is; and whether the claim may have places for all of
  -- them.
  local new, seen, like_first, claimed = { groups = groups }, {}, ARGV[6] == '1', claim ~= '' and not groups
  for _, job in pairs(described) do
    like_first, claimed = like_first and not job.deduplicates, claimed and not admission.cost_error(shape, job.cost)
  end
  if like_first and not admission.is_new(base, ids_at(FIRST), '', {}) then return nil end
  if like_first and claimed and claims.take(key, base, claim, (#ARGV - FIRST + 1) / FIELDS, now, lease_ms) then return nil end
  for at = FIRST, #ARGV, FIELDS do
    if not was_added(at) and (like_first or is_new(at, seen)) then
      local job = described[ARGV[at]]
      new[#new + 1] = { cost = job.cost, terms = job.terms, group = job.group, options = ARGV[at + 3] }
    end
  end
  local refusal = admission.too_costly(shape, new) or group_admission.refusal_of_keys(base, shape, now, new)
  if refusal then return refusal end
  -- A claim whose lease has expired covers nothing.
  local left = claim ~= '' and claims.left(base, claim, now) or 0
  -- A claim admitted its bulk whole: a group bound that is set between its parts refuses none of the rest.
  if #new > left then refusal, new.swaps = group_admission.refusal(shape, new, not part) end
  if refusal then return refusal end
  if left > 0 then
    local covered = math.min(left, #new)
    claims.set(key, base, claim, left - covered, now, lease_ms)
    new = { groups = groups, swaps = new.swaps, unpack(new, covered + 1) }
  end
  return admission.refusal_of_queue(base, shape, now, new, not part and overflow.choose, not part)
end

-- Only a job that might be refused is checked first: for its cost, a lack of places, or a late start.
local places = each and shape and admission.places(base, shape, now) or math.huge

local function admit(at)
  if was_added(at) then return (ids_at(at)) end
  local missed = deadline_error(at)
  if missed then return missed end
  local job = described[ARGV[at]]
  if job.group and not groups then return { -7, {} } end
  local inspects = shape and (job.group or places < 1 or shape.bounds_keys or shape.max_wait_ms
    or shape.refuses_closed or job.terms.deadline or admission.cost_error(shape, job.cost))
  local refusal, gone
  if inspects and is_new(at, {}) then
    job.options = ARGV[at + 3]
    refusal, gone = admission.refusal(base, shape, now, { job, groups = groups }, overflow.choose)
  end
  if refusal then return refusal end
  places = places - 1
  local done, reply = pcall(add, at)
  if not done then return (fitting_bulk.failed(true, reply)) end
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
    local group = described[ARGV[at]].group
    if group then names[#names + 1] = group[1] end
  end
  groups:expect(names)
end
local replies, asked, position, start = {}, {}, '', ''
for at = FIRST, #ARGV, FIELDS do
  local done, reply = true, nil
  if each then reply = admit(at) else done, reply = pcall(add, at) end
  if not done then
    -- All earlier adds are complete. The error is the command's own.
    overflow.drop_due(base, shape, gone, now)
    if groups then group_hooks.save_adds(groups) end
    cancelled.replaced()
    return select(2, fitting_bulk.failed(false, reply))
  end
  replies[#replies + 1] = reply
  if gone and type(reply) ~= 'number' then
    gone.due = true
    if not (groups and groups.gathered) then gone = overflow.drop_due(base, shape, gone, now) end
  end
  if once then
    asked[#asked + 1] = ids_at(at)
    if at == FIRST then position, start = group_line.estimate(base, shape, now, replies[1], groups) end
  end
end
overflow.drop_due(base, shape, gone, now)
if groups then group_hooks.save_adds(groups) end
if once and asked[1] then once_record.keep(base, once, asked, replies) end
-- Among groups the length of the list is no position.
if each and not (shape and shape.groups) then position = redis.call('LLEN', base .. 'wait') end
wake.by_adds(base, shape, groups)
cancelled.replaced()
wake.touched()
return { 1, {}, replies, shapes.news(key, shape, identity), position, start, '0' }
