--[[
  Admits a whole flow to all its queues, or none of it: after the admission checks of every queue, BullMQ's own add
  script runs for each job and its release for each parent, each under pcall with a reply of its own.
  KEYS
    [1…]  …:meta:shape of each queue
  ARGV
    [1]  number of calls
    then for each queue: id and revision of its shape, number of jobs, and for each job its id or '', its
    deduplication id or '', its cost, its terms (lib/terms) and its group or '' (lib/group-admission)
    then for each call: BullMQ's script, number of its keys, number of its arguments, its keys, its arguments. The keys
    are passed as arguments because their number varies; a flow lies in one hash slot
  Returns the reply of lib/admission, then 3 the number of the queue (from 1) that refused or lost its shape, 4 BullMQ's
    reply for each call, the text of an error in a table, 5 the news of each queue's shape.
  The same call sent twice adds once, if every job has an id.
]]
--- @include "lib/admission"
--- @include "lib/delay-clock"
--- @include "lib/group-admission"
--- @include "lib/group-hooks"
--- @include "lib/group-line"
--- @include "lib/sleepers"
local FIELDS = 5
local shape_keys, argv = {}, {}
for i = 1, #KEYS do shape_keys[i] = KEYS[i] end
for i = 1, #ARGV do argv[i] = ARGV[i] end
local now = redis_now()

local run, known = {}, {}
local redis = groups_redis(redis, known)
function run.addStandardJob()
  --- @original addStandardJob
end
function run.addPrioritizedJob()
  --- @original addPrioritizedJob
end
function run.addDelayedJob()
  --- @original addDelayedJob
end
function run.addParentJob()
  --- @original addParentJob
end
function run.releaseParentIfNoPendingDependencies()
  --- @original releaseParentIfNoPendingDependencies
end

local function base_of(i)
  return string.sub(shape_keys[i], 1, -11)
end

-- Index of the arguments of the next queue.
local function after_jobs(at)
  return at + 3 + FIELDS * tonumber(argv[at + 2])
end

-- Returns nil if the jobs of a queue may enter, else the refusal; second, its shape. A flow drops no other jobs.
local function refusal_of(i, at)
  local base = base_of(i)
  local shape = shape_load(shape_keys[i], base, now)
  if shape_lost(shape, argv[at], argv[at + 1]) then return { -1, {} } end
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    local missed = admission.deadline_error(now, terms_read(argv[job + 3]))
    if missed then return missed end
  end
  local groups = grouped.open(base, shape, now)
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    if argv[job + 4] ~= '' and not groups then return { -7, {} } end
  end
  if not shape then return nil end
  local new, seen, highest, counts, costly = { line = group_line.of(groups, shape) }, {}, 0, {}, nil
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    local cost = tonumber(argv[job + 2])
    highest = math.max(highest, cost)
    if admission.is_new(base, argv[job], argv[job + 1], seen) then
      local group = grouped.read(argv[job + 4])
      new[#new + 1] = { cost = cost, terms = terms_read(argv[job + 3]), group = group }
      if group then
        counts[group[1]] = (counts[group[1]] or 0) + 1
        costly = costly or grouped.cost_error(groups, group[1], cost)
      end
    end
  end
  local full = groups and (costly or grouped.refusal_of_all(groups, shape, counts))
  return admission.cost_error(shape, highest) or full or admission.refusal(base, shape, now, new), shape
end

-- Runs the call at index `at`; returns its reply and the index of the next call.
local function run_call(at)
  local keys, arguments = tonumber(argv[at + 1]), tonumber(argv[at + 2])
  for i = 1, keys do KEYS[i] = argv[at + 2 + i] end
  for i = 1, arguments do ARGV[i] = argv[at + 2 + keys + i] end
  local done, reply = pcall(run[argv[at]])
  if not done then reply = { type(reply) == 'table' and reply.err or tostring(reply) } end
  return reply or false, at + 3 + keys + arguments
end

local at, shapes, news = 2, {}, {}
for i = 1, #shape_keys do
  local refusal, shape = refusal_of(i, at)
  if refusal then
    refusal[3] = i
    return refusal
  end
  shapes[i] = shape or false
  news[i] = shape and shape_news(shape_keys[i], shape, argv[at], argv[at + 1]) or false
  known[base_of(i)] = { shape and shape.groups, shape and shape.ageing_ms }
  at = after_jobs(at)
end
local replies = {}
for call = 1, tonumber(argv[1]) do replies[call], at = run_call(at) end
for i = 1, #shape_keys do
  local shape = shapes[i]
  if shape and (shape.interval or shape.limits or shape.groups) then sleepers_expect_delayed(base_of(i), now) end
end
return { 1, {}, 0, replies, news }
