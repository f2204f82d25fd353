--[[
  Admits a whole flow to all its queues, or none of it: after the admission checks of every queue, BullMQ's own add
  script runs for each job and its release for each parent, each under pcall with a reply of its own.
  KEYS
    [1…]  …:meta:shape of each queue
  ARGV
    [1]  '' or, if the flow was sent before, JSON: when, µs, then for each job '1' if the caller made its id
         (admission/sent-again), else ''
    [2]  number of parents to release
    then for each queue: 'id:revision' of the shape that the caller knows, '' if none
    then five for each job: number of its queue (from 1), its text (admission/new-job), BullMQ's three arguments
    then five for each parent: its key, that of its dependencies, the key of its queue, its id, the time, ms
  Returns the reply of admission/admission, then 3 the number of the queue that refused or lost its shape, 4 BullMQ's
    reply for each job and each parent, the text of an error in a table, 5 the news of each queue's shape.
  The same call sent twice adds once, if every job has an id.
]]
local admission = use 'admission/admission'
local new_job = use 'admission/new-job'
local sent_again = use 'admission/sent-again'
local release_parent_if_no_pending_dependencies = use 'bullmq/releaseParentIfNoPendingDependencies'
local cancelled = use 'ends/cancelled'
local wake = use 'gate/wake'
local group_admission = use 'groups/admission'
local group_hooks = use 'groups/hooks'
local queue_groups = use 'groups/queue-groups'
local redis_now = use 'redis/redis-now'
local shapes = use 'shape/shapes'

local FIELDS = 5
local FIRST, RELEASES = #KEYS + 3, #ARGV - FIELDS * tonumber(ARGV[2]) + 1
local now = redis_now()

-- State of each queue, by its base, for the handlers around BullMQ's scripts.
local known = {}
local hooked = group_hooks.redis(redis, known)

local described = {}

-- A queue: base, shape, groups, its jobs, and `run`, which adds one.
local queues = {}
for i = 1, #KEYS do
  local base = string.sub(KEYS[i], 1, -11)
  queues[i] = { base = base, jobs = {}, run = new_job.adder(hooked, base) }
end
for at = FIRST, RELEASES - 1, FIELDS do
  local text = ARGV[at + 1]
  described[text] = described[text] or new_job.read(text)
  table.insert(queues[tonumber(ARGV[at])].jobs, at)
end

local function job_at(at)
  return described[ARGV[at + 1]]
end

-- Returns nil if the jobs of a queue may enter, else the refusal. A flow drops no other jobs.
local function refusal_of(i)
  local queue, base = queues[i], queues[i].base
  local shape = shapes.load(KEYS[i], base, now)
  if shapes.is_lost(shape, ARGV[i + 2]) then return { -1, {} } end
  for _, at in ipairs(queue.jobs) do
    local missed = admission.deadline_error(now, job_at(at).terms)
    if missed then return missed end
  end
  local groups = queue_groups.of(base, shape, now)
  for _, at in ipairs(queue.jobs) do if job_at(at).group and not groups then return { -7, {} } end end
  queue.shape, queue.groups = shape, groups
  queue.news = shapes.news(KEYS[i], shape, ARGV[i + 2])
  if not shape then return nil end
  local new, seen = { groups = groups, together = true }, {}
  for _, at in ipairs(queue.jobs) do
    local job = job_at(at)
    local id, deduplication_id = new_job.ids(base, ARGV[at + 2])
    if admission.is_new(base, id, deduplication_id, seen) then
      new[#new + 1] = { cost = job.cost, terms = job.terms, group = job.group, options = ARGV[at + 4] }
    end
  end
  return admission.refusal(base, shape, now, new)
end

-- The added jobs, by their keys: none replaces another one.
local added = {}

local function add(at)
  local queue, job = queues[tonumber(ARGV[at])], job_at(at)
  if queue.groups then queue.groups.adding = job.group end
  local reply = queue.run(job.script, ARGV, at + 2)
  group_admission.note_keys(queue.base, queue.shape, now, reply, added)
  return reply
end

local function release(at)
  return release_parent_if_no_pending_dependencies.run(hooked, { ARGV[at], ARGV[at + 1] }, { unpack(ARGV, at + 2, at + 4) })
end

-- Returns BullMQ's replies for the jobs if an earlier run of this call added them, which it did with all or none;
-- second, whether that is unknown. again: when it was first sent, and whether the ids were made for it
local function added_before(again)
  local added, found, unknown = {}, false, false
  for i, queue in ipairs(queues) do
    local made = {}
    for _, at in ipairs(queue.jobs) do
      if again[(at - FIRST) / FIELDS + 2] == '1' then made[#made + 1] = new_job.ids(queue.base, ARGV[at + 2]) end
    end
    added[i] = {}
    if made[1] then added[i] = sent_again.added(queue.base, made, again[1], now) end
    unknown = unknown or not added[i]
    found = found or (added[i] and next(added[i]) ~= nil)
  end
  if not found then return nil, unknown end
  local replies = {}
  for at = FIRST, RELEASES - 1, FIELDS do
    local i = tonumber(ARGV[at])
    local id, deduplicated = new_job.ids(queues[i].base, ARGV[at + 2])
    local other = again[#replies + 2] == '1' and deduplicated ~= '' and not (added[i] and added[i][id])
      and redis.call('GET', queues[i].base .. 'de:' .. deduplicated)
    replies[#replies + 1] = other or id
  end
  return replies
end

if ARGV[1] ~= '' then
  local before, unknown = added_before(cjson.decode(ARGV[1]))
  if before then return { 1, {}, 0, before, {} } end
  if unknown then return { -11, {}, 1 } end
end
local news = {}
for i, queue in ipairs(queues) do
  local refusal = refusal_of(i)
  if refusal then
    refusal[3] = i
    return refusal
  end
  local groups = queue.groups
  if groups then groups:gather() end
  news[i] = queue.news
  known[queue.base] = { groups, queue.shape and queue.shape.ageing_ms, opened = groups }
end
local replies = {}
for at = FIRST, #ARGV, FIELDS do
  local done, reply = pcall(at < RELEASES and add or release, at)
  if not done then reply = { type(reply) == 'table' and reply.err or tostring(reply) } end
  replies[#replies + 1] = reply or false
end
for _, queue in ipairs(queues) do
  if queue.groups then queue.groups:save() end
  wake.by_adds(queue.base, queue.shape, queue.groups)
end
cancelled.replaced()
wake.touched()
return { 1, {}, 0, replies, news }
