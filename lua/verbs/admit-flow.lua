--[[
  Admits a whole flow to all its queues, or none of it: after the admission checks of every queue, BullMQ's own add
  script runs for each job and its release for each parent, each under pcall with a reply of its own.
  KEYS
    [1…]  …:meta:shape of each queue
  ARGV
    [1]  number of calls; if the flow was sent before, JSON: that, when, µs, and for each job its id, the number of its
         queue, whether the caller made its id (admission/sent-again), and its deduplication id or ''
    then for each queue: id and revision of its shape, number of jobs, and for each job its id or '', its
    deduplication id or '', its cost, its terms (admission/job-terms) and its group or '' (groups/admission)
    then for each call: BullMQ's script, number of its keys, number of its arguments, its keys, its arguments. The keys
    are passed as arguments because their number varies; a flow lies in one hash slot
  Returns the reply of admission/admission, then 3 the number of the queue (from 1) that refused or lost its shape, 4 BullMQ's
    reply for each call, the text of an error in a table, 5 the news of each queue's shape.
  The same call sent twice adds once, if every job has an id.
]]
local admission = use 'admission/admission'
local job_terms = use 'admission/job-terms'
local sent_again = use 'admission/sent-again'
local add_delayed_job = use 'bullmq/addDelayedJob'
local add_parent_job = use 'bullmq/addParentJob'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'
local release_parent_if_no_pending_dependencies = use 'bullmq/releaseParentIfNoPendingDependencies'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local group_line = use 'groups/line'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local FIELDS = 5
local now = redis_now()

local known = {}
local redis = group_hooks.redis(redis, known)

-- The scripts of BullMQ that a flow needs, by their names.
local scripts = {}
function scripts.addStandardJob(keys, args) return add_standard_job.run(redis, keys, args) end
function scripts.addPrioritizedJob(keys, args) return add_prioritized_job.run(redis, keys, args) end
function scripts.addDelayedJob(keys, args) return add_delayed_job.run(redis, keys, args) end
function scripts.addParentJob(keys, args) return add_parent_job.run(redis, keys, args) end
function scripts.releaseParentIfNoPendingDependencies(keys, args)
  return release_parent_if_no_pending_dependencies.run(redis, keys, args)
end

local function base_of(i)
  return string.sub(KEYS[i], 1, -11)
end

-- Index of the arguments of the next queue.
local function after_jobs(at)
  return at + 3 + FIELDS * tonumber(ARGV[at + 2])
end

-- Returns nil if the jobs of a queue may enter, else the refusal; second, its shape; third, its groups. A flow drops no
-- other jobs.
local function refusal_of(i, at)
  local base = base_of(i)
  local shape = shapes.load(KEYS[i], base, now)
  if shapes.is_lost(shape, ARGV[at], ARGV[at + 1]) then return { -1, {} } end
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    local missed = admission.deadline_error(now, job_terms.read(ARGV[job + 3]))
    if missed then return missed end
  end
  local groups = group_admission.open(base, shape, now)
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    if ARGV[job + 4] ~= '' and not groups then return { -7, {} } end
  end
  if not shape then return nil end
  local new, seen, highest, counts, costly = { line = group_line.of(groups, shape) }, {}, 0, {}, nil
  for job = at + 3, after_jobs(at) - 1, FIELDS do
    local cost = tonumber(ARGV[job + 2])
    highest = math.max(highest, cost)
    if admission.is_new(base, ARGV[job], ARGV[job + 1], seen) then
      local group = group_admission.read(ARGV[job + 4])
      new[#new + 1] = { cost = cost, terms = job_terms.read(ARGV[job + 3]), group = group }
      if group then
        counts[group[1]] = (counts[group[1]] or 0) + 1
        costly = costly or group_admission.cost_error(groups, group[1], cost)
      end
    end
  end
  local full = groups and (costly or group_admission.refusal_of_all(groups, shape, counts, #new))
  return admission.cost_error(shape, highest) or full or admission.refusal(base, shape, now, new), shape, groups
end

-- By the base of a queue with groups, these, and the index of the group of its next job.
local opened, group_at = {}, {}

-- The group of a job that is added is known: the calls of a queue are in the order of its jobs.
local function note_group(key)
  local base = string.match(key, '^(.*:)[^:]+$')
  local groups, at = opened[base], group_at[base]
  if not groups then return end
  groups.adding = group_admission.read(ARGV[at]) or false
  group_at[base] = at + FIELDS
end

-- Runs the call at index `at`; returns its reply and the index of the next call.
local function run_call(at)
  local name, keys, arguments = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local first = at + 2 + keys
  if name ~= 'releaseParentIfNoPendingDependencies' then note_group(ARGV[at + 3]) end
  local done, reply = pcall(scripts[name], { unpack(ARGV, at + 3, first) }, { unpack(ARGV, first + 1, first + arguments) })
  if not done then reply = { type(reply) == 'table' and reply.err or tostring(reply) } end
  return reply or false, at + 3 + keys + arguments
end

-- Returns BullMQ's replies for the jobs if an earlier run of this call added them, which it did with all or none; second,
-- whether that is not known.
local function added_before(again)
  local made, added, found, unknown = {}, {}, false, false
  for i = 3, #again do
    local id, queue, is_made = unpack(again[i])
    if is_made then
      made[queue] = made[queue] or {}
      table.insert(made[queue], id)
    end
  end
  for queue, ids in pairs(made) do
    added[queue] = sent_again.added(base_of(queue), ids, again[2], now)
    unknown = unknown or not added[queue]
    found = found or (added[queue] and next(added[queue]) ~= nil)
  end
  if not found then return nil, unknown end
  local replies = {}
  for i = 3, #again do
    local id, queue, is_made, deduplicated = unpack(again[i])
    local other = is_made and deduplicated ~= '' and not (added[queue] and added[queue][id])
      and redis.call('GET', base_of(queue) .. 'de:' .. deduplicated)
    replies[#replies + 1] = other or id
  end
  return replies
end

local again = string.byte(ARGV[1]) == 91 and cjson.decode(ARGV[1])
if again then
  local before, unknown = added_before(again)
  if before then return { 1, {}, 0, before, {} } end
  if unknown then return { -11, {}, 1 } end
  ARGV[1] = again[1]
end
local at, shape_of, news = 2, {}, {}
for i = 1, #KEYS do
  local base = base_of(i)
  local refusal, shape, groups = refusal_of(i, at)
  if refusal then
    refusal[3] = i
    return refusal
  end
  shape_of[i] = shape or false
  news[i] = shape and shapes.news(KEYS[i], shape, ARGV[at], ARGV[at + 1]) or false
  if groups then groups:gather() end
  known[base] = { groups, shape and shape.ageing_ms, groups }
  opened[base], group_at[base] = groups, at + 7
  at = after_jobs(at)
end
local replies = {}
for call = 1, tonumber(ARGV[1]) do replies[call], at = run_call(at) end
for i = 1, #KEYS do
  local shape, groups = shape_of[i], opened[base_of(i)]
  if groups then groups:save() end
  if shape and (shape.interval or shape.limits or shape.groups) then
    wake.head_changed(base_of(i), groups)
    wake.delayed(base_of(i))
  end
end
touched.wake()
return { 1, {}, 0, replies, news }
