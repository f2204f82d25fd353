local add_delayed_job = use 'bullmq/addDelayedJob'
local add_job_scheduler = use 'bullmq/addJobScheduler'
local add_parent_job = use 'bullmq/addParentJob'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'
local wake = use 'gate/wake'
-- A new job, as a call describes it besides BullMQ's arguments (src/admission/add-call.ts). '' is a standard job of
-- cost 1 without further properties, '/GROUP' the same of a group, without a priority there. Any other text is the name
-- of BullMQ's script, the cost, the terms (new_job.terms), 'd' if it has a deduplication id, its priority in its group
-- or '', and the group, separated by spaces. Parsing JSON would take twice as long.
local new_job = { STANDARD = 'addStandardJob' }

local TO_START = { addStandardJob = true, addPrioritizedJob = true }

-- What an admission needs to know about a new job besides its cost, as text (src/admission/add-call.ts): '' if nothing,
-- else 'place,priority,delay,deadline'. place: l for a lifo job, w for one that waits for its children, after an a if
-- another shard is asked once this one has refused the job; delay in ms from now, deadline in ms since 1970.
new_job.PLAIN = { place = '', priority = 0, delay = 0 }

function new_job.terms(text)
  if text == '' then return new_job.PLAIN end
  local elsewhere, place, priority, delay, deadline = string.match(text, '^(a?)(%a?),(%d*),(%d*),(%d*)$')
  return {
    elsewhere = elsewhere ~= '', place = place,
    priority = tonumber(priority) or 0, delay = tonumber(delay) or 0, deadline = tonumber(deadline),
  }
end

-- Returns {script, cost, terms, group {id, priority}, or false, deduplicates, fits, is_plain}.
--   fits      whether the job only has to fit. A delayed job may have to wake a sleeping worker, one with a deadline
--             may be late, and a group may have a bound
--   is_plain  whether, in its group, it is standard and has neither terms nor a priority
function new_job.read(text)
  if text == '' then
    return { script = new_job.STANDARD, cost = 1, terms = new_job.PLAIN, group = false, fits = true }
  end
  if string.byte(text) == 47 then
    local group = { string.sub(text, 2), 0 }
    return { script = new_job.STANDARD, cost = 1, terms = new_job.PLAIN, group = group, is_plain = true }
  end
  local script, cost, place, mark, priority, group = string.match(text, '^(%a+) (%S+) (%S*) (d?) (%d*) (.*)$')
  local terms = new_job.terms(place)
  return {
    script = script, cost = tonumber(cost), terms = terms, deduplicates = mark ~= '',
    group = priority ~= '' and { group, tonumber(priority) },
    fits = priority == '' and TO_START[script] and not terms.deadline,
    is_plain = priority == '0' and place == '' and script == new_job.STANDARD,
  }
end

-- The job's id and its deduplication id from BullMQ's first argument, '' if it has none.
function new_job.ids(base, packed)
  local args = cmsgpack.unpack(packed)
  return args[2], args[9] and string.sub(args[9], #base + 4) or ''
end

-- BullMQ's add scripts, by its names. Each is created at its first use.
local named = {}
function named.addStandardJob() return add_standard_job end
function named.addPrioritizedJob() return add_prioritized_job end
function named.addDelayedJob() return add_delayed_job end
function named.addParentJob() return add_parent_job end
function named.addJobScheduler() return add_job_scheduler end

function new_job.script(name) return named[name]() end

-- Returns a function that adds one of many jobs to a queue: by the name of its script, whose three arguments begin at
-- argv[at].
function new_job.adder(redis, base)
  local keys, args = {}, {}
  return function(name, argv, at)
    local script = named[name]()
    keys[name] = keys[name] or script.keys(base)
    args[1], args[2], args[3] = argv[at], argv[at + 1], argv[at + 2]
    return script.run(redis, keys[name], args)
  end
end

-- Adds a job to the queue of this base, by one of BullMQ's add scripts and its three arguments. Returns the error, or
-- nil. Redis does not roll back, so a partial job is deleted: a partial dead letter or returned job would look
-- complete.
function new_job.add_whole(script, redis, base, args)
  local added, failure = pcall(script.run, redis, script.keys(base), args)
  if not added then
    redis.call('DEL', base .. cmsgpack.unpack(args[1])[2])
    return type(failure) == 'table' and failure or { err = failure }
  end
  wake.note(base)
end

return new_job
